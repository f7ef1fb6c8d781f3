//! What both engines share under one lock: settings, pools, limits and counts.
//!
//! An engine is given the ledger with each call. It counts there what it takes and gives back; what
//! it knows of blocks it keeps to itself.

use std::thread::{self, ThreadId};

use crate::base::config::{AllocatorConfig, PolicyName};
use crate::base::error::{Error, MemoryError, Result};
use crate::memory::allocator::limits::{Limits, part_of};
use crate::memory::allocator::policy::{AnyPolicy, policy};
use crate::memory::allocator::pool::{Pool, PoolId, Pools};
use crate::memory::allocator::sleepers::Sleepers;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::source::{Departing, Part};
use crate::memory::allocator::stats::Statistics;

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

/// What both engines share. See the head of this file.
///
/// Equation: what is reserved is what the device has given and keeps ([`Limits::held_bytes`]).
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) purpose: Purpose,
    pub(super) config: AllocatorConfig,
    pub(super) pools: Pools,
    pub(super) limits: Limits,
    pub(super) statistics: Statistics,
    /// True when nothing is cached that is free.
    pub(super) is_closed: bool,
    /// How often memory came to the device.
    pub(super) departures: u64,
    /// The thread that alone has memory from the device now, because it is short of it: `turn`.
    pub(super) turn: Option<ThreadId>,
    /// Threads that wait until a turn, moves of pages, or what goes back is over.
    pub(super) sleepers: Sleepers,
}

impl Ledger {
    pub(super) fn new(mut config: AllocatorConfig, total_bytes: usize, purpose: Purpose) -> Self {
        config.is_limit_named = config.per_process_memory_fraction.is_some(); // by whatever text
        let mut ledger = Self {
            purpose,
            config: AllocatorConfig::default(),
            pools: Pools::new(),
            limits: Limits::new(total_bytes),
            statistics: Statistics::default(),
            is_closed: false,
            departures: 0,
            turn: None,
            sleepers: Sleepers::default(),
        };
        ledger.set_config(config);
        ledger
    }

    /// Serves the next requests by other settings; what was handed out stays.
    pub(super) fn set_config(&mut self, config: AllocatorConfig) {
        self.statistics.max_split_size = Statistics::of_nothing(&config).max_split_size;
        if !self.is_host() {
            self.limits.follow(config.per_process_memory_fraction, config.is_limit_named);
        }
        self.config = config;
    }

    /// How large the free segments of a heap are that are cached, when that is bounded.
    pub(super) fn most_segment_bytes(&self) -> Option<usize> {
        self.config.pinned_max_cached_bytes.filter(|_| self.purpose == Purpose::Heap)
    }

    /// True for memory of the host: no limit holds for it.
    pub(super) fn is_host(&self) -> bool {
        self.purpose != Purpose::Device
    }

    /// True while threads cache what they free, to have it again.
    pub(super) fn has_thread_caches(&self) -> bool {
        let AllocatorConfig { exact_statistics, deterministic, .. } = self.config;
        self.serves_natively(PoolId::DEFAULT)
            && self.most_segment_bytes().is_none()
            && !self.is_closed
            && !exact_statistics
            && !deterministic
    }

    /// True when the native policy serves the next requests for a pool. It always splits, so where
    /// blocks are to stay whole the other one does.
    pub(super) fn serves_natively(&self, pool: PoolId) -> bool {
        let is_native = match self.purpose {
            Purpose::Device => self.config.policy == PolicyName::Native,
            Purpose::Pinned => false,
            Purpose::Heap => true,
        };
        is_native && !self.pools.keeps_whole(pool)
    }

    /// The decisions of the engine `torch`.
    pub(super) fn policy(&self) -> AnyPolicy<'_> {
        policy(&self.config, self.is_host())
    }

    /// True when old free segments are given back before memory is short.
    pub(super) fn is_collecting(&self) -> bool {
        self.config.garbage_collection_threshold.is_some() && self.limits.allowed_bytes().is_some()
    }

    /// True for sizes from which on blocks are not split.
    pub(super) fn is_oversize(&self, bytes: usize) -> bool {
        self.config.max_split_bytes.is_some_and(|most| bytes >= most)
    }

    /// The private pools that help out when memory of a pool is short.
    pub(super) fn helpers(&self, of: PoolId) -> impl Iterator<Item = PoolId> {
        let is_helper = move |pool: &Pool| of == PoolId::DEFAULT && pool.options.use_on_oom;
        self.pools.iter().filter(move |(_, pool)| is_helper(pool)).map(|(id, _)| id)
    }

    /// True when settings have a request fail that is above some limit; counts it.
    pub(super) fn rejects(&mut self, is_above: impl FnOnce(&Limits) -> bool) -> bool {
        let is_rejected = self.config.reject_above_fraction && is_above(&self.limits);
        self.statistics.num_oom_rejections += u64::from(is_rejected);
        is_rejected
    }

    /// The device was asked for a segment, and has answered.
    pub(super) fn note_segment<T>(&mut self, class: PoolClass, bytes: usize, given: &Result<T>) {
        self.note_answer(class, bytes, if given.is_ok() { bytes } else { 0 });
        self.statistics.segment.increase(class, usize::from(given.is_ok()));
        if let Err(Error::Memory(MemoryError::OutOfMemory { free_bytes, .. })) = given {
            self.limits.told_free_bytes = Some(*free_bytes);
        }
    }

    /// The device was asked for memory, and has answered: so much of it is there.
    pub(super) fn note_answer(&mut self, class: PoolClass, asked_bytes: usize, given_bytes: usize) {
        self.limits.note_answer(asked_bytes, given_bytes);
        self.statistics.reserved_bytes.increase(class, given_bytes);
        self.statistics.num_device_alloc += u64::from(given_bytes > 0);
        self.sleepers.wake();
        self.check_reserved();
    }

    /// A part leaves for the device, with bytes of these classes: none when it is addresses alone.
    pub(super) fn leave(&mut self, part: Part, by_class: &[(PoolClass, usize)]) -> Departing {
        let segments = usize::from(matches!(part, Part::Segment(_)));
        for (class, bytes) in by_class {
            self.statistics.segment.decrease(*class, segments);
            self.statistics.reserved_bytes.decrease(*class, *bytes);
        }
        self.statistics.num_device_free += u64::from(!by_class.is_empty());
        let bytes = by_class.iter().map(|(_, bytes)| bytes).sum();
        self.limits.leave(bytes);
        self.check_reserved();
        Departing { part, bytes, block: None }
    }

    /// The device has had a part, or refused it.
    pub(super) fn note_left(&mut self, bytes: usize) {
        self.limits.note_left(bytes);
        self.departures += 1;
        self.sleepers.wake();
        self.check_reserved();
    }

    fn check_reserved(&self) {
        let reserved_bytes = self.statistics.reserved_bytes.all.current;
        debug_assert_eq!(self.limits.held_bytes() as u64, reserved_bytes, "{:?}", self.limits);
    }

    /// True while another thread has the turn: no page moves then but its own, and the device gives
    /// no other thread memory.
    pub(super) fn is_turn_of_another(&self) -> bool {
        self.turn.is_some_and(|owner| owner != thread::current().id())
    }

    /// What the limit leaves of what the device has free.
    pub(super) fn left_bytes(&self, device_free_bytes: usize) -> usize {
        let allowed = self.limits.allowed_bytes();
        let left = allowed.map(|bytes| bytes.saturating_sub(self.limits.taken_bytes));
        left.map_or(device_free_bytes, |left| left.min(device_free_bytes))
    }

    /// True when free memory is chosen from, of which nothing may be in use, before memory is
    /// short: garbage, or blocks that are too large to be split.
    pub(super) fn chooses_among_free(&self) -> bool {
        self.config.max_split_bytes.is_some() || self.bytes_above_threshold().is_some()
    }

    /// How much more is reserved than the garbage collection's threshold.
    pub(super) fn bytes_above_threshold(&self) -> Option<usize> {
        let threshold = self.config.garbage_collection_threshold?;
        let threshold_bytes = part_of(self.limits.allowed_bytes()?, threshold);
        self.limits.taken_bytes.checked_sub(threshold_bytes).filter(|bytes| *bytes > 0)
    }
}
