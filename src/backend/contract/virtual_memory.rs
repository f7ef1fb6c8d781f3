//! Virtual memory of a device: the contract's optional part for pages that are mapped and moved.
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use crate::backend::contract::Address;
use crate::base::error::Result;

/// Physical memory of [`VirtualMemory::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);

/// Reserved address ranges, and pages that can be mapped into them, unmapped and moved. All sizes
/// and addresses are multiples of the granularity. Mapping acts at once, not in stream order: the
/// caller ensures that every access to the pages is complete.
///
/// # Safety
/// As [`Backend`](crate::backend::contract::Backend): ranges and physical memory have no other
/// owner, and mapped pages are accessible until they are unmapped. Methods that are not `unsafe`
/// are sound with every argument.
pub unsafe trait VirtualMemory: Send + Sync {
    /// Size of one page.
    fn granularity_bytes(&self) -> usize;

    /// Reserves addresses without memory. `OutOfMemory` if the address space has too few.
    fn reserve(&self, bytes: usize) -> Result<Address>;

    /// Releases a reserved range; nothing is mapped in it.
    ///
    /// # Safety
    /// The range is a whole one of `reserve` and was not released since. Nothing is mapped in it,
    /// and nothing uses its addresses, now or later.
    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()>;

    /// Allocates physical memory, counted against the device's capacity.
    fn create(&self, bytes: usize) -> Result<PhysicalHandle>;

    /// Maps physical memory at an address inside a reserved range, with access for the device.
    ///
    /// # Safety
    /// The handle is live and not mapped. The destination is inside reserved ranges, and nothing is
    /// mapped there.
    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()>;

    /// Unmaps physical memory, which keeps its contents.
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

    /// Frees physical memory; it is not mapped, unless its `unmap` was refused.
    ///
    /// # Safety
    /// The handle is live; the call ends its life.
    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()>;
}
