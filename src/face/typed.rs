//! Typed buffers: a buffer as elements of plain data.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::base::error::{Error, MemoryError, Result};
use crate::face::plain::{Plain, bytes_of, bytes_of_mut, zero};
use crate::face::views::{Reads, Writes};
use crate::memory::buffer::Buffer;

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
            let element = std::any::type_name::<T>();
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
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("buffer", &self.buffer)
            .finish()
    }
}
