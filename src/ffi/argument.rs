//! One argument of an FFI call: a number or a pointer of C.

use std::ffi::c_void;

/// An argument of a [`FfiCall`](crate::FfiCall): a value with its C type.
///
/// `From` converts raw pointers, `usize`, floats and integers of 8 to 64 bits.
///
/// ```
/// use accelrt::Argument;
/// assert_eq!(Argument::from(3_i32), Argument::I32(3));
/// let bytes = [0_u8; 4];
/// assert_eq!(Argument::from(&raw const bytes), Argument::Pointer(bytes.as_ptr() as _));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Argument {
    /// `int8_t`.
    I8(i8),
    /// `int16_t`.
    I16(i16),
    /// `int32_t`.
    I32(i32),
    /// `int64_t`.
    I64(i64),
    /// `uint8_t`, and C's `bool`.
    U8(u8),
    /// `uint16_t`.
    U16(u16),
    /// `uint32_t`.
    U32(u32),
    /// `uint64_t`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// Any pointer. Its target must live until the function has returned.
    Pointer(*mut c_void),
}

/// An argument as a 64-bit word, for an integer register or for a float register.
pub(super) enum Word {
    Integer(u64),
    Float(u64),
}

impl Argument {
    /// Sign-extends or zero-extends an integer to 64 bits. Puts a `float` into the low 32 bits.
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "the bits of the extended value are wanted")]
    pub(super) fn word(self) -> Word {
        match self {
            Self::I8(value) => Word::Integer(i64::from(value) as u64),
            Self::I16(value) => Word::Integer(i64::from(value) as u64),
            Self::I32(value) => Word::Integer(i64::from(value) as u64),
            Self::I64(value) => Word::Integer(value as u64),
            Self::U8(value) => Word::Integer(u64::from(value)),
            Self::U16(value) => Word::Integer(u64::from(value)),
            Self::U32(value) => Word::Integer(u64::from(value)),
            Self::U64(value) => Word::Integer(value),
            Self::F32(value) => Word::Float(u64::from(value.to_bits())),
            Self::F64(value) => Word::Float(value.to_bits()),
            Self::Pointer(pointer) => Word::Integer(pointer.expose_provenance() as u64),
        }
    }
}

macro_rules! from_numbers {
    ($($number:ty => $variant:ident),*) => {
        $(impl From<$number> for Argument {
            #[inline]
            fn from(value: $number) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

from_numbers!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, f32 => F32, f64 => F64);
from_numbers!(u8 => U8, u16 => U16, u32 => U32, u64 => U64);

impl From<usize> for Argument {
    /// `size_t`.
    #[inline]
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}

impl<T> From<*mut T> for Argument {
    #[inline]
    fn from(pointer: *mut T) -> Self {
        Self::Pointer(pointer.cast())
    }
}

impl<T> From<*const T> for Argument {
    #[inline]
    fn from(pointer: *const T) -> Self {
        Self::Pointer(pointer.cast_mut().cast())
    }
}
