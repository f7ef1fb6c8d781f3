//! Pending frees: the points of streams that freed blocks wait for.
//!
//! A free waits for a point of each stream that used the block, and costs no event: the streams'
//! counters tell their progress. A late stream holds back only the memory that it used. A request
//! checks a few of the waited-for streams, in turns; more before it asks the device, and all before
//! it fails. A free that waits for several points checks some too. Streams without pending frees
//! cost nothing.
//!
//! # Requests that wait inside tasks
//!
//! A request that is short of memory waits for the streams that use free memory. Inside a task,
//! such a stream may wait for that very task, or for another task whose wait for memory, of any
//! allocator, ends only after this one. Such a stream is not waited for: its memory counts as in
//! use, and one of the requests fails. Waits of streams for streams are known by events and by the
//! order of buffers; waits for a host's access to a buffer are not known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use crate::base::device::Device;
use crate::base::error::{Error, Result, StreamError};
use crate::base::stream_map::StreamMap;
use crate::base::sync::{LockRank, Mutex, assert_no_lock_held, park};
use crate::engine::frontier::Progress;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::frames;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::request::KnownStream;
use crate::memory::allocator::torch_blocks::BlockId;
/// The last task of a stream that uses a block.
#[derive(Clone, Debug)]
pub(crate) struct UsePoint {
    pub(crate) stream: Arc<StreamCore>,
    pub(crate) ticket: u64,
}

/// A freed block or piece that waits for points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freed {
    Block(BlockId),
    /// Of engine `native`.
    Native(BlockRef),
}

/// The streams that a request checks, and the checks per new stream.
pub(super) const LOOKS: usize = 2;
/// The streams that a request checks before it asks the device. A longer list takes several turns.
pub(super) const LOOKS_BEFORE_GROWTH: usize = 32;
pub(super) const ALL: usize = usize::MAX;

/// A stream, possibly ended, that frees wait for.
#[derive(Debug)]
struct WaitedFor {
    stream: KnownStream,
    device: Device,
    /// The frees, by the task that each waits for.
    freed: BTreeSet<(u64, Freed)>,
    /// The first of these tasks, so that a check of an unchanged stream costs one comparison.
    first_ticket: u64,
}

impl WaitedFor {
    /// Moves the frees that no longer wait to `passed`; true when none is left.
    fn pass(&mut self, key: u64, passed: &mut Vec<(u64, Freed)>) -> bool {
        let done = self.stream.progress.done();
        if done < self.first_ticket {
            return false;
        }
        while self.freed.first().is_some_and(|(ticket, _)| *ticket <= done) {
            passed.extend(self.freed.pop_first().map(|(_, freed)| (key, freed)));
        }
        self.first_ticket = self.freed.first().map_or(u64::MAX, |(ticket, _)| *ticket);
        self.freed.is_empty()
    }
}

/// All streams that frees wait for.
///
/// Equation: `points` contains for each free the number of streams that list it, at least one.
#[derive(Debug, Default)]
pub(super) struct Pending {
    streams: StreamMap<WaitedFor>,
    points: BTreeMap<Freed, u32>,
}

impl Pending {
    /// Makes a free wait for its uses; false when all are done. A repeated point counts once.
    pub(super) fn wait_for<'a>(
        &mut self,
        uses: impl IntoIterator<Item = &'a UsePoint>,
        freed: Freed,
    ) -> bool {
        let mut count = 0;
        for UsePoint { stream, ticket } in uses {
            if stream.progress.done() >= *ticket {
                continue;
            }
            let waited_for = self.streams.get_or_insert_with(stream.key(), || WaitedFor {
                stream: KnownStream::of(stream),
                device: stream.identity.device,
                freed: BTreeSet::new(),
                first_ticket: u64::MAX,
            });
            waited_for.first_ticket = (*ticket).min(waited_for.first_ticket);
            count += u32::from(waited_for.freed.insert((*ticket, freed)));
        }
        if count > 0 {
            self.points.insert(freed, count);
        }
        count > 0
    }

    /// True when no free waits: the common case.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The number of waited-for streams, as of the last check.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_waited_for(&self) -> usize {
        self.streams.len()
    }

    /// True when a request does not check all of them.
    pub(super) fn are_many_waited_for(&self) -> bool {
        self.streams.len() > LOOKS
    }

    /// The driver streams among the next `most`, each with the first task that a free waits for.
    pub(super) fn next_on_drivers(&self, most: usize) -> Vec<(Weak<StreamCore>, u64)> {
        let next = self.streams.next(most).map(|(_, waited_for)| waited_for);
        let first = |waited_for: &WaitedFor| {
            let (ticket, _) = waited_for.freed.first()?;
            Some((Weak::clone(&waited_for.stream.core), *ticket))
        };
        next.filter(|waited_for| !waited_for.stream.progress.is_on_host())
            .filter_map(first)
            .collect()
    }

    /// The live stream with a key, if frees wait for it.
    pub(super) fn known(&self, key: u64) -> Option<&KnownStream> {
        Some(&self.streams.get(key)?.stream)
    }

    /// All frees with the stream and task that they wait for.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, u64, Freed)> {
        self.streams.iter().flat_map(|(key, stream)| {
            stream.freed.iter().map(move |(ticket, freed)| (key, *ticket, *freed))
        })
    }

    /// All pending frees, blocks first.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = Freed> {
        self.points.keys().copied()
    }

    /// Removes and returns the frees whose last point the next `most` streams have passed, of one
    /// device or all; ordered by stream, because statistics depend on the order.
    pub(super) fn take_passed(&mut self, most: usize, of: Option<Device>) -> Vec<Freed> {
        let mut passed: Vec<(u64, Freed)> = Vec::new();
        let is_asked = |stream: &WaitedFor| of.is_none_or(|device| stream.device == device);
        let is_over =
            |key, stream: &mut WaitedFor| is_asked(stream) && stream.pass(key, &mut passed);
        self.streams.extract_if(most, is_over);
        passed.sort_by_key(|(key, _)| *key);
        let is_last = |freed: &Freed| {
            let points = self.points.get_mut(freed).expect("it waits for this one");
            *points -= 1;
            *points == 0 && self.points.remove(freed).is_some()
        };
        passed.into_iter().map(|(_, freed)| freed).filter(is_last).collect()
    }

    pub(super) fn check(&self) {
        let mut points = BTreeMap::new();
        self.waiting().for_each(|(_, _, freed)| *points.entry(freed).or_default() += 1);
        assert_eq!(points, self.points, "what waits for streams");
    }
}

/// The purpose of freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitTarget {
    /// Whole pages and segments to give back to the device.
    Back,
    /// Any memory that could serve another stream's request.
    Served,
}

/// A stream that freed memory waits for. Drop it without the lock: the last reference to a stream
/// drops user data.
#[derive(Debug)]
pub(super) struct BlockingStream {
    pub(super) progress: Arc<Progress>,
    /// `None` while a thread drops it, which waits for the device.
    pub(super) stream: Option<Arc<StreamCore>>,
    /// The last task that frees wait for.
    pub(super) ticket: u64,
    pub(super) bytes: usize,
}

impl BlockingStream {
    /// `None` for a stream that is gone.
    pub(super) fn of(known: &KnownStream, ticket: u64, bytes: usize) -> Option<Self> {
        let stream = known.core.upgrade();
        let is_there = stream.is_some() || known.progress.is_ending();
        is_there.then(|| Self { progress: Arc::clone(&known.progress), stream, ticket, bytes })
    }
}

impl Drop for BlockingStream {
    fn drop(&mut self) {
        assert_no_lock_held();
    }
}

/// The sleep between two looks at a stream that another thread drops.
const ENDING_PERIOD: Duration = Duration::from_micros(20);

/// The waits in progress inside of tasks.
#[derive(Debug, Default)]
struct Waits {
    under_way: Vec<Wait>,
    begun: u64,
}

/// A wait, by the keys of streams.
#[derive(Debug)]
struct Wait {
    number: u64,
    /// The streams whose tasks the waiting thread is executing.
    inside: Vec<u64>,
    /// The stream that is waited for, and the streams that it waits for.
    behind: Vec<u64>,
}

impl Waits {
    /// Adds a wait and returns its number; `None` when it would wait for its own tasks.
    fn begin(&mut self, inside: Vec<u64>, behind: Vec<u64>) -> Option<u64> {
        let mut known = behind.clone();
        let mut next = 0;
        while let Some(stream) = known.get(next).copied() {
            next += 1;
            if inside.contains(&stream) {
                return None;
            }
            let waiting = self.under_way.iter().filter(|wait| wait.inside.contains(&stream));
            let more: Vec<u64> = waiting.flat_map(|wait| wait.behind.iter().copied()).collect();
            for stream in more {
                if !known.contains(&stream) {
                    known.push(stream);
                }
            }
        }
        self.begun += 1;
        self.under_way.push(Wait { number: self.begun, inside, behind });
        Some(self.begun)
    }

    fn end(&mut self, number: u64) {
        self.under_way.retain(|wait| wait.number != number);
    }
}

/// Shared by all allocators: a wait of one may be behind a wait of another.
static WAITS: LazyLock<Mutex<Waits>> =
    LazyLock::new(|| Mutex::new(LockRank::Allocator, Waits::default()));

/// A wait in progress, until the drop.
struct WaitGuard(u64);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        WAITS.lock().end(self.0);
    }
}

impl BlockingStream {
    pub(super) fn key(&self) -> u64 {
        self.progress.stream_key()
    }

    /// True when the stream is known to have passed its uses of freed memory.
    pub(super) fn has_passed(&self) -> bool {
        self.progress.done() >= self.ticket
    }

    /// Asks a driver for the stream's progress.
    pub(super) fn poll(&self) {
        if let Some(stream) = &self.stream {
            stream.poll_ticket(self.ticket);
        }
    }

    /// Waits until the stream has passed its uses of freed memory, or its drop is over. Fails
    /// inside one of the stream's tasks, and for a lost device.
    pub(super) fn wait(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let Some(stream) = &self.stream else { return self.wait_for_end(interrupt) };
        let inside = frames::streams();
        let _under_way = if inside.is_empty() { None } else { Some(self.begin(stream, inside)?) };
        stream.wait_ticket(self.ticket, false, interrupt)
    }

    /// Waits for the thread that drops the stream, which waits for nothing but the device.
    fn wait_for_end(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        assert_no_lock_held();
        let mut last_check = Instant::now();
        while !self.has_passed() && self.progress.is_ending() {
            interrupt.check(&mut last_check)?;
            park(interrupt.longest_sleep(Some(ENDING_PERIOD)));
        }
        Ok(())
    }

    fn begin(&self, stream: &StreamCore, inside: Vec<u64>) -> Result<WaitGuard> {
        let behind = streams_before(stream, self.ticket);
        let begun = WAITS.lock().begin(inside, behind);
        let identity = &stream.identity;
        let (device, stream_id) = (identity.device, identity.id);
        begun.map(WaitGuard).ok_or(Error::Stream(StreamError::WaitInsideTask { device, stream_id }))
    }
}

/// The stream, and the streams that its task `ticket` still waits for.
fn streams_before(stream: &StreamCore, ticket: u64) -> Vec<u64> {
    std::iter::once(stream.key()).chain(stream.history.streams_before(ticket)).collect()
}

#[cfg(all(test, not(loom)))]
mod waits_tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn a_wait_that_ended_stands_in_nobodys_way_and_the_others_do() {
        let mut waits = Waits::default();
        let begun = [1, 3, 5].map(|stream| waits.begin(vec![stream], vec![stream + 1]).unwrap());
        waits.end(begun[1]);
        for stream in [1, 5] {
            assert_eq!(waits.begin(vec![stream + 1], vec![stream]), None, "that one goes on");
        }
        let other_way = waits.begin(vec![4], vec![3]).unwrap();
        for number in [begun[0], begun[2], other_way] {
            waits.end(number);
        }
        assert!(waits.under_way.is_empty());
    }

    #[test]
    fn waits_are_refused_that_close_a_circle() {
        // Goal: a wait is refused exactly when it would wait, over any number of others, for the
        // tasks that it is inside of. Method: random waits of six streams that begin and end; the
        // model follows edges until nothing is added.
        let mut random = Numbers::new(seed());
        let mut waits = Waits::default();
        let mut model = Vec::<(u64, Vec<u64>, Vec<u64>)>::new();
        let mut refused = 0;
        for _ in 0..5_000 {
            if !model.is_empty() && random.below(5) < 2 {
                let (number, ..) = model.swap_remove(random.below(model.len()));
                waits.end(number);
                continue;
            }
            let [inside, behind] = [0; 2].map(|_| {
                (0..=random.below(2)).map(|_| random.below(6) as u64).collect::<Vec<u64>>()
            });
            let mut reached: BTreeSet<u64> = behind.iter().copied().collect();
            loop {
                let count = reached.len();
                let meets = |inside: &[u64]| inside.iter().any(|stream| reached.contains(stream));
                let more: Vec<u64> = model
                    .iter()
                    .filter(|(_, inside, _)| meets(inside))
                    .flat_map(|(.., behind)| behind.clone())
                    .collect();
                reached.extend(more);
                if reached.len() == count {
                    break;
                }
            }
            let closes = inside.iter().any(|stream| reached.contains(stream));
            let begun = waits.begin(inside.clone(), behind.clone());
            assert_eq!(begun.is_none(), closes, "{inside:?} behind {behind:?} in {model:?}");
            refused += usize::from(closes);
            model.extend(begun.map(|number| (number, inside, behind)));
        }
        assert!(refused > 100, "{refused}");
    }
}
