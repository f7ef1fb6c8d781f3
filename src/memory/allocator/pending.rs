//! Which streams still use memory: points of streams, and the blocks that wait for them.
//!
//! A free waits for a point of each stream that used the block, and costs no event: how far a
//! stream is, its counter says. Each stream is looked at by itself, so one that is late holds back
//! only what it used. A request looks at a few of the streams that something waits for, in turns,
//! at more before the device is asked, and at all before it fails; so does a free that waits for
//! several. Streams that are only known cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::base::device::Device;
use crate::base::stream_map::StreamMap;
use crate::base::sync::assert_no_lock_held;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::known_stream::KnownStream;
use crate::memory::allocator::native::piece::Piece;

/// A stream's task after which it does not use a block any more.
#[derive(Clone, Debug)]
pub(crate) struct UsePoint {
    pub(crate) stream: Arc<StreamCore>,
    pub(crate) ticket: u64,
}

/// What was freed and waits for points of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freed {
    Block(BlockId),
    /// Under the native policy.
    Piece(Piece),
}

/// How many streams are looked at by a request, and for each stream that becomes known.
pub(super) const LOOKS: usize = 2;
/// And before the device is asked: a longer list takes more than one turn.
pub(super) const LOOKS_BEFORE_GROWTH: usize = 32;
/// All of them.
pub(super) const ALL: usize = usize::MAX;

/// A stream that something waits for, be it gone or not.
#[derive(Debug)]
struct WaitedFor {
    stream: KnownStream,
    device: Device,
    /// What was freed, by the task that it waits for.
    freed: BTreeSet<(u64, Freed)>,
    /// The first of those tasks: a look that finds nothing passed needs no more.
    first_ticket: u64,
}

impl WaitedFor {
    /// Takes out what waits no longer; true when nothing is left.
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

/// The streams that freed memory waits for.
///
/// Equation: `points` says for each free how many streams list it: one at least.
#[derive(Debug, Default)]
pub(super) struct Pending {
    streams: StreamMap<WaitedFor>,
    points: BTreeMap<Freed, u32>,
}

impl Pending {
    /// Has something that was freed wait for its uses; false when all of them are over. A point
    /// that is given twice is waited for once.
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

    /// True when nothing waits: as a rule.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// How many streams something waits for, or did at the last look.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_waited_for(&self) -> usize {
        self.streams.len()
    }

    /// True when a request does not look at each stream that something waits for.
    pub(super) fn are_many_waited_for(&self) -> bool {
        self.streams.len() > LOOKS
    }

    /// Of the streams that are looked at next the drivers', and the first task of each that
    /// something waits for.
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

    /// The stream with a key, if something waits for it and it is there.
    pub(super) fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        self.streams.get(key)?.stream.core.upgrade()
    }

    /// What waits for each stream, by the task that it waits for.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, u64, Freed)> {
        self.streams.iter().flat_map(|(key, stream)| {
            stream.freed.iter().map(move |(ticket, freed)| (key, *ticket, *freed))
        })
    }

    /// The frees that wait, in order: blocks first.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = Freed> {
        self.points.keys().copied()
    }

    /// Takes out the frees whose last points the next streams have passed, of one device's or of
    /// any: by stream, whichever was looked at first, because the order is in the statistics.
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

    /// Asserts the equation.
    pub(super) fn check(&self) {
        let mut points = BTreeMap::new();
        self.waiting().for_each(|(_, _, freed)| *points.entry(freed).or_default() += 1);
        assert_eq!(points, self.points, "what waits for streams");
    }
}

/// What free memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// To go back to the device: whole pages and segments.
    Back,
    /// To serve a request of another stream: any.
    Served,
}

/// A stream that freed memory waits for. A list of them leaves the lock before it is dropped: the
/// last reference to a stream drops what that has, of users too.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) stream: Arc<StreamCore>,
    /// The last of its tasks that anything waits for.
    pub(super) ticket: u64,
    /// What waits.
    pub(super) bytes: usize,
}

impl Drop for Holder {
    fn drop(&mut self) {
        assert_no_lock_held();
    }
}
