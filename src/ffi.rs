//! FFI calls: the address of a C function, and arguments placed as the C convention requires.
//!
//! An [`Argument`] is a value as one 64-bit word, and an [`FfiCall`] a function with its arguments.
//!
//! # The calling conventions
//!
//! Source: System V AMD64 ABI 1.0, section 3.2.3; Procedure Call Standard for the Arm 64-bit
//! Architecture, section 6.8.2.
//!
//! Both conventions have separate registers for integers and for floats. Integers fill their
//! registers in order, and floats fill theirs. Further arguments go to the stack in order, one word
//! each. The position of an integer among floats therefore does not affect its register. A register
//! that the function does not read may hold any value. One function type with all registers
//! therefore calls every signature. The caller must rule out functions with a variable number of
//! arguments, structures passed by value and results returned in memory.
#![expect(unsafe_code, reason = "calls a function whose signature only the caller knows")]

use std::ffi::c_void;
use std::mem;

use crate::base::error::{Error, ProgramError, Result};

/// An argument of a [`FfiCall`]: a value with its C type.
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
enum Word {
    Integer(u64),
    Float(u64),
}

impl Argument {
    /// Sign-extends or zero-extends an integer to 64 bits. Puts a `float` into the low 32 bits.
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "the bits of the extended value are wanted")]
    fn word(self) -> Word {
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

/// True on platforms with one of the two conventions. Windows assigns registers by an argument's
/// position, and Apple packs arguments on the stack.
pub(crate) const IS_KNOWN: bool = cfg!(any(
    all(target_arch = "x86_64", unix),
    all(target_arch = "aarch64", unix, not(target_vendor = "apple"))
));

/// The number of registers for integers and pointers.
const INTEGERS: usize = if cfg!(target_arch = "x86_64") { 6 } else { 8 };

/// The number of registers for floats, on both architectures.
const FLOATS: usize = 8;

/// The maximum number of stack words: of [`MAX_ARGUMENTS`], at least 6 are in registers.
const STACK: usize = MAX_ARGUMENTS - 6;

/// The number of stack words in the second of the three call variants.
const SHORT_STACK: usize = 8;

/// The maximum number of arguments of a call. The longest signatures of LAPACK have 29.
pub(crate) const MAX_ARGUMENTS: usize = 32;

/// The maximum number of arguments that a command stores without an allocation.
pub(crate) const MAX_SHORT: usize = 4;

/// The address of a function; [`CallFrame::call`] casts it to the type of the call.
pub(crate) type Function = unsafe extern "C" fn();

/// Up to [`MAX_SHORT`] arguments: integers from the front, floats from the back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortFrame([u64; MAX_SHORT]);

impl ShortFrame {
    /// Places at most [`MAX_SHORT`] arguments.
    #[inline]
    fn place(arguments: &[Argument]) -> Self {
        // The loops have fixed bounds, so the compiler unrolls them. The words then stay in
        // registers on the way to the queue. Argument types known at compile time leave no branch.
        let (mut words, mut integers, mut floats) = ([0; MAX_SHORT], 0, 0);
        for index in 0..MAX_SHORT {
            let Some(argument) = arguments.get(index) else { break };
            let (word, at) = match argument.word() {
                Word::Integer(word) => {
                    integers += 1;
                    (word, integers - 1)
                }
                Word::Float(word) => {
                    floats += 1;
                    (word, MAX_SHORT - floats)
                }
            };
            for (index, slot) in words.iter_mut().enumerate() {
                *slot = if index == at { word } else { *slot };
            }
        }
        Self(words)
    }
}

/// Arguments in the registers and stack slots that the convention requires.
pub(crate) trait CallFrame: Send + 'static {
    /// Calls the function. The returned value is meaningful only if the function returns an `int`.
    ///
    /// # Safety
    /// A call of the function with these arguments must be allowed now. The function must return an
    /// integer of up to 32 bits, or a value that is ignored and not returned in memory.
    unsafe fn call(&self, function: Function) -> i32;

    /// The words of the arguments that may be pointers. Words of other arguments may be among them.
    fn possible_pointers(&self) -> Vec<u64>;
}

impl CallFrame for ShortFrame {
    fn possible_pointers(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    #[inline]
    unsafe fn call(&self, function: Function) -> i32 {
        type Call = unsafe extern "C" fn(u64, u64, u64, u64, f64, f64, f64, f64) -> i32;
        // SAFETY: only the type changes; both are addresses of functions.
        let function = unsafe { mem::transmute::<Function, Call>(function) };
        let words = self.0;
        let floats = words.map(f64::from_bits);
        // SAFETY: the caller guarantees that the call is allowed. The function's own type may
        // differ from `Call`. The optimiser does not know the function, so only the convention
        // matters: each argument is where the convention expects it, and registers without an
        // argument may hold any value.
        unsafe {
            function(
                words[0], words[1], words[2], words[3], //
                floats[3], floats[2], floats[1], floats[0],
            )
        }
    }
}

/// Up to [`MAX_ARGUMENTS`] arguments: the registers' words, and further words for the stack.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    integers: [u64; INTEGERS],
    floats: [f64; FLOATS],
    stack: [u64; STACK],
    stack_count: usize,
}

/// Calls `$function` with all registers and with the stack words of the given indices.
macro_rules! call {
    ($frame:ident, $function:ident, $stack:tt) => {{
        #[cfg(target_arch = "x86_64")]
        let returned = call!($frame, $function, [0 1 2 3 4 5], $stack);
        #[cfg(not(target_arch = "x86_64"))]
        let returned = call!($frame, $function, [0 1 2 3 4 5 6 7], $stack);
        returned
    }};
    ($frame:ident, $function:ident, [$($integer:literal)*], [$($stack:literal)*]) => {{
        type Call = unsafe extern "C" fn(
            $(word!($integer),)* f64, f64, f64, f64, f64, f64, f64, f64, $(word!($stack),)*
        ) -> i32;
        // SAFETY: only the type changes; both are addresses of functions.
        let function = unsafe { mem::transmute::<Function, Call>($function) };
        let Frame { integers, floats: x, stack, .. } = &**$frame;
        let _ = stack; // unused by the call without a stack
        // SAFETY: the caller guarantees that the call is allowed, and each argument is where the
        // convention expects it. The function does not read the stack words behind its arguments,
        // and its caller removes them.
        unsafe {
            function(
                $(integers[$integer],)*
                x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7],
                $(stack[$stack],)*
            )
        }
    }};
}

/// Expands to `u64` for each index, so that a repetition of indices gives a list of types.
macro_rules! word {
    ($number:literal) => {
        u64
    };
}

impl Frame {
    /// Places at most [`MAX_ARGUMENTS`] arguments: each in the next free register of its class, or
    /// in the next stack word when its registers are full.
    fn place(arguments: &[Argument]) -> Self {
        let mut frame = Self {
            integers: [0; INTEGERS],
            floats: [0.0; FLOATS],
            stack: [0; STACK],
            stack_count: 0,
        };
        let (mut integers, mut floats) = (frame.integers.iter_mut(), frame.floats.iter_mut());
        for argument in arguments {
            let on_stack = match argument.word() {
                Word::Integer(word) => integers.next().map(|slot| *slot = word).is_none(),
                Word::Float(word) => {
                    floats.next().map(|slot| *slot = f64::from_bits(word)).is_none()
                }
            };
            if on_stack {
                let (Word::Integer(word) | Word::Float(word)) = argument.word();
                frame.stack[frame.stack_count] = word;
                frame.stack_count += 1;
            }
        }
        frame
    }
}

impl CallFrame for Box<Frame> {
    fn possible_pointers(&self) -> Vec<u64> {
        [&self.integers, &self.stack[..self.stack_count]].concat()
    }

    unsafe fn call(&self, function: Function) -> i32 {
        match self.stack_count {
            0 => call!(self, function, []),
            1..=SHORT_STACK => call!(self, function, [0 1 2 3 4 5 6 7]),
            _ => call!(
                self, function,
                [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25]
            ),
        }
    }
}

/// A function of the C calling convention and its arguments, for
/// [`Stream::launch`](crate::Stream::launch).
///
/// A call has at most 32 arguments. A call with more than 4 arguments allocates memory for them.
/// The stream ignores the function's result, unless the call is [checked](FfiCall::checked).
///
/// ```
/// use accelrt::{Argument, Error, FfiCall};
/// extern "C" fn scale(values: *mut f32, count: usize, factor: f32) -> i32 {
///     let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
///     values.iter_mut().for_each(|value| *value *= factor);
///     0
/// }
/// let mut values = [1.0_f32, 2.0];
/// let arguments = [Argument::from(&raw mut values), 2_usize.into(), 0.5_f32.into()];
/// let call = FfiCall::new(scale as *const _, &arguments)?.checked();
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
/// // SAFETY: the types are those of `scale`, and `values` outlives the synchronise.
/// unsafe { stream.launch(call)? };
/// stream.synchronize()?;
/// assert_eq!(values, [0.5, 1.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FfiCall {
    function: Function,
    arguments: PlacedArguments,
    is_checked: bool,
    is_blocking: bool,
}

/// The arguments as the C convention requires them; more than [`MAX_SHORT`] are boxed.
#[derive(Clone, Debug)]
pub(crate) enum PlacedArguments {
    Short(ShortFrame),
    Long(Box<Frame>),
}

impl FfiCall {
    /// Describes a call of the function at this address. Only a launch calls the function.
    ///
    /// Fails when the address is null, and when there are more than 32 arguments.
    #[inline]
    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "kept, not used: `Stream::launch` is unsafe and asks for what a call needs"
    )]
    pub fn new(function: *const c_void, arguments: &[Argument]) -> Result<Self> {
        // SAFETY: null becomes `None`, and any other address is a valid function pointer value. The
        // caller of `Stream::launch` guarantees that a function is there.
        let function = unsafe { mem::transmute::<*const c_void, Option<Function>>(function) };
        let Some(function) = function else {
            return Err(Error::Program(ProgramError::NullFunction));
        };
        let arguments = if arguments.len() <= MAX_SHORT {
            PlacedArguments::Short(ShortFrame::place(arguments))
        } else {
            Self::place_long(arguments)?
        };
        Ok(Self { function, arguments, is_checked: false, is_blocking: false })
    }

    #[cold]
    #[inline(never)]
    fn place_long(arguments: &[Argument]) -> Result<PlacedArguments> {
        if arguments.len() > MAX_ARGUMENTS {
            let (count, most) = (arguments.len(), MAX_ARGUMENTS);
            return Err(Error::Program(ProgramError::TooManyArguments { count, most }));
        }
        Ok(PlacedArguments::Long(Box::new(Frame::place(arguments))))
    }

    /// Makes the stream check the returned `int`: a status other than 0 fails the stream.
    #[must_use]
    #[inline]
    pub fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// True after [`FfiCall::checked`].
    #[must_use]
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Announces that the function blocks its thread, as one that sleeps or reads does. Another
    /// worker serves the device's streams meanwhile, and no waiting thread executes the call.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    /// True after [`FfiCall::blocking`].
    #[must_use]
    #[inline]
    pub fn is_blocking(&self) -> bool {
        self.is_blocking
    }

    #[inline]
    pub(crate) fn into_parts(self) -> (Function, PlacedArguments) {
        (self.function, self.arguments)
    }
}
