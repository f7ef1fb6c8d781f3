//! Pages of a device that are mapped and moved: the part of the contract for devices with them.
#![expect(unsafe_code, reason = "what takes a handle or an address asks for promises")]

use crate::backend::contract::Address;
use crate::base::error::Result;

/// Physical memory made by [`VirtualMemory::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);

/// Address ranges with pages that can be mapped, unmapped and moved. All sizes and addresses are
/// multiples of the granularity. Mapping acts at once, not in stream order: the caller knows that
/// every use of the pages is done.
///
/// # Safety
/// As [`Backend`](crate::backend::contract::Backend): ranges and physical memory have no other
/// owner, and mapped pages hold memory for as long as they are mapped. Methods that are not
/// `unsafe` are sound with every argument.
pub unsafe trait VirtualMemory: Send + Sync {
    /// Size of one page of this capability.
    fn granularity_bytes(&self) -> usize;

    /// Reserves addresses without memory behind them. `OutOfMemory` when the process has too few.
    fn reserve(&self, bytes: usize) -> Result<Address>;

    /// Gives a reserved range back; nothing is mapped in it.
    ///
    /// # Safety
    /// The range is one that `reserve` returned, whole, and was not given back since. Nothing is
    /// mapped in it, and nothing uses its addresses, now or later.
    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()>;

    /// Makes physical memory, counted against the device's capacity.
    fn create(&self, bytes: usize) -> Result<PhysicalHandle>;

    /// Puts physical memory at an address inside a reserved range, with access for the device.
    ///
    /// # Safety
    /// The handle is live and not mapped. The place is inside of reserved ranges, and nothing is
    /// mapped there.
    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()>;

    /// Takes it out again; the physical memory stays, with its contents.
    ///
    /// # Safety
    /// The handle is live and mapped. No task or thread uses its pages.
    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()>;

    /// Moves mapped physical memory to another place inside reserved ranges, contents included.
    ///
    /// # Safety
    /// The handle is live and mapped; the place is inside of reserved ranges, and nothing else is
    /// mapped there. No task or thread uses the pages.
    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()>;

    /// Gives physical memory back; it is not mapped, unless its `unmap` was refused.
    ///
    /// # Safety
    /// The handle is live, and this ends it.
    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()>;
}
