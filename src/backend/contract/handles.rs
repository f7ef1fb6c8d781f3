//! Addresses, and the numbers that a backend gives its streams, marks, programs and memory.

/// The number that a backend gave a stream. A copy of the number does not keep the stream alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u64);

/// A place in a stream. The device reaches the mark after all earlier work of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub u64);

/// An address in the device's address space. Only code that knows the kind may dereference it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// Adds `bytes` bytes to this address.
    ///
    /// # Panics
    /// When the sum overflows. Callers check sizes first, so an overflow is a defect of this crate.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0.checked_add(bytes as u64).expect("an address inside an allocation"))
    }
}

/// The number that [`Kernels::compile`](crate::backend::contract::Kernels::compile) gave a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramHandle(pub u64);

/// The number that [`Kernels::kernel`](crate::backend::contract::Kernels::kernel) gave a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelHandle(pub u64);

/// The number that [`VirtualMemory::create`] gave a piece of physical memory.
///
/// [`VirtualMemory::create`]: crate::backend::contract::VirtualMemory::create
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);
