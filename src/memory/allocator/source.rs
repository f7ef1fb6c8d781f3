//! The source of an allocator's memory: one device of a backend, or the host.
//!
//! This file relies on the allocator's accounts for the contract's pre-conditions: each segment,
//! page and range taken from here is noted once. Before it goes back, it leaves the free memory and
//! the lookup by address, and every recorded use of it is done; on its way it belongs to one
//! thread. `invariants` asserts the accounts, and the null kind panics at calls that break them.
#![expect(unsafe_code, reason = "gives memory back and moves pages, as the accounts say")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::backend::contract::{
    Address, Backend, MemoryInfo, PagePlaces, PhysicalHandle, VirtualMemory,
};
use crate::base::config::AllocatorConfig;
use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::order_watch::{self, Told};
use crate::memory::allocator::host::Meter;
use crate::memory::allocator::torch_blocks::BlockId;

/// A part that goes back to a device in one call.
#[derive(Debug)]
pub(super) enum Part {
    /// A segment, and its size.
    Segment(Address, usize),
    /// Mapped pages.
    Pages(Vec<PhysicalHandle>),
    /// An address range without pages, and its size.
    Addresses(Address, usize),
}

/// A part on its way to the device (`departure`).
#[derive(Debug)]
pub(super) struct ReleaseBatch {
    pub(super) part: Part,
    /// The bytes that count against the limit until the device has the part.
    pub(super) bytes: usize,
    /// The block of an expandable segment whose pages go back.
    pub(super) block: Option<BlockId>,
}

/// The device or host that an allocator takes segments from. Every method calls the backend, and no
/// caller holds a lock.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) backend: Arc<dyn Backend>,
    /// The device; for host memory the device that errors name.
    pub(super) device: Device,
    /// The meter of host memory; `None` for a device's.
    pub(super) host: Option<Meter>,
    /// True for device memory that the host can access.
    pub(super) is_shared: bool,
}

impl Source {
    pub(super) fn allocate(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let Some(host) = &self.host else {
            let index = self.device.index();
            return if self.is_shared {
                self.backend.allocate_shared(index, bytes, align_bytes)
            } else {
                self.backend.allocate(index, bytes, align_bytes)
            };
        };
        let started = Instant::now();
        let given = self.backend.allocate_host(bytes, align_bytes);
        match &given {
            Ok(_) => host.took(bytes, started.elapsed()),
            Err(refusal) => host.was_refused(refusal),
        }
        given
    }

    /// Gives a part back. What the device refuses stays with it. After a panic the rest goes back
    /// too; returns the first panic.
    pub(super) fn give_back(&self, part: Part) -> thread::Result<()> {
        if let Part::Segment(base, bytes) | Part::Addresses(base, bytes) = part
            && order_watch::is_on()
        {
            order_watch::tell(Told::Departure(base.0, bytes)); // before others can have the place
        }
        let pages = || self.virtual_memory().expect("it has given these pages and addresses");
        match part {
            Part::Segment(base, _) => try_each([base], |base| _ = self.release(base)),
            Part::Pages(handles) => try_each(handles, |handle| pages().drop_page(handle)),
            Part::Addresses(base, bytes) => try_each([base], |it| _ = pages().unreserve(it, bytes)),
        }
    }

    fn release(&self, address: Address) -> Result<()> {
        let Some(host) = &self.host else {
            // SAFETY: taken from `allocate` and given back once, unused: see the head of this file.
            return unsafe { self.backend.release(self.device.index(), address) };
        };
        let started = Instant::now();
        // SAFETY: as for a device's.
        let released = unsafe { self.backend.release_host(address) };
        host.gave_back(started.elapsed());
        released
    }

    pub(super) fn virtual_memory(&self) -> Option<DevicePages<'_>> {
        let has_pages = self.host.is_none() && !self.is_shared;
        let memory = has_pages.then(|| self.backend.virtual_memory(self.device.index()));
        memory.flatten().map(DevicePages)
    }

    /// The current free and total bytes. Where the backend does not count host memory, the numbers
    /// of the last refusal.
    pub(super) fn memory_info(&self) -> Result<MemoryInfo> {
        match &self.host {
            Some(host) => Ok(self.backend.host_memory_info().unwrap_or_else(|| host.memory_info())),
            None => self.backend.memory_info(self.device.index()),
        }
    }

    /// Returns the settings that apply: segments do not expand without virtual memory.
    pub(super) fn in_force(&self, mut config: AllocatorConfig) -> AllocatorConfig {
        config.expandable_segments &= self.virtual_memory().is_some();
        config
    }
}

/// The virtual memory of a device: the methods of [`VirtualMemory`] for its one allocator.
#[derive(Clone, Copy)]
pub(super) struct DevicePages<'a>(&'a dyn VirtualMemory);

impl DevicePages<'_> {
    pub(super) fn granularity_bytes(self) -> usize {
        self.0.granularity_bytes()
    }

    pub(super) fn reserve(self, bytes: usize) -> Result<Address> {
        self.0.reserve(bytes)
    }

    pub(super) fn unreserve(self, range: Address, bytes: usize) -> Result<()> {
        // SAFETY: a whole range from `reserve`, given back once, without a page.
        unsafe { self.0.unreserve(range, bytes) }
    }

    pub(super) fn create(self, bytes: usize) -> Result<PhysicalHandle> {
        self.0.create(bytes)
    }

    pub(super) fn map(self, to: Address, physical: PhysicalHandle) -> Result<()> {
        // SAFETY: a page from `create` that is mapped nowhere; a place in a range from `reserve`
        // that is noted as without one, and on its way to this one.
        unsafe { self.0.map(to, physical) }
    }

    fn unmap(self, physical: PhysicalHandle) -> Result<()> {
        // SAFETY: a mapped page, on its way back, of which every use is done.
        unsafe { self.0.unmap(physical) }
    }

    /// Lists new pages in `mapped`; ends at the first that is refused.
    pub(super) fn create_mapped(
        self,
        places: PagePlaces<'_>,
        mapped: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        // SAFETY: places as for `map`.
        unsafe { self.0.create_mapped(places, mapped) }
    }

    /// Moves pages and lists them in `relocated`; ends at the first that is refused.
    pub(super) fn relocate_all(
        self,
        pages: &[PhysicalHandle],
        places: PagePlaces<'_>,
        relocated: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        // SAFETY: as for `unmap`, to places as for `map`.
        unsafe { self.0.relocate_all(pages, places, relocated) }
    }

    /// Gives a mapped page back, even if unmapping fails. What is refused stays with the device.
    pub(super) fn drop_page(self, handle: PhysicalHandle) {
        let outcome = try_each([Self::unmap, Self::release], |call| _ = call(self, handle));
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }

    pub(super) fn release(self, physical: PhysicalHandle) -> Result<()> {
        // SAFETY: a page from `create`, given back once.
        unsafe { self.0.release(physical) }
    }
}

/// Acts on each item, also after a panic. Returns the first panic.
pub(super) fn try_each<T>(
    items: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T),
) -> thread::Result<()> {
    let attempts = items.into_iter().map(|item| catch_unwind(AssertUnwindSafe(|| act(item))));
    attempts.fold(Ok(()), thread::Result::and)
}
