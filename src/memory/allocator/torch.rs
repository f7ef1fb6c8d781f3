//! The engine of policy `torch`, of pinned memory and of restored snapshots: blocks and segments.
//!
//! Requests that need the device proceed in steps, unlocked in between (`growth`, `departure`).
//!
//! Equations, at rest and per class: `reserved_bytes` is the size of all segments and mapped pages,
//! `allocation` counts the allocated blocks, `active` those and the blocks that await their free,
//! and the blocks of a segment tile it. `invariants` checks them.

use crate::base::size::to_usize;
use crate::memory::allocator::allocated::{Allocated, Handouts};
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::pending::UsePoint;
use crate::memory::allocator::policy::{Candidate, LEAST_BLOCK_BYTES};
use crate::memory::allocator::request::Request;
use crate::memory::allocator::torch_blocks::{
    Block, BlockId, Blocks, Homes, Indices, Owner, PageMap, Segments, State,
};

/// The largest size and alignment of a request with a plan: one exbibyte.
pub(super) const MOST_BYTES: usize = 1 << 60;

/// The alignment of host memory from backends.
const HOST_ALIGN_BYTES: usize = 64;

/// A request with the sizes that the policy gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) requested_bytes: usize,
    /// The requested size, rounded.
    pub(super) bytes: usize,
    /// The least size of a free block that suffices at any address.
    pub(super) search_bytes: usize,
    pub(super) align_bytes: usize,
    pub(super) owner: Owner,
}

impl Plan {
    /// Plans a request. `None` above [`MOST_BYTES`].
    pub(super) fn of(request: &Request, ledger: &Ledger) -> Option<Self> {
        debug_assert!(request.check().is_ok(), "checked before: {request:?}");
        let is_possible = request.bytes <= MOST_BYTES && request.align_bytes <= MOST_BYTES;
        let policy = is_possible.then(|| ledger.policy())?;
        let bytes = policy.round(request.bytes);
        let least_align_bytes = if ledger.is_host() { HOST_ALIGN_BYTES } else { LEAST_BLOCK_BYTES };
        let align_bytes = request.align_bytes.max(least_align_bytes);
        let search_bytes = bytes + align_bytes - least_align_bytes;
        let class = policy.class(bytes);
        let owner = Owner { stream: request.stream, class, pool: request.pool };
        Some(Self { requested_bytes: request.bytes, bytes, search_bytes, align_bytes, owner })
    }

    pub(super) fn request(&self) -> Request {
        let Self { requested_bytes: bytes, align_bytes, owner, .. } = *self;
        Request { bytes, stream: owner.stream, pool: owner.pool, align_bytes }
    }
}

#[derive(Debug, Default)]
pub(super) struct Torch {
    pub(super) blocks: Blocks,
    pub(super) segments: Segments,
    pub(super) map: PageMap,
    pub(super) indices: Indices,
    pub(super) homes: Homes,
    /// True when a snapshot chose a segment's address, which the device may return again.
    pub(super) has_chosen_addresses: bool,
    /// Recorded addresses and sizes of the segments that come next, in a replay.
    pub(super) announced: Vec<(u64, usize)>,
    pub(super) handouts: Handouts,
    pub(super) frees: u64,
}

impl Torch {
    /// Takes a free block for a request out of its index. `None` when the policy chooses none.
    pub(super) fn find(&mut self, ledger: &Ledger, plan: &Plan) -> Option<BlockId> {
        let Owner { stream, class, pool } = plan.owner;
        if ledger.is_collecting() {
            self.indices.count_search(pool, class);
        }
        let large_enough = self.indices.of(pool, class).of_size(stream, plan.bytes);
        let fitting = large_enough.filter(|id| self.has_room(*id, plan));
        let chosen = ledger.policy().choose(plan.bytes, &mut fitting.map(|id| self.candidate(id)));
        let id = chosen?;
        self.take_free(id);
        Some(id)
    }

    fn has_room(&self, id: BlockId, plan: &Plan) -> bool {
        let block = &self.blocks[id];
        let aligned = block.address.checked_next_multiple_of(plan.align_bytes as u64);
        let end = aligned.and_then(|aligned| aligned.checked_add(plan.bytes as u64));
        end.is_some_and(|end| end <= block.end())
    }

    /// Returns the size of a new segment, with room to align the block unless the device aligns it.
    pub(super) fn segment_bytes(&self, ledger: &Ledger, plan: &Plan) -> usize {
        let is_aligned =
            !ledger.is_host() && !self.has_chosen_addresses && self.announced.is_empty();
        let bytes = if is_aligned { plan.bytes } else { plan.search_bytes };
        ledger.policy().segment_bytes(bytes)
    }

    fn candidate(&self, id: BlockId) -> Candidate {
        let block = &self.blocks[id];
        let next = block.next.map(|next| &self.blocks[next]);
        let unmapped = next.filter(|next| next.state == State::Unmapped);
        Candidate {
            id,
            bytes: block.bytes,
            is_expandable: self.is_expandable(id),
            room_bytes: block.bytes + unmapped.map_or(0, |next| next.bytes),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.iter().next().is_none()
    }

    pub(super) fn is_expandable(&self, id: BlockId) -> bool {
        self.segments[self.blocks[id].segment].is_expandable()
    }

    pub(super) fn owner_of(&self, id: BlockId) -> Owner {
        self.segments[self.blocks[id].segment].owner
    }

    /// Takes a free block out of its index: the calling thread owns it.
    pub(super) fn take_free(&mut self, id: BlockId) {
        let Owner { stream, class, pool } = self.owner_of(id);
        let block = &mut self.blocks[id];
        debug_assert_eq!(block.state, State::Free, "{block:?}");
        block.state = State::InFlight;
        self.indices.of_mut(pool, class).remove(stream, &self.blocks[id]);
    }

    /// Frees a block that a thread owns: puts it into its pool's index.
    pub(super) fn put_in(&mut self, id: BlockId) {
        let Owner { stream, class, pool } = self.owner_of(id);
        let index = self.indices.of_mut(pool, class);
        let block = &mut self.blocks[id];
        block.state = State::Free;
        block.freed_at_search = index.searches;
        index.insert(stream, id, block);
    }

    /// Splits the first `bytes` off a block, and updates the page map. Returns the new block.
    pub(super) fn split_head(&mut self, id: BlockId, bytes: usize) -> BlockId {
        let front = self.blocks.split_head(id, bytes);
        self.map.insert(self.blocks[front].address, front);
        self.map.insert(self.blocks[id].address, id);
        let segment = self.blocks[id].segment;
        if self.segments[segment].first == id {
            self.segments[segment].first = front;
        }
        front
    }

    /// Merges a block with its neighbour `other`, if in state `state`. Returns the bytes gained.
    pub(super) fn merge(&mut self, id: BlockId, other: Option<BlockId>, state: State) -> usize {
        let Some(other) = other.filter(|other| self.blocks[*other].state == state) else {
            return 0;
        };
        let Owner { stream, class, pool } = self.owner_of(id);
        let index = self.indices.of_mut(pool, class);
        match state {
            State::Free => index.remove(stream, &self.blocks[other]),
            State::Unmapped => index.remove_unmapped(stream, &self.blocks[other]),
            State::InFlight => {}
            _ => unreachable!("what somebody has is not merged"),
        }
        let old_address = self.blocks[id].address;
        let gone = self.blocks.merge(id, other);
        let block = &self.blocks[id];
        self.map.remove(old_address.max(gone.address));
        self.map.insert(block.address, id);
        let segment = block.segment;
        if self.segments[segment].first == other {
            self.segments[segment].first = id;
        }
        gone.bytes
    }

    /// Hands out a block that is in no index, split for the request as alignment and policy ask.
    pub(super) fn allocate_block(
        &mut self,
        ledger: &mut Ledger,
        mut id: BlockId,
        plan: &Plan,
    ) -> Allocated {
        let owner = self.owner_of(id);
        let block = &self.blocks[id];
        let (was_split, all_bytes) = (block.is_split(), block.bytes);
        let aligned = block.address.next_multiple_of(plan.align_bytes as u64);
        let before_bytes = to_usize(aligned - block.address);
        let mut free_blocks = 0;
        if before_bytes > 0 {
            let before = self.split_head(id, before_bytes);
            self.put_in(before);
            free_blocks += 1;
        }
        assert!(self.blocks[id].bytes >= plan.bytes, "{plan:?} in {:?}", self.blocks[id]);
        let can_split = !ledger.pools.keeps_whole(owner.pool);
        let block_bytes = self.blocks[id].bytes;
        if can_split && ledger.policy().splits(owner.class, block_bytes, plan.bytes) {
            let front = self.split_head(id, plan.bytes);
            self.put_in(id);
            free_blocks += 1;
            id = front;
        }
        let bytes = self.blocks[id].bytes;
        if !self.is_expandable(id) {
            let (blocks, split_bytes) = if was_split { (1, all_bytes) } else { (0, 0) };
            let free_bytes = all_bytes - bytes;
            ledger.statistics.change_inactive_split(
                owner.class,
                free_blocks - blocks,
                free_bytes.cast_signed() - split_bytes.cast_signed(),
            );
        }
        self.blocks[id].requested_bytes = plan.requested_bytes;
        let mut allocated = self.note_allocated(ledger, id);
        ledger.recorder.note_block(&plan.request(), &mut allocated);
        allocated
    }

    /// Returns the allocated block that contains an address.
    pub(super) fn block_in_use_at(&self, address: u64) -> Option<&Block> {
        let block = &self.blocks[self.map.containing(address, &self.blocks)?];
        (block.state == State::Allocated).then_some(block)
    }

    /// Marks a block as allocated, and counts it.
    pub(super) fn note_allocated(&mut self, ledger: &mut Ledger, id: BlockId) -> Allocated {
        let class = self.owner_of(id).class;
        let is_oversize = ledger.is_oversize(self.blocks[id].bytes);
        let handout = self.handouts.next();
        let block = &mut self.blocks[id];
        (block.state, block.is_oversize) = (State::Allocated, is_oversize);
        block.handout = handout;
        let Block { bytes, requested_bytes, .. } = *block;
        ledger.statistics.begin_use(class, bytes, requested_bytes);
        if is_oversize {
            ledger.statistics.oversize_allocations.increase(1);
        }
        Allocated::of_block(id, &self.blocks[id])
    }

    /// True when its own stream still uses a free block: only that stream may reuse it at once.
    pub(super) fn is_busy(&self, block: &Block) -> bool {
        let stream = self.segments[block.segment].owner.stream;
        self.homes.is_using(stream, block.busy_until)
    }

    /// Calls `note` with the stream, the last task and the size of each busy free block.
    pub(super) fn note_busy(&self, note: &mut impl FnMut(u64, u64, usize)) {
        let free = self.blocks.iter().filter(|(_, block)| block.state == State::Free);
        for (id, block) in free.filter(|(_, block)| self.is_busy(block)) {
            note(self.owner_of(id).stream, block.busy_until, block.bytes);
        }
    }

    /// Begins a free: streams may still use the block, its own up to the point `home`.
    pub(super) fn end_allocation(
        &mut self,
        ledger: &mut Ledger,
        id: BlockId,
        home: Option<&UsePoint>,
    ) {
        let Owner { stream: key, class, .. } = self.owner_of(id);
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Allocated, "a block is freed once: {block:?}");
        block.state = State::AwaitingFree;
        if let Some(UsePoint { stream, ticket }) = home {
            debug_assert_eq!(stream.key(), key, "freed on its own stream");
            self.homes.note(stream);
            block.busy_until = block.busy_until.max(*ticket);
        }
        let Block { bytes, is_oversize, .. } = *block;
        ledger.statistics.end_allocation(class, bytes);
        if is_oversize {
            ledger.statistics.oversize_allocations.decrease(1);
        }
    }

    /// Completes a free when no other stream uses the block: merges it with free neighbours.
    pub(super) fn complete_free(&mut self, ledger: &mut Ledger, id: BlockId) {
        let class = self.owner_of(id).class;
        let block = &self.blocks[id];
        debug_assert_eq!(block.state, State::AwaitingFree, "{block:?}");
        let (bytes, requested_bytes) = (block.bytes, block.requested_bytes);
        let (previous, next) = (block.previous, block.next);
        let (mut blocks, mut split_bytes) = (0, 0);
        for neighbour in [previous, next] {
            let merged_bytes = self.merge(id, neighbour, State::Free);
            blocks -= isize::from(merged_bytes > 0);
            split_bytes -= merged_bytes.cast_signed();
        }
        self.put_in(id);
        self.frees += 1;
        let block = &self.blocks[id];
        if block.is_split() {
            blocks += 1;
            split_bytes += block.bytes.cast_signed();
        }
        if !self.is_expandable(id) {
            ledger.statistics.change_inactive_split(class, blocks, split_bytes);
        }
        ledger.statistics.end_use(class, bytes, requested_bytes);
    }
}
