//! The recorder: tells the log what an allocator does, and knows what its blocks are for.
//!
//! It is part of the ledger: under its lock, times ascend as what they are the times of. While it
//! is on, requests and frees take the slow path, where they are recorded, and use thread caches
//! there. A change and its record are made in one hold of the lock, or in one stay in the thread's
//! cache where the block has no context: a snapshot excludes both. A block whose request had a tag
//! is known also while the recorder is off.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use crate::base::device::Device;
use crate::base::shortage::MemoryUser;
use crate::base::size::to_usize;
use crate::engine::log::collector::now;
use crate::engine::log::context::{AllocationContext, NameId, StackId};
use crate::engine::log::process;
use crate::engine::log::record::{MemoryAction, MemoryRecord};
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::stats::Stat;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// `None` while it is off.
    recorded: Option<Recorded>,
    /// Blocks whose requests had a context, by address, until their frees are complete.
    known: HashMap<u64, KnownBlock>,
    tags: BTreeMap<NameId, Stat>,
}

/// What the records are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) device: Device,
    /// The runtime, by the number that records have.
    pub(crate) runtime: u32,
}

/// A block, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBlock {
    /// The tag and the call stack of its request.
    pub context: AllocationContext,
    /// The key of its home stream.
    pub stream: u64,
    /// Its size in bytes.
    pub bytes: usize,
    pub(crate) requested_bytes: usize,
    /// True when it was freed, and streams still use it.
    pub is_freed: bool,
}

/// A block, segment or range of pages of which something is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) stream: u64,
    pub(super) pool: PoolId,
}

impl Place {
    /// The block that a request got.
    pub(super) fn of_block(block: &Allocated, request: &Request) -> Self {
        let Request { stream, pool, .. } = *request;
        Self { address: block.address(), bytes: block.bytes(), stream, pool }
    }
}

thread_local! {
    /// True when this thread has got memory from the device for the request that it makes.
    static HAS_GROWN: Cell<bool> = const { Cell::new(false) };
}

impl Recorded {
    /// Tells the log. Of a block that the recorder does not know this needs no lock, while the
    /// thread alone has it: so times ascend in the order in which memory changes hands.
    #[inline]
    pub(super) fn tell(
        self,
        action: MemoryAction,
        place: &Place,
        requested_bytes: usize,
        context: AllocationContext,
    ) {
        let Self { device, runtime } = self;
        let Place { address, bytes, stream: stream_id, pool } = *place;
        #[expect(clippy::cast_possible_truncation, reason = "four billion pools later")]
        let pool = pool.1 as u32;
        let time = now();
        let record = MemoryRecord {
            action,
            device,
            runtime,
            stream_id,
            pool,
            address,
            requested_bytes,
            bytes,
            context,
            time,
        };
        process::write(&record.to_log());
    }
}

impl Recorder {
    /// Turns it on, or off.
    pub(super) fn switch(&mut self, recorded: Option<Recorded>) {
        self.recorded = recorded;
    }

    pub(super) fn is_on(&self) -> bool {
        self.recorded.is_some()
    }

    /// True when a free concerns nothing here.
    pub(super) fn is_idle(&self) -> bool {
        self.recorded.is_none() && self.known.is_empty()
    }

    /// What the block at an address is for.
    pub(super) fn known(&self) -> impl Iterator<Item = (u64, KnownBlock)> {
        self.known.iter().map(|(address, block)| (*address, *block))
    }

    /// The bytes of each tag's blocks. Requests are no longer counted once they are freed.
    pub(super) fn tags(&self) -> impl Iterator<Item = (NameId, Stat)> {
        self.tags.iter().map(|(tag, stat)| (*tag, *stat))
    }

    /// What has the most bytes in use, the largest first. `part_of` leaves of each block's context
    /// what blocks are told apart by.
    pub(super) fn largest_users(
        &self,
        most: usize,
        part_of: impl Fn(AllocationContext) -> AllocationContext,
    ) -> Vec<MemoryUser> {
        let mut users: BTreeMap<AllocationContext, (usize, usize)> = BTreeMap::new();
        for block in self.known.values().filter(|block| !block.is_freed) {
            let (bytes, count) = users.entry(part_of(block.context)).or_default();
            (*bytes, *count) = (*bytes + block.bytes, *count + 1);
        }
        users.remove(&AllocationContext::NONE);
        let mut users: Vec<_> = users.into_iter().collect();
        users.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
        users.truncate(most);
        let user = |(part, (bytes, count)): (AllocationContext, _)| MemoryUser {
            tag: part.tag.text(),
            stack: part.stack.0,
            bytes,
            count,
        };
        users.into_iter().map(user).collect()
    }

    pub(super) fn reset_peaks(&mut self) {
        self.tags.values_mut().for_each(Stat::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.tags.values_mut().for_each(Stat::reset_accumulated);
    }

    /// This thread begins a request.
    pub(super) fn begin_request() {
        HAS_GROWN.set(false);
    }

    /// How the request of this thread was served.
    #[inline]
    pub(super) fn served() -> MemoryAction {
        if HAS_GROWN.get() { MemoryAction::Miss } else { MemoryAction::Hit }
    }

    /// Notes that a request of this thread was served, in the hold of the lock that served it.
    #[inline]
    pub(super) fn note_block(&mut self, request: &Request, block: &mut Allocated) {
        if (self.is_on() || AllocationContext::has_tag())
            && self.note_served(&Place::of_block(block, request), request.bytes)
        {
            block.set_noted();
        }
    }

    /// A request of this thread was served. True when the block has become a known one, so that its
    /// free has to be noted.
    #[cold]
    pub(super) fn note_served(&mut self, place: &Place, requested_bytes: usize) -> bool {
        let Place { address, bytes, stream, .. } = *place;
        let mut context = AllocationContext::current();
        if !self.is_on() {
            context.stack = StackId::NONE; // left from a recording
        }
        self.write(Self::served(), place, requested_bytes, context);
        if context == AllocationContext::NONE {
            return false;
        }
        if context.tag != NameId::NONE {
            self.tags.entry(context.tag).or_default().increase(bytes as u64);
        }
        let is_freed = false;
        let block = KnownBlock { context, stream, bytes, requested_bytes, is_freed };
        self.known.insert(address, block);
        true
    }

    /// The program frees a block.
    pub(super) fn note_freed(&mut self, place: &Place, requested_bytes: usize) {
        let known = self.known.get_mut(&place.address);
        let tag = known.as_ref().map_or(NameId::NONE, |block| block.context.tag);
        if let Some(block) = known {
            block.is_freed = true;
            if let Some(stat) = self.tags.get_mut(&tag) {
                stat.decrease(block.bytes as u64);
            }
        }
        let context = AllocationContext { tag, ..AllocationContext::current() };
        self.write(MemoryAction::FreeRequested, place, requested_bytes, context);
    }

    /// The program frees a block that no stream uses.
    pub(super) fn note_freed_at_once(&mut self, place: &Place, requested_bytes: usize) {
        let known = self.known.remove(&place.address);
        let tag = known.map_or(NameId::NONE, |block| block.context.tag);
        if let (Some(block), Some(stat)) = (known, self.tags.get_mut(&tag)) {
            stat.decrease(block.bytes as u64);
        }
        let context = AllocationContext { tag, ..AllocationContext::current() };
        self.write(MemoryAction::Freed, place, requested_bytes, context);
    }

    /// No stream uses a freed block any more.
    pub(super) fn note_completed(&mut self, place: &Place, requested_bytes: usize) {
        let known = self.known.remove(&place.address);
        let tag = known.map_or(NameId::NONE, |block| block.context.tag);
        let context = AllocationContext { tag, stack: StackId::NONE };
        self.write(MemoryAction::FreeCompleted, place, requested_bytes, context);
    }

    /// A segment or pages came from the device, went there or changed their place.
    pub(super) fn note_moved(&mut self, action: MemoryAction, place: &Place) {
        HAS_GROWN.set(true);
        self.write(action, place, place.bytes, AllocationContext::current());
    }

    /// A request of this thread failed.
    pub(super) fn note_refused(&mut self, requested_bytes: usize, free_bytes: usize) {
        let (stream, pool) = (0, PoolId::DEFAULT);
        let place = Place { address: free_bytes as u64, bytes: requested_bytes, stream, pool };
        let context = AllocationContext::current();
        self.write(MemoryAction::OutOfMemory, &place, requested_bytes, context);
    }

    /// Records a snapshot. Its number stands where other records have the size of the block.
    pub(super) fn note_snapshot(&mut self, number: u64) {
        let bytes = to_usize(number);
        let place = Place { address: 0, bytes, stream: 0, pool: PoolId::DEFAULT };
        self.write(MemoryAction::Snapshot, &place, 0, AllocationContext::NONE);
    }

    fn write(
        &self,
        action: MemoryAction,
        place: &Place,
        requested_bytes: usize,
        context: AllocationContext,
    ) {
        if let Some(recorded) = self.recorded {
            recorded.tell(action, place, requested_bytes, context);
        }
    }
}
