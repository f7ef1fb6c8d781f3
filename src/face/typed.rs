//! Typed buffers: a buffer as elements of plain data, and the views of it that a task has.
#![expect(unsafe_code, reason = "slices of memory whose address the task stores")]

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::{fmt, ptr};

use sealed::{Sealed, View};

use crate::backend::contract::Address;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::size::to_usize;
use crate::base::sync::assert_no_lock_held;
use crate::engine::log::context::NameId;
use crate::engine::stream::core::TaskContext;
use crate::engine::stream::task::{Details, MemoryAccess, OperationKind, catch_panic, panic_cause};
use crate::engine::stream::{Stream, TaskOutcome};
use crate::memory::buffer::order::{enqueue_task, tracked_use};
use crate::memory::buffer::{Buffer, Order, Transfer};
use crate::queue::{Class, Command};
use crate::{DriverError, FailureCause};

/// A [`Buffer`] as elements of a type, made by [`Buffer::typed`].
///
/// Clones and slices are views of one memory, as with buffers. [`TypedBuffer::reads`] and
/// [`TypedBuffer::writes`] give the elements to a task: see
/// [`Stream::enqueue_with`](crate::Stream::enqueue_with).
///
/// ```
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let numbers = runtime.zeros(4 * 4, accelrt::Device::cpu(0))?.typed::<f32>()?;
/// numbers.slice(1..3)?.write_from_slice(&[0.5, 1.5])?;
/// assert_eq!(numbers.read_to_vec()?, [0.0, 0.5, 1.5, 0.0]);
/// # Ok::<(), accelrt::Error>(())
/// ```
pub struct TypedBuffer<T> {
    buffer: Buffer,
    element: PhantomData<fn() -> T>,
}

impl Buffer {
    /// This buffer as elements of a type: a view of the same memory.
    ///
    /// Fails with [`MemoryError::NotElements`] unless the view's bytes are a number of elements at
    /// an address that is aligned for them, and after a release. Memory from
    /// [`Runtime::empty`](crate::Runtime::empty) is aligned to 512 bytes.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.zeros(12, accelrt::Device::cpu(0))?;
    /// assert_eq!(buffer.typed::<u32>()?.len(), 3);
    /// assert!(buffer.typed::<u64>().is_err()); // 12 bytes are one and a half
    /// assert!(buffer.slice(1..5)?.typed::<u32>().is_err()); // not aligned
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn typed<T: Plain>(&self) -> Result<TypedBuffer<T>> {
        const { assert!(size_of::<T>() > 0, "elements of a buffer have bytes") };
        let (address, bytes) = (self.address()?, self.nbytes());
        let (element_bytes, align_bytes) = (size_of::<T>(), align_of::<T>());
        if !bytes.is_multiple_of(element_bytes) || !address.is_multiple_of(align_bytes as u64) {
            let element = type_name::<T>();
            return Err(Error::Memory(MemoryError::NotElements {
                address,
                bytes,
                element,
                element_bytes,
                align_bytes,
            }));
        }
        Ok(TypedBuffer { buffer: self.clone(), element: PhantomData })
    }
}

impl<T: Plain> TypedBuffer<T> {
    /// The same view in bytes.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.nbytes() / size_of::<T>()
    }

    /// True for a view without elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// A view of a range of the elements. Fails as [`Buffer::slice`]; the error's range is in
    /// bytes.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let numbers = runtime.zeros(80, accelrt::Device::cpu(0))?.typed::<u64>()?;
    /// assert_eq!(numbers.slice(2..)?.len(), 8);
    /// assert!(numbers.slice(5..11).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let in_bytes = |index: usize| index.saturating_mul(size_of::<T>());
        let start = match range.start_bound() {
            Bound::Included(first) => in_bytes(*first),
            Bound::Excluded(before) => in_bytes(before.saturating_add(1)),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => in_bytes(last.saturating_add(1)),
            Bound::Excluded(end) => in_bytes(*end),
            Bound::Unbounded => self.buffer.nbytes(),
        };
        let buffer = self.buffer.slice(start..end)?;
        Ok(Self { buffer, element: PhantomData })
    }

    /// The elements as `&[T]` for a task of [`Stream::enqueue_with`](crate::Stream::enqueue_with).
    pub fn reads(&self) -> Reads<T> {
        Reads(self.clone())
    }

    /// The elements as `&mut [T]` for a task of
    /// [`Stream::enqueue_with`](crate::Stream::enqueue_with).
    pub fn writes(&self) -> Writes<T> {
        Writes(self.clone())
    }

    /// Blocks until every recorded use is done; returns a copy of the elements. Waits and fails as
    /// [`Buffer::read_to_vec`].
    pub fn read_to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![zero(); self.len()];
        self.buffer.read_to_slice(bytes_of_mut(&mut elements))?;
        Ok(elements)
    }

    /// Blocks until every recorded use is done; then sets the elements. Waits and fails as
    /// [`Buffer::write_from_slice`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let numbers = runtime.zeros(8, accelrt::Device::cpu(0))?.typed::<i32>()?;
    /// numbers.write_from_slice(&[-1, 1])?;
    /// assert_eq!(numbers.read_to_vec()?, [-1, 1]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn write_from_slice(&self, elements: &[T]) -> Result<()> {
        self.buffer.write_from_slice(bytes_of(elements))
    }
}

impl<T> Clone for TypedBuffer<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), element: PhantomData }
    }
}

impl<T> fmt::Debug for TypedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedBuffer")
            .field("element", &format_args!("{}", type_name::<T>()))
            .field("buffer", &self.buffer)
            .finish()
    }
}

/// A task reads these elements: see [`TypedBuffer::reads`].
#[must_use = "a task has the elements when this is given to `Stream::enqueue_with`"]
pub struct Reads<T>(pub(super) TypedBuffer<T>);

/// A task writes these elements: see [`TypedBuffer::writes`].
#[must_use = "a task has the elements when this is given to `Stream::enqueue_with`"]
pub struct Writes<T>(pub(super) TypedBuffer<T>);

/// The memory of a view, as a task stores it.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct RawView {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) writes: bool,
}

impl RawView {
    fn of(buffer: &Buffer, writes: bool) -> Result<Self> {
        Ok(Self { address: buffer.address()?, bytes: buffer.nbytes(), writes })
    }

    /// True when the views have bytes in common and one of them is written.
    fn conflicts(&self, other: &Self) -> bool {
        let end = |view: &Self| view.address + view.bytes as u64;
        let common = self.address.max(other.address)..end(self).min(end(other));
        (self.writes || other.writes) && !common.is_empty()
    }

    /// The first element, and how many there are.
    fn elements<T: Plain>(self) -> (*mut T, usize) {
        let count = self.bytes / size_of::<T>();
        if count == 0 {
            return (NonNull::dangling().as_ptr(), 0); // an empty buffer has the address 0
        }
        (ptr::with_exposed_provenance_mut(to_usize(self.address)), count)
    }
}

/// Fails when a view that the task writes has bytes in common with another one.
pub(super) fn check_apart(views: &[RawView]) -> Result<()> {
    for (index, first) in views.iter().enumerate() {
        if let Some(second) = views[index + 1..].iter().find(|view| first.conflicts(view)) {
            let [first, second] = [first, second].map(|view| (view.address, view.bytes));
            return Err(Error::Memory(MemoryError::ViewOverlap { first, second }));
        }
    }
    Ok(())
}

/// What the crate alone implements.
pub(super) mod sealed {
    use super::{Buffer, RawView, Result};

    /// Closes [`Uses`](super::Uses).
    pub trait Sealed: 'static {}

    /// One view of a task.
    pub trait View: 'static {
        type Slice<'view>;

        fn buffer(&self) -> &Buffer;
        fn raw(&self) -> Result<RawView>;

        /// # Safety
        /// `raw` came from [`View::raw`] of this type. For `'view` its memory is live, nothing
        /// writes it, and nothing else accesses it if it is a view that is written.
        unsafe fn slice<'view>(raw: RawView) -> Self::Slice<'view>;
    }
}

impl<T: Plain> View for Reads<T> {
    type Slice<'view> = &'view [T];

    fn buffer(&self) -> &Buffer {
        self.0.buffer()
    }

    fn raw(&self) -> Result<RawView> {
        RawView::of(self.buffer(), false)
    }

    unsafe fn slice<'view>(raw: RawView) -> &'view [T] {
        let (first, count) = raw.elements();
        // SAFETY: the caller keeps the memory live and unwritten; `Buffer::typed` has checked that
        // the elements are aligned and fill the bytes, and any bytes are elements.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

impl<T: Plain> View for Writes<T> {
    type Slice<'view> = &'view mut [T];

    fn buffer(&self) -> &Buffer {
        self.0.buffer()
    }

    fn raw(&self) -> Result<RawView> {
        RawView::of(self.buffer(), true)
    }

    unsafe fn slice<'view>(raw: RawView) -> &'view mut [T] {
        let (first, count) = raw.elements();
        // SAFETY: as for `Reads`, and the caller says that nothing else accesses the memory.
        unsafe { std::slice::from_raw_parts_mut(first, count) }
    }
}

/// The views of a task of [`Stream::enqueue_with`](crate::Stream::enqueue_with): a [`Reads`] or
/// [`Writes`], a tuple of up to six, or an array of one kind. The task has the slices in the same
/// form.
///
/// ```
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let (stream, device) = (runtime.current_stream()?, accelrt::Device::cpu(0));
/// let sum = runtime.zeros(4, device)?.typed::<u32>()?;
/// let parts = [1, 2, 3].map(|part: u32| {
///     let buffer = runtime.empty(4, device).unwrap().typed::<u32>().unwrap();
///     buffer.write_from_slice(&[part]).unwrap();
///     buffer
/// });
/// stream.enqueue_with(sum.writes(), |sum| sum[0] = 10)?;
/// stream.enqueue_with(parts.each_ref().map(|part| part.writes()), |parts| {
///     for part in parts {
///         part[0] *= 2;
///     }
/// })?;
/// stream.enqueue_with((parts[0].reads(), parts[2].reads(), sum.writes()), |(a, b, sum)| {
///     sum[0] += a[0] + b[0];
/// })?;
/// assert_eq!(sum.read_to_vec()?, [18]);
/// # Ok::<(), accelrt::Error>(())
/// ```
pub trait Uses: Sealed + Sized {
    /// The slices that the task has.
    type Slices<'view>;

    #[doc(hidden)]
    /// # Safety
    /// For `'view` the memory of the views is live, nothing writes it, and nothing else accesses
    /// what is written. Each of `raw` came from the view at its place.
    unsafe fn slices<'view>(raw: &[RawView]) -> Self::Slices<'view>;

    #[doc(hidden)]
    fn enqueue<F, R>(self, stream: &Stream, function: F) -> Result<Transfer>
    where
        F: for<'view> FnOnce(Self::Slices<'view>) -> R + Send + 'static,
        R: TaskOutcome + 'static;
}

/// Implements [`Uses`] for a tuple of views.
macro_rules! views_of_tuple {
    ($count:literal: $($name:ident $index:tt),+) => {
        impl<$($name: View),+> Sealed for ($($name,)+) {}

        impl<$($name: View),+> Uses for ($($name,)+) {
            type Slices<'view> = ($($name::Slice<'view>,)+);

            unsafe fn slices<'view>(raw: &[RawView]) -> Self::Slices<'view> {
                // SAFETY: the caller upholds the conditions of each view.
                ($(unsafe { $name::slice(raw[$index]) },)+)
            }

            fn enqueue<Function, R>(self, stream: &Stream, function: Function) -> Result<Transfer>
            where
                Function: for<'view> FnOnce(Self::Slices<'view>) -> R + Send + 'static,
                R: TaskOutcome + 'static,
            {
                let raw = [$(self.$index.raw()?),+];
                let buffers: [&Buffer; $count] = [$(self.$index.buffer()),+];
                enqueue::<Self, Function, R, $count>(stream, buffers, raw, function)
            }
        }
    };
}

views_of_tuple!(1: A 0);
views_of_tuple!(2: A 0, B 1);
views_of_tuple!(3: A 0, B 1, C 2);
views_of_tuple!(4: A 0, B 1, C 2, D 3);
views_of_tuple!(5: A 0, B 1, C 2, D 3, E 4);
views_of_tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);

impl<V: View, const N: usize> Sealed for [V; N] {}

impl<V: View, const N: usize> Uses for [V; N] {
    type Slices<'view> = [V::Slice<'view>; N];

    /// # Safety
    /// As [`Uses::slices`].
    unsafe fn slices<'view>(raw: &[RawView]) -> Self::Slices<'view> {
        // SAFETY: the caller upholds the conditions of each view.
        std::array::from_fn(|index| unsafe { V::slice(raw[index]) })
    }

    fn enqueue<F, R>(self, stream: &Stream, function: F) -> Result<Transfer>
    where
        F: for<'view> FnOnce(Self::Slices<'view>) -> R + Send + 'static,
        R: TaskOutcome + 'static,
    {
        let mut raw = [RawView { address: 0, bytes: 0, writes: false }; N];
        for (raw, view) in raw.iter_mut().zip(&self) {
            *raw = view.raw()?;
        }
        enqueue::<Self, F, R, N>(stream, self.each_ref().map(View::buffer), raw, function)
    }
}

/// Implements [`Uses`] for one view alone.
macro_rules! views_of_one {
    ($name:ident, $($slice:tt)+) => {
        impl<T: Plain> Sealed for $name<T> {}

        impl<T: Plain> Uses for $name<T> {
            type Slices<'view> = $($slice)+;

            unsafe fn slices<'view>(raw: &[RawView]) -> Self::Slices<'view> {
                // SAFETY: the caller upholds the conditions of the view.
                unsafe { Self::slice(raw[0]) }
            }

            fn enqueue<F, R>(self, stream: &Stream, function: F) -> Result<Transfer>
            where
                F: for<'view> FnOnce(Self::Slices<'view>) -> R + Send + 'static,
                R: TaskOutcome + 'static,
            {
                enqueue::<Self, F, R, 1>(stream, [self.buffer()], [self.raw()?], function)
            }
        }
    };
}

views_of_one!(Reads, &'view [T]);
views_of_one!(Writes, &'view mut [T]);

impl<T> fmt::Debug for Reads<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reads").field(&self.0).finish()
    }
}

impl<T> fmt::Debug for Writes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writes").field(&self.0).finish()
    }
}

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

/// Checks the views and enqueues the task.
fn enqueue<U, F, R, const N: usize>(
    stream: &Stream,
    buffers: [&Buffer; N],
    raw: [RawView; N],
    function: F,
) -> Result<Transfer>
where
    U: Uses,
    F: for<'view> FnOnce(U::Slices<'view>) -> R + Send + 'static,
    R: TaskOutcome + 'static,
{
    let lifecycle = &stream.core().lifecycle;
    for buffer in buffers {
        lifecycle.check_same_runtime("a buffer", buffer.runtime())?;
        if !buffer.is_host_accessible() {
            let (kind, capability) = (buffer.device().kind(), "access to their memory by the host");
            return Err(Error::Driver(DriverError::Unsupported { kind, capability }));
        }
    }
    check_apart(&raw)?;
    let mut writes = raw.iter().map(|view| view.writes);
    let used = buffers.map(|buffer| tracked_use(buffer, writes.next() == Some(true)));
    let task = ViewTask { function, raw, views: PhantomData::<fn() -> U> };
    enqueue_task(stream, used, Order::BehindConflicts, task)
}

/// A function over views as a command.
struct ViewTask<U, F, const N: usize> {
    function: F,
    raw: [RawView; N],
    views: PhantomData<fn() -> U>,
}

impl<U, F, R, const N: usize> Command<TaskContext> for ViewTask<U, F, N>
where
    U: Uses,
    F: for<'view> FnOnce(U::Slices<'view>) -> R + Send + 'static,
    R: TaskOutcome + 'static,
{
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Call;

    fn details(&self) -> Details {
        let access = |view: &RawView| MemoryAccess {
            address: Address(view.address),
            bytes: Some(view.bytes),
            writes: Some(view.writes),
        };
        Details {
            bytes: self.raw.iter().map(|view| view.bytes).sum(),
            accesses: self.raw.iter().map(access).collect(),
            name: NameId::of_static(type_name::<F>()),
            ..Details::default()
        }
    }

    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        context.is_marker = true; // host accesses and other streams wait for the task
        let Self { function, raw, .. } = self;
        let call = || {
            // SAFETY: the memory must be live, and only this task may access what it writes; the
            // head of this file says why. `enqueue`, the only creator of this task, did that.
            let slices = unsafe { U::slices(&raw) };
            function(slices).into_task_result()
        };
        match catch_panic(call) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => context.fail(FailureCause::Returned(error)),
            Err(panic) => context.fail(panic_cause(panic)),
        }
    }
}
