//! What both engines share under one lock: settings, pools, limits and counts.
//!
//! Each call of an engine is given the ledger, where the engine counts what it takes and gives
//! back.
//!
//! # The wait list
//!
//! A thread that finds another one in its reclaim pass, moving pages or giving back memory looks a
//! few times, because that is short, and then sleeps without the lock: the other thread may need
//! its processor. The thread that ends such work wakes the whole list, under the lock.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::base::config::{AllocatorConfig, PolicyName};
use crate::base::error::{Error, MemoryError, Result};
use crate::base::sync::{Mutex, MutexGuard, Sleeper, spin_hint};
use crate::memory::allocator::policy::{AnyPolicy, policy};
use crate::memory::allocator::recorder::Recorder;
use crate::memory::allocator::request::{Pool, PoolId, Pools};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::source::{Part, ReleaseBatch};
use crate::memory::allocator::stats::Statistics;
/// The use of an allocator's memory, which decides the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Memory of a device, under the policy of the settings.
    Device,
    /// Pinned memory for transfers, under `policy::pinned`.
    Pinned,
    /// Pinned memory for programs that keep addresses alone, under policy `native`.
    Heap,
}

/// What both engines share.
///
/// Equation: `reserved_bytes` is what the device has given and keeps ([`Limits::held_bytes`]).
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) purpose: Purpose,
    pub(super) config: AllocatorConfig,
    pub(super) pools: Pools,
    pub(super) limits: Limits,
    pub(super) statistics: Statistics,
    /// True when free memory goes back at once.
    pub(super) is_closed: bool,
    /// The parts of memory that the device has got back or refused.
    pub(super) departures: u64,
    /// The thread in its turn (`reclaim.rs`), which alone takes memory from the device.
    pub(super) turn: Option<ThreadId>,
    /// Threads that wait for the end of a turn, of page moves, or of a departure.
    pub(super) sleepers: WaitList,
    pub(super) recorder: Recorder,
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
            sleepers: WaitList::default(),
            recorder: Recorder::default(),
        };
        ledger.set_config(config);
        ledger
    }

    /// Sets the settings for the next requests. Memory in use is unaffected.
    pub(super) fn set_config(&mut self, config: AllocatorConfig) {
        self.statistics.max_split_size = Statistics::of_nothing(&config).max_split_size;
        if !self.is_host() {
            self.limits.follow(config.per_process_memory_fraction, config.is_limit_named);
        }
        self.config = config;
    }

    /// The size up to which a heap caches free segments; `None` for no bound.
    pub(super) fn most_segment_bytes(&self) -> Option<usize> {
        self.config.pinned_max_cached_bytes.filter(|_| self.purpose == Purpose::Heap)
    }

    /// True for host memory, which has no limit.
    pub(super) fn is_host(&self) -> bool {
        self.purpose != Purpose::Device
    }

    /// True while threads cache freed memory.
    pub(super) fn has_thread_caches(&self) -> bool {
        let AllocatorConfig { exact_statistics, deterministic, .. } = self.config;
        self.serves_natively(PoolId::DEFAULT)
            && self.most_segment_bytes().is_none()
            && !self.is_closed
            && !exact_statistics
            && !deterministic
    }

    /// True when engine `native` serves the next requests for a pool: on the host heap always, on
    /// devices under policy `native`, but never for a pool whose blocks are not split.
    pub(super) fn serves_natively(&self, pool: PoolId) -> bool {
        let is_native = match self.purpose {
            Purpose::Device => self.config.policy == PolicyName::Native,
            Purpose::Pinned => false,
            Purpose::Heap => true,
        };
        is_native && !self.pools.keeps_whole(pool)
    }

    /// The decisions of engine `torch`.
    pub(super) fn policy(&self) -> AnyPolicy<'_> {
        policy(&self.config, self.is_host())
    }

    /// True when old free segments go back before memory is short.
    pub(super) fn is_collecting(&self) -> bool {
        self.config.garbage_collection_threshold.is_some() && self.limits.allowed_bytes().is_some()
    }

    /// True for sizes that are too large to split.
    pub(super) fn is_oversize(&self, bytes: usize) -> bool {
        self.config.max_split_bytes.is_some_and(|most| bytes >= most)
    }

    /// The private pools that serve requests for the default pool when it is short of memory; none
    /// for other pools.
    pub(super) fn helpers(&self, of: PoolId) -> impl Iterator<Item = PoolId> {
        let is_helper = move |pool: &Pool| of == PoolId::DEFAULT && pool.options.use_on_oom;
        self.pools.iter().filter(move |(_, pool)| is_helper(pool)).map(|(id, _)| id)
    }

    /// True, and counts a rejection, when the settings reject requests above the limit and this one
    /// is.
    pub(super) fn rejects(&mut self, is_above: impl FnOnce(&Limits) -> bool) -> bool {
        let is_rejected = self.config.reject_above_fraction && is_above(&self.limits);
        self.statistics.num_oom_rejections += u64::from(is_rejected);
        is_rejected
    }

    /// Counts the device's answer to a request for a segment.
    pub(super) fn note_segment<T>(&mut self, class: PoolClass, bytes: usize, given: &Result<T>) {
        self.note_answer(class, bytes, if given.is_ok() { bytes } else { 0 });
        self.statistics.segment.increase(class, usize::from(given.is_ok()));
        if let Err(Error::Memory(MemoryError::OutOfMemory { free_bytes, .. })) = given {
            self.limits.told_free_bytes = Some(*free_bytes);
        }
    }

    /// Counts the device's answer: `given_bytes` of `asked_bytes` came.
    pub(super) fn note_answer(&mut self, class: PoolClass, asked_bytes: usize, given_bytes: usize) {
        self.limits.note_answer(asked_bytes, given_bytes);
        self.statistics.reserved_bytes.increase(class, given_bytes);
        self.statistics.num_device_alloc += u64::from(given_bytes > 0);
        self.sleepers.wake();
        self.check_reserved();
    }

    /// Counts a part that leaves for the device, by class; `by_class` is empty for addresses alone.
    pub(super) fn leave(&mut self, part: Part, by_class: &[(PoolClass, usize)]) -> ReleaseBatch {
        let segments = usize::from(matches!(part, Part::Segment(..)));
        for (class, bytes) in by_class {
            self.statistics.segment.decrease(*class, segments);
            self.statistics.reserved_bytes.decrease(*class, *bytes);
        }
        self.statistics.num_device_free += u64::from(!by_class.is_empty());
        let bytes = by_class.iter().map(|(_, bytes)| bytes).sum();
        self.limits.leave(bytes);
        self.check_reserved();
        ReleaseBatch { part, bytes, block: None }
    }

    /// Counts a part that the device has got back or refused.
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

    /// True while another thread has the turn: only that thread moves pages and takes memory from
    /// the device.
    pub(super) fn is_turn_of_another(&self) -> bool {
        self.turn.is_some_and(|owner| owner != thread::current().id())
    }

    /// The bytes that both the limit and the device leave.
    pub(super) fn left_bytes(&self, device_free_bytes: usize) -> usize {
        let allowed = self.limits.allowed_bytes();
        let left = allowed.map(|bytes| bytes.saturating_sub(self.limits.taken_bytes));
        left.map_or(device_free_bytes, |left| left.min(device_free_bytes))
    }

    /// True when unused free memory may go back before memory is short: garbage, or blocks that are
    /// too large to split.
    pub(super) fn chooses_among_free(&self) -> bool {
        self.config.max_split_bytes.is_some() || self.bytes_above_threshold().is_some()
    }

    /// The reserved bytes above the garbage collection's threshold, if any.
    pub(super) fn bytes_above_threshold(&self) -> Option<usize> {
        let threshold = self.config.garbage_collection_threshold?;
        let threshold_bytes = part_of(self.limits.allowed_bytes()?, threshold);
        self.limits.taken_bytes.checked_sub(threshold_bytes).filter(|bytes| *bytes > 0)
    }
}

/// The device's memory and the part of it that may be reserved.
///
/// Equations: `taken_bytes` without `asking_bytes` and `leaving_bytes` is what is reserved
/// (`Ledger`). A new request raises it above `allowed_bytes` only under policy `torch`, by what
/// pages have beyond the segment that was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) total_bytes: usize,
    pub(super) fraction: f64,
    /// True when a text of settings named the fraction, and no later call has set it.
    is_of_settings: bool,
    pub(super) taken_bytes: usize,
    /// The requests that the device has not answered yet, and their bytes.
    asking_count: usize,
    asking_bytes: usize,
    /// The parts on their way to the device, and their bytes that count against the limit.
    leaving_count: usize,
    leaving_bytes: usize,
    /// The free bytes that the device named when it refused a segment, which a largest size of
    /// segments bounds; `None` once the device has given or taken memory since.
    pub(super) told_free_bytes: Option<usize>,
}

impl Limits {
    pub(super) fn new(total_bytes: usize) -> Self {
        Self { total_bytes, fraction: 1.0, ..Self::default() }
    }

    pub(super) fn set_fraction(&mut self, fraction: f64) {
        (self.fraction, self.is_of_settings) = (fraction, false);
    }

    /// Follows new settings; `is_named` when their text names a fraction. A text without one ends
    /// the fraction of an earlier text.
    pub(super) fn follow(&mut self, fraction: Option<f64>, is_named: bool) {
        match fraction {
            Some(fraction) if is_named => (self.fraction, self.is_of_settings) = (fraction, true),
            None if self.is_of_settings => (self.fraction, self.is_of_settings) = (1.0, false),
            _ => {}
        }
    }

    /// The limit; `None` when the fraction is 1, so that only the device limits.
    pub(super) fn allowed_bytes(&self) -> Option<usize> {
        (self.fraction < 1.0).then_some(part_of(self.total_bytes, self.fraction))
    }

    /// True when `bytes` more are within the limit but above `fraction` of the device's memory.
    pub(super) fn is_only_above(&self, bytes: usize, fraction: f64) -> bool {
        let sum = self.taken_bytes.saturating_add(bytes);
        !self.is_above(bytes) && sum > part_of(self.total_bytes, fraction)
    }

    /// True when `bytes` more would exceed the limit.
    pub(super) fn is_above(&self, bytes: usize) -> bool {
        let sum = self.taken_bytes.checked_add(bytes);
        let most = self.allowed_bytes().filter(|_| bytes > 0); // it may have been lowered since
        sum.is_none_or(|sum| most.is_some_and(|most| sum > most))
    }

    /// Counts bytes that the device is asked for, until its answer. False, without counting, when
    /// they would exceed the limit.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let is_allowed = !self.is_above(bytes);
        if is_allowed {
            self.take_anyway(bytes);
        }
        is_allowed
    }

    /// As `take`, for a request that was compared with the limit before.
    pub(super) fn take_anyway(&mut self, bytes: usize) {
        self.taken_bytes += bytes;
        self.asking_bytes += bytes;
        self.asking_count += 1;
        self.change_device(bytes);
    }

    /// Counts the device's answer: `given_bytes` of `asked_bytes` came.
    pub(super) fn note_answer(&mut self, asked_bytes: usize, given_bytes: usize) {
        self.asking_count -= 1;
        self.asking_bytes -= asked_bytes;
        self.taken_bytes -= asked_bytes - given_bytes;
        self.change_device(asked_bytes);
    }

    /// Counts a part on its way back, until the device has it.
    pub(super) fn leave(&mut self, bytes: usize) {
        self.leaving_bytes += bytes;
        self.leaving_count += 1;
    }

    pub(super) fn note_left(&mut self, bytes: usize) {
        self.leaving_count -= 1;
        self.leaving_bytes -= bytes;
        self.taken_bytes -= bytes;
        self.change_device(bytes);
    }

    /// Forgets what the device named as free, when its memory changes.
    fn change_device(&mut self, bytes: usize) {
        if bytes > 0 {
            self.told_free_bytes = None;
        }
    }

    /// The bytes that the device has given and that are not on their way back.
    pub(super) fn held_bytes(&self) -> usize {
        self.taken_bytes - self.asking_bytes - self.leaving_bytes
    }

    /// The bytes that one segment can get when the device reports `device_free_bytes`.
    pub(super) fn segment_free_bytes(&self, device_free_bytes: usize) -> usize {
        self.told_free_bytes.map_or(device_free_bytes, |told| told.min(device_free_bytes))
    }

    /// True when no memory is on its way from or to the device.
    pub(super) fn is_settled(&self) -> bool {
        self.asking_count == 0 && self.leaving_count == 0
    }
}

/// A fraction of a size.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction from 0 to 1 of a size; a byte more or less does not matter"
)]
pub(super) fn part_of(bytes: usize, fraction: f64) -> usize {
    (fraction * bytes as f64) as usize
}

/// The looks before a thread sleeps, and the spins between two looks.
#[cfg(not(loom))]
const LOOKS: usize = 8;
#[cfg(loom)]
const LOOKS: usize = 0;
const HINTS: usize = 50;

/// The threads that sleep.
#[derive(Debug, Default)]
pub(super) struct WaitList(Vec<Arc<Sleeper>>);

impl WaitList {
    /// Wakes all sleepers, which check their conditions again.
    pub(super) fn wake(&mut self) {
        self.0.drain(..).for_each(|sleeper| sleeper.wake());
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Locks the state once a condition holds. A thread that makes it hold wakes the sleepers.
pub(super) fn lock_when<T>(
    mutex: &Mutex<T>,
    is_so: impl Fn(&T) -> bool,
    sleepers: impl Fn(&mut T) -> &mut WaitList,
) -> MutexGuard<'_, T> {
    for look in 0.. {
        let mut value = mutex.lock();
        if is_so(&value) {
            return value;
        }
        if look < LOOKS {
            drop(value);
            (0..HINTS).for_each(|_| spin_hint());
            continue;
        }
        let sleeper = Sleeper::new();
        sleepers(&mut value).0.push(Arc::clone(&sleeper));
        drop(value);
        sleeper.sleep();
    }
    unreachable!("it looks until it is so")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::edges::edges;

    fn ledger(settings: &str, purpose: Purpose) -> Ledger {
        Ledger::new(settings.parse().unwrap(), 1000, purpose)
    }

    #[test]
    fn what_is_left_is_within_limit_and_device() {
        for (fraction, most) in [("0.5", 500), ("1.0", usize::MAX)] {
            let settings = format!("per_process_memory_fraction:{fraction}");
            let mut ledger = ledger(&settings, Purpose::Device);
            for taken_bytes in edges(&[500, 1000]).into_iter().filter(|it| *it <= 1001) {
                ledger.limits.taken_bytes = taken_bytes;
                for device_free_bytes in edges(&[500_usize.saturating_sub(taken_bytes), 1000]) {
                    let is_limited = most < usize::MAX;
                    let left = if is_limited { most.saturating_sub(taken_bytes) } else { most };
                    let expected = left.min(device_free_bytes);
                    assert_eq!(ledger.left_bytes(device_free_bytes), expected, "{taken_bytes}");
                }
            }
        }
    }

    #[test]
    fn garbage_begins_one_byte_above_the_threshold() {
        let settings = "per_process_memory_fraction:0.5,garbage_collection_threshold:0.5";
        let mut ledger = ledger(settings, Purpose::Device);
        for taken_bytes in edges(&[250, 500]).into_iter().filter(|it| *it <= 1000) {
            ledger.limits.taken_bytes = taken_bytes;
            let above = (taken_bytes > 250).then(|| taken_bytes - 250);
            assert_eq!(ledger.bytes_above_threshold(), above, "{taken_bytes}");
            assert_eq!(ledger.chooses_among_free(), above.is_some(), "{taken_bytes}");
        }
    }

    #[test]
    fn blocks_are_oversize_from_the_limit_on() {
        let limited = ledger("max_split_size_mb:32", Purpose::Device);
        let most = 32 << 20;
        for bytes in edges(&[most]) {
            assert_eq!(limited.is_oversize(bytes), bytes >= most, "{bytes}");
            assert!(!ledger("", Purpose::Device).is_oversize(bytes));
        }
        assert!(limited.chooses_among_free());
    }

    #[test]
    fn each_reason_against_thread_caches_suffices() {
        let caches = |settings, purpose| ledger(settings, purpose).has_thread_caches();
        assert!(caches("policy:native", Purpose::Device) && caches("", Purpose::Heap));
        assert!(!caches("policy:native", Purpose::Pinned));
        for reason in ["policy:torch", "exact_statistics:True", "deterministic:True"] {
            assert!(!caches(reason, Purpose::Device), "{reason}");
        }
        assert!(!caches("pinned_max_cached_size_mb:64", Purpose::Heap));
        assert!(caches("policy:native,pinned_max_cached_size_mb:64", Purpose::Device));
        let mut closed = ledger("policy:native", Purpose::Device);
        closed.is_closed = true;
        assert!(!closed.has_thread_caches());
    }
}

#[cfg(all(test, not(loom)))]
mod limits_tests {
    use super::*;
    use crate::edges::edges;

    #[test]
    fn what_the_device_said_to_be_free_holds_until_it_gives_or_takes() {
        let mut limits = Limits::new(100);
        let ask = |limits: &mut Limits, bytes: usize, given_bytes: usize| {
            assert!(limits.take(bytes));
            limits.note_answer(bytes, given_bytes);
        };
        let refuse = |limits: &mut Limits| {
            ask(limits, 60, 0);
            limits.told_free_bytes = Some(20);
        };
        assert_eq!(limits.segment_free_bytes(90), 90);
        refuse(&mut limits);
        assert_eq!((limits.segment_free_bytes(90), limits.segment_free_bytes(10)), (20, 10));
        ask(&mut limits, 10, 10);
        assert_eq!(limits.segment_free_bytes(80), 80);
        refuse(&mut limits);
        limits.leave(10);
        limits.note_left(10);
        assert_eq!((limits.segment_free_bytes(90), limits.taken_bytes), (90, 0));
    }

    #[test]
    fn pages_that_move_and_addresses_that_go_back_leave_what_the_device_said() {
        let mut limits = Limits::new(100);
        limits.told_free_bytes = Some(20);
        assert!(limits.take(0));
        limits.note_answer(0, 0);
        limits.leave(0);
        limits.note_left(0);
        assert_eq!(limits.segment_free_bytes(90), 20);
    }

    #[test]
    fn limits_agree_with_wider_numbers_at_their_edges() {
        // Goal: the last byte below a limit is given, one more is refused, and nothing overflows.
        // Method: all pairs of numbers at the edges of the limit, the device and the type.
        let total_bytes = 1000;
        for (fraction, most) in [(0.0, 0), (0.5, 500), (0.999, 999), (1.0, u128::MAX)] {
            let parts = [250, 500, 999, total_bytes];
            for taken_bytes in edges(&parts).into_iter().filter(|it| *it <= total_bytes) {
                for bytes in edges(&parts.map(|part| part.saturating_sub(taken_bytes))) {
                    let mut limits = Limits { taken_bytes, ..Limits::new(total_bytes) };
                    limits.set_fraction(fraction);
                    let sum = taken_bytes as u128 + bytes as u128;
                    let is_above = bytes > 0 && sum > most.min(usize::MAX as u128);
                    let at = format!("{bytes} to {taken_bytes} of {total_bytes} * {fraction}");
                    assert_eq!(limits.is_above(bytes), is_above, "{at}");
                    let is_only_above = !is_above && sum > 250;
                    assert_eq!(limits.is_only_above(bytes, 0.25), is_only_above, "{at}");
                    assert_eq!(limits.take(bytes), !is_above, "{at}");
                    let after = if is_above { taken_bytes } else { taken_bytes + bytes };
                    assert_eq!(limits.taken_bytes, after, "{at}");
                    assert_eq!(limits.held_bytes(), taken_bytes, "{at}: nothing was given yet");
                    assert_eq!(limits.is_settled(), is_above, "{at}");
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::base::sync::LockRank;
    use crate::base::sync::models::{EVERY, model_without_fences};

    /// Goal: no thread sleeps on when what it waits for has come. Method: two threads wait for one
    /// that works, of which the first goes on with work of its own.
    #[test]
    fn loom_whoever_waits_for_others_is_woken() {
        model_without_fences(EVERY, || {
            let is_busy = Arc::new(Mutex::new(LockRank::Allocator, (true, WaitList::default())));
            let wait = |is_busy: &Mutex<(bool, WaitList)>| {
                drop(lock_when(is_busy, |(is_busy, _)| !is_busy, |(_, sleepers)| sleepers));
            };
            let others = [(); 2].map(|()| {
                let is_busy = Arc::clone(&is_busy);
                thread::spawn(move || wait(&is_busy))
            });
            {
                let (is_busy, sleepers) = &mut *is_busy.lock();
                *is_busy = false;
                sleepers.wake();
            }
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
