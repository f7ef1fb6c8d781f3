//! What an allocator knows: blocks, segments, pools, statistics, and how blocks change hands.
//!
//! Nothing here calls a backend: a request that needs the device is answered in steps, between
//! which the allocator's lock is given back (`growth`, `release`).
//!
//! Equations, at rest and per class: `reserved_bytes` is the sum over the segments of what is
//! mapped, `active` counts the blocks that are allocated or await their free, `allocation` those
//! that are allocated, and the blocks of a segment tile it. `invariants` checks them.

use std::thread::ThreadId;

use crate::base::config::{AllocatorConfig, PolicyName};
use crate::base::error::{ConfigError, Error, Result};
use crate::base::size::to_usize;
use crate::memory::allocator::allocated::Handouts;
use crate::memory::allocator::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::limits::Limits;
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::page_map::PageMap;
use crate::memory::allocator::pending::Users;
use crate::memory::allocator::policy::torch::LEAST_BLOCK_BYTES;
use crate::memory::allocator::policy::{AnyPolicy, Candidate, policy};
use crate::memory::allocator::pool::{PoolId, Pools};
use crate::memory::allocator::segment::{Owner, Segments};
use crate::memory::allocator::sleepers::Sleepers;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::Statistics;
use crate::memory::allocator::waits::Waits;

/// The largest request that is rounded at all: an exbibyte.
pub(super) const MOST_BYTES: usize = 1 << 60;

/// What backends align host memory to.
const HOST_ALIGN_BYTES: usize = 64;

/// What is asked of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// How many bytes; 0 gets no block.
    pub bytes: usize,
    /// The stream that the memory is for: what it frees it may use again at once.
    pub stream: u64,
    /// The pool that serves it.
    pub pool: PoolId,
    /// What its address is a multiple of: a power of two.
    pub align_bytes: usize,
}

impl Request {
    /// For a stream, from the default pool, aligned to 512 bytes on devices and 64 on the host.
    #[must_use]
    #[inline]
    pub fn new(bytes: usize, stream: u64) -> Self {
        Self { bytes, stream, pool: PoolId::DEFAULT, align_bytes: 1 }
    }

    /// From a private pool.
    #[must_use]
    pub fn from_pool(self, pool: PoolId) -> Self {
        Self { pool, ..self }
    }

    /// True when it names no pool, and no more of an alignment than `most_align_bytes`, which is a
    /// power of two.
    #[inline]
    pub(super) fn is_plain(&self, most_align_bytes: usize) -> bool {
        let PoolId(first, second) = self.pool;
        let below = self.align_bytes.wrapping_sub(1);
        let is_odd = self.align_bytes & below | below & !(most_align_bytes - 1); // zero when not
        first | second | is_odd as u64 == 0
    }

    /// Fails when no address is aligned so.
    pub(super) fn check(&self) -> Result<()> {
        if self.align_bytes.is_power_of_two() {
            return Ok(());
        }
        let (name, value) = ("alignment", self.align_bytes.to_string());
        Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed: "a power of two" }))
    }

    /// Aligned to a power of two as well; a request with any other number fails.
    #[must_use]
    pub fn aligned_to(self, align_bytes: usize) -> Self {
        Self { align_bytes, ..self }
    }
}

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) requested_bytes: usize,
    /// Rounded.
    pub(super) bytes: usize,
    /// What is enough wherever it begins.
    pub(super) search_bytes: usize,
    pub(super) align_bytes: usize,
    pub(super) owner: Owner,
}

impl Plan {
    /// What was asked for.
    pub(super) fn request(&self) -> Request {
        let Self { requested_bytes: bytes, align_bytes, owner, .. } = *self;
        Request { bytes, stream: owner.stream, pool: owner.pool, align_bytes }
    }
}

/// What an allocator's memory is for, which says who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A device's: the policy that settings name.
    Device,
    /// Pinned, for transfers: `policy::pinned`.
    Pinned,
    /// Pinned, for programs that keep an address alone: the native policy.
    Heap,
}

/// What an allocator knows. See the head of this file.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) purpose: Purpose,
    pub(super) config: AllocatorConfig,
    pub(super) blocks: Blocks,
    pub(super) segments: Segments,
    pub(super) map: PageMap,
    pub(super) pools: Pools,
    pub(super) limits: Limits,
    pub(super) statistics: Statistics,
    /// The streams that free memory and blocks wait for.
    pub(super) users: Users,
    /// True when nothing is kept that is free.
    pub(super) is_closed: bool,
    /// True when segments were restored, whose addresses a device may give again.
    pub(super) has_chosen_addresses: bool,
    /// Where the next segments of these sizes are to be, when a recording says it.
    pub(super) announced: Vec<(u64, usize)>,
    /// The number of the next block that is handed out.
    pub(super) handouts: Handouts,
    /// Releases that threads are inside of: memory that is on its way to the device.
    pub(super) releases_in_flight: usize,
    /// How often memory came to the device, and blocks became free.
    pub(super) departures: u64,
    pub(super) frees: u64,
    /// The thread that alone has memory from the device now, because it is short of it: `turn`.
    pub(super) turn: Option<ThreadId>,
    /// Waits of requests that are inside of tasks.
    pub(super) waits: Waits,
    /// Threads that wait until a turn, moves of pages, or what goes back is over.
    pub(super) sleepers: Sleepers,
    /// What the policy `native` knows.
    pub(super) native: Native,
}

impl Books {
    pub(super) fn new(
        mut config: AllocatorConfig,
        total_bytes: usize,
        purpose: Purpose,
        page_bytes: Option<usize>,
    ) -> Self {
        config.is_limit_named = config.per_process_memory_fraction.is_some(); // by whatever text
        let mut books = Self {
            purpose,
            config: AllocatorConfig::default(),
            blocks: Blocks::default(),
            segments: Segments::default(),
            map: PageMap::default(),
            pools: Pools::new(),
            limits: Limits::new(total_bytes),
            statistics: Statistics::default(),
            users: Users::default(),
            is_closed: false,
            has_chosen_addresses: false,
            announced: Vec::new(),
            handouts: Handouts::default(),
            releases_in_flight: 0,
            departures: 0,
            frees: 0,
            turn: None,
            waits: Waits::default(),
            sleepers: Sleepers::default(),
            native: Native::new(page_bytes, purpose == Purpose::Heap),
        };
        books.set_config(config);
        books
    }

    /// Serves the next requests by other settings; what was handed out stays.
    pub(super) fn set_config(&mut self, config: AllocatorConfig) {
        self.statistics.max_split_size = Statistics::of_nothing(&config).max_split_size;
        if !self.is_host() {
            self.limits.follow(config.per_process_memory_fraction, config.is_limit_named);
        }
        self.native.holds_pages = config.deterministic;
        self.config = config;
    }

    /// How large the free segments of a heap are that are kept, when that is bounded.
    pub(super) fn most_segment_bytes(&self) -> Option<usize> {
        self.config.pinned_max_cached_bytes.filter(|_| self.purpose == Purpose::Heap)
    }

    /// True for memory of the host: no limit holds for it.
    pub(super) fn is_host(&self) -> bool {
        self.purpose != Purpose::Device
    }

    /// True while threads keep what they free, to have it again.
    pub(super) fn keeps_caches(&self) -> bool {
        let AllocatorConfig { exact_statistics, deterministic, .. } = self.config;
        self.serves_natively(PoolId::DEFAULT)
            && self.most_segment_bytes().is_none()
            && !self.is_closed
            && !exact_statistics
            && !deterministic
    }

    /// True when threads may keep something again in caches that were emptied.
    pub(super) fn may_open_caches(&self) -> bool {
        self.turn.is_none() && self.native.frees >= self.native.opens_from && self.keeps_caches()
    }

    /// True when the native policy serves the next requests for a pool. It always splits, so where
    /// blocks are to stay whole the other one does.
    pub(super) fn serves_natively(&self, pool: PoolId) -> bool {
        let is_native = match self.purpose {
            Purpose::Device => self.config.policy == PolicyName::Native,
            Purpose::Pinned => false,
            Purpose::Heap => true,
        };
        is_native && !self.pools[pool].options.no_split
    }

    pub(super) fn policy(&self) -> AnyPolicy<'_> {
        policy(&self.config, self.is_host())
    }

    /// What a request comes to; `None` when it is larger than anything.
    pub(super) fn plan(&self, request: &Request) -> Option<Plan> {
        debug_assert!(request.check().is_ok(), "checked before: {request:?}");
        let is_possible = request.bytes <= MOST_BYTES && request.align_bytes <= MOST_BYTES;
        let policy = is_possible.then(|| self.policy())?;
        let bytes = policy.round(request.bytes);
        let least_align_bytes = if self.is_host() { HOST_ALIGN_BYTES } else { LEAST_BLOCK_BYTES };
        let align_bytes = request.align_bytes.max(least_align_bytes);
        let search_bytes = bytes + align_bytes - least_align_bytes;
        let class = policy.class(bytes);
        let owner = Owner { stream: request.stream, class, pool: request.pool };
        Some(Plan { requested_bytes: request.bytes, bytes, search_bytes, align_bytes, owner })
    }

    /// Takes the free block out of the index that serves a request.
    pub(super) fn find(&mut self, plan: &Plan) -> Option<BlockId> {
        let is_collecting = self.is_collecting();
        let index = self.pools[plan.owner.pool].index_mut(plan.owner.class);
        index.searches += u64::from(is_collecting);
        let index = self.pools[plan.owner.pool].index(plan.owner.class);
        let large_enough = index.of_size(plan.owner.stream, plan.bytes);
        let fitting = large_enough.filter(|id| self.has_room(*id, plan));
        let chosen = self.policy().choose(plan.bytes, &mut fitting.map(|id| self.candidate(id)));
        let id = chosen?;
        self.take_out(id);
        Some(id)
    }

    /// True when old free segments are given back before memory is short.
    pub(super) fn is_collecting(&self) -> bool {
        self.config.garbage_collection_threshold.is_some() && self.limits.allowed_bytes().is_some()
    }

    /// True when the aligned part of a block is enough.
    fn has_room(&self, id: BlockId, plan: &Plan) -> bool {
        let block = &self.blocks[id];
        let aligned = block.address.checked_next_multiple_of(plan.align_bytes as u64);
        let end = aligned.and_then(|aligned| aligned.checked_add(plan.bytes as u64));
        end.is_some_and(|end| end <= block.end())
    }

    /// The size of a segment that is made for a request: devices align what they give, but not to
    /// addresses that a recording chose.
    pub(super) fn segment_bytes(&self, plan: &Plan) -> usize {
        let is_aligned = !self.is_host() && !self.has_chosen_addresses && self.announced.is_empty();
        let bytes = if is_aligned { plan.bytes } else { plan.search_bytes };
        self.policy().segment_bytes(bytes)
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

    /// True for a block of a segment that grows by pages.
    pub(super) fn is_expandable(&self, id: BlockId) -> bool {
        self.segments[self.blocks[id].segment].is_expandable()
    }

    pub(super) fn owner_of(&self, id: BlockId) -> Owner {
        self.segments[self.blocks[id].segment].owner
    }

    /// Takes a free block out of its index, for the thread that calls.
    pub(super) fn take_out(&mut self, id: BlockId) {
        let Owner { stream, class, pool } = self.owner_of(id);
        let block = &mut self.blocks[id];
        debug_assert_eq!(block.state, State::Free, "{block:?}");
        block.state = State::InFlight;
        self.pools[pool].index_mut(class).remove(stream, &self.blocks[id]);
    }

    /// Puts a block into the index of its pool.
    pub(super) fn put_in(&mut self, id: BlockId) {
        let Owner { stream, class, pool } = self.owner_of(id);
        let index = self.pools[pool].index_mut(class);
        let block = &mut self.blocks[id];
        block.state = State::Free;
        block.freed_at_search = index.searches;
        index.insert(stream, id, block);
    }

    /// Cuts the front off a block, in the map as well: the number of the new block.
    pub(super) fn split_front(&mut self, id: BlockId, bytes: usize) -> BlockId {
        let front = self.blocks.split_front(id, bytes);
        self.map.insert(self.blocks[front].address, front);
        self.map.insert(self.blocks[id].address, id);
        let segment = self.blocks[id].segment;
        if self.segments[segment].first == id {
            self.segments[segment].first = front;
        }
        front
    }

    /// Joins a block with a neighbour in the state `state`; how much came to it.
    pub(super) fn merge(&mut self, id: BlockId, other: Option<BlockId>, state: State) -> usize {
        let Some(other) = other.filter(|other| self.blocks[*other].state == state) else {
            return 0;
        };
        let Owner { stream, class, pool } = self.owner_of(id);
        let index = self.pools[pool].index_mut(class);
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

    /// Hands a block out that was taken out of its index and is large enough: cuts off what the
    /// request does not need.
    pub(super) fn hand_out(&mut self, mut id: BlockId, plan: &Plan) -> BlockId {
        let owner = self.owner_of(id);
        let block = &self.blocks[id];
        let (was_split, all_bytes) = (block.is_split(), block.bytes);
        let aligned = block.address.next_multiple_of(plan.align_bytes as u64);
        let before_bytes = to_usize(aligned - block.address);
        let mut free_blocks = 0;
        if before_bytes > 0 {
            let before = self.split_front(id, before_bytes);
            self.put_in(before);
            free_blocks += 1;
        }
        assert!(self.blocks[id].bytes >= plan.bytes, "{plan:?} in {:?}", self.blocks[id]);
        let can_split = !self.pools[owner.pool].options.no_split;
        let block_bytes = self.blocks[id].bytes;
        if can_split && self.policy().splits(owner.class, block_bytes, plan.bytes) {
            let front = self.split_front(id, plan.bytes);
            self.put_in(id);
            free_blocks += 1;
            id = front;
        }
        let bytes = self.blocks[id].bytes;
        if !self.is_expandable(id) {
            let (blocks, split_bytes) = if was_split { (1, all_bytes) } else { (0, 0) };
            let free_bytes = all_bytes - bytes;
            self.change_inactive_split(
                owner.class,
                free_blocks - blocks,
                free_bytes.cast_signed() - split_bytes.cast_signed(),
            );
        }
        self.blocks[id].requested_bytes = plan.requested_bytes;
        self.note_handed_out(id);
        id
    }

    /// The block in use that an address is in.
    pub(super) fn block_in_use_at(&self, address: u64) -> Option<BlockId> {
        let id = self.map.containing(address, &self.blocks)?;
        (self.blocks[id].state == State::Allocated).then_some(id)
    }

    /// Counts a block that a program has now.
    pub(super) fn note_handed_out(&mut self, id: BlockId) {
        let class = self.owner_of(id).class;
        let is_oversize = self.is_oversize(self.blocks[id].bytes);
        let handout = self.handouts.next();
        let block = &mut self.blocks[id];
        (block.state, block.is_oversize) = (State::Allocated, is_oversize);
        block.handout = handout;
        let Block { bytes, requested_bytes, .. } = *block;
        self.statistics.begin_use(class, bytes, requested_bytes);
        if is_oversize {
            self.statistics.oversize_allocations.increase(1);
        }
    }

    /// True for sizes from which on blocks are not split.
    pub(super) fn is_oversize(&self, bytes: usize) -> bool {
        self.config.max_split_bytes.is_some_and(|most| bytes >= most)
    }

    pub(super) fn change_inactive_split(&mut self, class: PoolClass, blocks: isize, bytes: isize) {
        self.statistics.inactive_split.change(class, blocks);
        self.statistics.inactive_split_bytes.change(class, bytes);
    }

    /// A program has given a block back, while streams may still use it.
    pub(super) fn end_allocation(&mut self, id: BlockId) {
        let class = self.owner_of(id).class;
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Allocated, "a block is freed once: {block:?}");
        block.state = State::AwaitingFree;
        let Block { bytes, is_oversize, .. } = *block;
        self.statistics.end_allocation(class, bytes);
        if is_oversize {
            self.statistics.oversize_allocations.decrease(1);
        }
    }

    /// No other stream uses a block any more: it merges with its neighbours and can be handed out.
    pub(super) fn complete_free(&mut self, id: BlockId) {
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
            self.change_inactive_split(class, blocks, split_bytes);
        }
        self.statistics.end_use(class, bytes, requested_bytes);
    }
}
