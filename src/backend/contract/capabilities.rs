//! The optional parts of the contract: the traits [`Kernels`] and [`VirtualMemory`].
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::backend::contract::handles::{
    Address, KernelHandle, PhysicalHandle, ProgramHandle, StreamHandle,
};
use crate::base::error::Result;

/// The input of [`Kernels::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramSource<'a> {
    /// Text in the kind's language: OpenCL C.
    Text(&'a str),
    /// A portable binary: SPIR-V.
    Binary(&'a [u8]),
}

/// A parameter of a kernel, as the program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParameter {
    /// The parameter's name; empty if the program has no names.
    pub name: String,
    /// The parameter's type in the program's language; empty if the program has no type names.
    pub type_name: String,
    /// Which arguments of a launch this parameter accepts.
    pub class: ParameterClass,
}

/// The arguments that a kernel parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterClass {
    /// Memory that the device can access.
    Pointer,
    /// Memory of each work-group, of a size that the launch sets.
    Local,
    /// A signed integer of this many bytes.
    Signed(u8),
    /// An unsigned integer of this many bytes.
    Unsigned(u8),
    /// A floating-point number of this many bytes.
    Float(u8),
    /// Undeclared, or a type without a counterpart in this crate. The driver checks the argument.
    Unknown,
}

/// An argument of [`Kernels::launch`], which must fit the parameter's [`ParameterClass`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaunchArgument {
    /// An address that the device can access.
    Memory(Address),
    /// A number or structure, passed by value.
    Value(ValueBytes),
    /// Memory of each work-group, of this many bytes.
    Local(usize),
}

/// A kernel argument of 1 to 16 bytes, passed by value: the bytes as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBytes {
    bytes: [u8; Self::MOST],
    count: u8,
}

impl ValueBytes {
    /// Largest size in bytes; pass larger values as [`LaunchArgument::Memory`].
    pub const MOST: usize = 16;

    /// Copies `value`. `None` if it is empty or larger than [`Self::MOST`].
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        let count = u8::try_from(value.len()).ok().filter(|count| *count > 0)?;
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes, count })
    }

    /// The value, from 1 to [`Self::MOST`] bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// The number of work-items of a launch, in one to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// Work-items in each dimension; 1 in the unused ones.
    pub global: [usize; 3],
    /// Work-items of a work-group in each dimension; with `None`, the driver chooses.
    pub local: Option<[usize; 3]>,
    /// Dimensions in use, from 1 to 3.
    pub dimensions: u32,
}

/// Compiles programs for a device and launches their kernels. A kernel may be released before its
/// launches are done, and a program before its kernels.
///
/// # Safety
/// As for [`Backend`](super::Backend). An implementation's launch runs only the kernel that it is
/// given, with only the arguments that it is given. Methods that are not `unsafe` are sound with
/// every argument.
pub unsafe trait Kernels: Send + Sync {
    /// Compiles a program for a device; blocks. `options` are in the compiler's own syntax.
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle>;

    /// Lists every kernel that the program defines.
    ///
    /// # Safety
    /// The program is live, as the [contract](super) defines it.
    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>>;

    /// Looks a kernel up by its name, one of [`Self::kernel_names`].
    ///
    /// # Safety
    /// The program is live.
    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle>;

    /// Describes a kernel's parameters, in the order of their declaration.
    ///
    /// # Safety
    /// The kernel is live.
    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>>;

    /// Runs a kernel in stream order. Several threads may launch one kernel concurrently.
    ///
    /// # Safety
    /// Kernel and stream are live and of one device. The arguments have the number and the classes
    /// of the kernel's parameters. The kernel's accesses are sound: its memory is valid for the
    /// task, and memory that it writes is exclusive to the task.
    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()>;

    /// Releases a kernel. Its launches may still be in progress.
    ///
    /// # Safety
    /// The kernel is live; the call ends its life.
    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()>;

    /// Releases a program. Its kernels remain live.
    ///
    /// # Safety
    /// The program is live; the call ends its life.
    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()>;
}

/// Places for pages of one size: each number is that of a page behind the base.
#[derive(Clone, Copy, Debug)]
pub struct PagePlaces<'a> {
    /// The address of page 0.
    pub base: Address,
    /// The size of each page.
    pub page_bytes: usize,
    /// The pages, in any order.
    pub numbers: &'a [usize],
}

impl PagePlaces<'_> {
    /// The address of each page.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        let Self { base, page_bytes, numbers } = *self;
        numbers.iter().map(move |number| base.offset(number * page_bytes))
    }
}

/// Reserves address ranges, and maps, moves and unmaps pages in them. All sizes and addresses are
/// multiples of the granularity. Calls act at once, not in stream order: the caller ensures that
/// every access to the pages is complete.
///
/// # Safety
/// As [`Backend`](crate::backend::contract::Backend): ranges and physical memory have no other
/// owner, and mapped pages are accessible until they are unmapped. Methods that are not `unsafe`
/// are sound with every argument.
pub unsafe trait VirtualMemory: Send + Sync {
    /// Unit of all sizes and addresses in this trait.
    fn granularity_bytes(&self) -> usize;

    /// Reserves addresses without memory. Fails with `OutOfMemory` if no such range is free.
    fn reserve(&self, bytes: usize) -> Result<Address>;

    /// Releases the addresses of a whole reserved range.
    ///
    /// # Safety
    /// `reserve` returned the range for these `bytes`, and the range was not released since. No
    /// memory is mapped in it. No task or thread uses its addresses, now or later.
    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()>;

    /// Allocates physical memory, not mapped yet. It counts against the device's capacity.
    fn create(&self, bytes: usize) -> Result<PhysicalHandle>;

    /// Maps physical memory at an address inside a reserved range, with access for the device.
    ///
    /// # Safety
    /// The handle is live and not mapped. The destination is inside reserved ranges, and nothing is
    /// mapped there.
    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()>;

    /// Unmaps physical memory. The memory keeps its contents.
    ///
    /// # Safety
    /// The handle is live and mapped. No task or thread uses its pages.
    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()>;

    /// Moves mapped physical memory, with its contents, to another address inside reserved ranges.
    ///
    /// # Safety
    /// The handle is live and mapped. The destination is inside reserved ranges, and nothing else
    /// is mapped there. No task or thread uses the pages.
    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()>;

    /// Creates a piece of physical memory for each place and maps it there; adds their handles to
    /// `mapped`. Ends at the first that is refused, of which nothing is left; those before it stay.
    /// A device for which one call is cheaper than many has a method of its own.
    ///
    /// # Safety
    /// The places are inside reserved ranges, and nothing is mapped there.
    unsafe fn create_mapped(
        &self,
        places: PagePlaces<'_>,
        mapped: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        for to in places.addresses() {
            let physical = self.create(places.page_bytes)?;
            // SAFETY: it was just created; the caller upholds the rest.
            let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { self.map(to, physical) }));
            if !matches!(outcome, Ok(Ok(()))) {
                // SAFETY: it is live. The device keeps memory whose release it refuses.
                _ = unsafe { self.release(physical) };
            }
            outcome.unwrap_or_else(|panic| resume_unwind(panic))?;
            mapped.push(physical);
        }
        Ok(())
    }

    /// Relocates mapped physical memory, each piece to the place of its turn; adds what was moved
    /// to `relocated`. Ends at the first that is refused. See [`VirtualMemory::create_mapped`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::relocate`], for each piece.
    unsafe fn relocate_all(
        &self,
        pieces: &[PhysicalHandle],
        places: PagePlaces<'_>,
        relocated: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        for (physical, to) in pieces.iter().zip(places.addresses()) {
            // SAFETY: as the caller promises.
            unsafe { self.relocate(*physical, to) }?;
            relocated.push(*physical);
        }
        Ok(())
    }

    /// Frees physical memory. It must be unmapped; only a failed `unmap` may leave it mapped.
    ///
    /// # Safety
    /// The handle is live; the call ends its life.
    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()>;
}
