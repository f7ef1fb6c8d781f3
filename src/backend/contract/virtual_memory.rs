//! Virtual memory of a device: an optional part of the contract, to map and move pages.
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::backend::contract::Address;
use crate::base::error::Result;

/// The number that [`VirtualMemory::create`] gave a piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);

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
