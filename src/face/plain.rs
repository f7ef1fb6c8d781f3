//! Plain data: types whose values are their bytes.
#![expect(unsafe_code, reason = "the promise of a type, and its values as bytes")]

/// A type whose values are their bytes: numbers, and arrays and structs of them.
///
/// A program implements it for its own types of C's layout:
///
/// ```
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Point {
///     x: f32,
///     y: f32,
/// }
/// // SAFETY: two floats without padding, which any bytes are.
/// unsafe impl accelrt::Plain for Point {}
///
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let points = runtime.zeros(80, accelrt::Device::cpu(0))?.typed::<Point>()?;
/// assert_eq!(points.len(), 10);
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// # Safety
/// Any bytes are a value of the type, all of its bytes belong to the value (it has no padding), and
/// a shared reference to it allows no writes (it has no cells).
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

/// Implements [`Plain`] for numbers.
macro_rules! plain_numbers {
    ($($number:ty)*) => {
        // SAFETY: numbers of the language have no padding and no cells, and any bits are one.
        $(unsafe impl Plain for $number {})*
    };
}

plain_numbers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

// SAFETY: an array has its elements one behind the other, and nothing else.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of plain values.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    let bytes = size_of_val(values);
    // SAFETY: `Plain` says that each of these bytes belongs to a value, so they are initialised;
    // the slice borrows `values`, which nothing writes meanwhile.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), bytes) }
}

/// The bytes of plain values, to be written.
pub(super) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    let bytes = size_of_val(values);
    // SAFETY: as in `bytes_of`; whatever is written, `Plain` says that it is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes) }
}

/// The value whose bytes are all zero.
pub(super) fn zero<T: Plain>() -> T {
    // SAFETY: `Plain` says that any bytes are a value.
    unsafe { std::mem::zeroed() }
}
