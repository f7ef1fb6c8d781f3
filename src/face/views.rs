//! Views: the slices that a task has of buffers, and whether it writes them.
#![expect(unsafe_code, reason = "slices of memory whose address the task stores")]

use std::fmt;
use std::ptr::{self, NonNull};

use crate::base::error::{Error, MemoryError, Result};
use crate::base::size::to_usize;
use crate::engine::stream::Stream;
use crate::engine::stream::TaskOutcome;
use crate::face::enqueue_with::enqueue;
use crate::face::plain::Plain;
use crate::face::typed::TypedBuffer;
use crate::memory::buffer::{Buffer, Transfer};

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

use sealed::{Sealed, View};

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
