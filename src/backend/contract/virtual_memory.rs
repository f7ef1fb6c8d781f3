//! Virtual memory of a device: an optional part of the contract, to map and move pages.
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use crate::backend::contract::Address;
use crate::base::error::Result;

/// The number that [`VirtualMemory::create`] gave a piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);

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

    /// Frees physical memory. It must be unmapped; only a failed `unmap` may leave it mapped.
    ///
    /// # Safety
    /// The handle is live; the call ends its life.
    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()>;
}
