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
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::block::{Block, BlockId, State};
use crate::memory::allocator::books::Books;
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

/// A stream that free blocks may still be in use on: their own.
#[derive(Debug)]
struct Home {
    stream: KnownStream,
    /// The last of its tasks that used any block.
    last_ticket: u64,
}

impl Home {
    /// True when the stream is gone and its last task is done.
    fn is_over(&self) -> bool {
        self.stream.core.strong_count() == 0 && self.stream.progress.done() >= self.last_ticket
    }
}

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

/// The streams that memory was freed on, and those that it waits for.
#[derive(Debug, Default)]
pub(super) struct Users {
    homes: StreamMap<Home>,
    /// Of each something waits.
    waited_for: StreamMap<WaitedFor>,
}

impl Users {
    /// A stream has used blocks of its own up to a task.
    pub(super) fn note(&mut self, stream: &Arc<StreamCore>, ticket: u64) {
        if self.homes.get(stream.key()).is_none() {
            self.homes.extract_if(LOOKS, |_, home| home.is_over());
        }
        let home = self.homes.get_or_insert_with(stream.key(), || Home {
            stream: KnownStream::of(stream),
            last_ticket: 0,
        });
        home.last_ticket = ticket.max(home.last_ticket);
    }

    /// Has something that was freed wait for a stream's task. False when that was passed, or is
    /// waited for already: a point that is given twice is waited for once.
    pub(super) fn wait_for(&mut self, stream: &Arc<StreamCore>, ticket: u64, freed: Freed) -> bool {
        if stream.progress.done() >= ticket {
            return false;
        }
        let waited_for = self.waited_for.get_or_insert_with(stream.key(), || WaitedFor {
            stream: KnownStream::of(stream),
            device: stream.identity.device,
            freed: BTreeSet::new(),
            first_ticket: u64::MAX,
        });
        waited_for.first_ticket = ticket.min(waited_for.first_ticket);
        waited_for.freed.insert((ticket, freed))
    }

    /// How many streams something waits for, or did at the last look.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_waited_for(&self) -> usize {
        self.waited_for.len()
    }

    /// True when a request does not look at each stream that something waits for.
    pub(super) fn are_many_waited_for(&self) -> bool {
        self.waited_for.len() > LOOKS
    }

    /// True when a stream has not passed its task `ticket`. Streams that are only numbers never
    /// use anything after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        ticket > 0
            && self.homes.get(stream).is_some_and(|home| home.stream.progress.done() < ticket)
    }

    /// For how many points each block and piece waits.
    pub(super) fn waiting_points(&self) -> BTreeMap<Freed, u32> {
        let mut points = BTreeMap::new();
        let freed = self.waited_for.values().flat_map(|waited_for| &waited_for.freed);
        freed.for_each(|(_, freed)| *points.entry(*freed).or_default() += 1);
        points
    }

    /// Of the streams that are looked at next the drivers', and the first task of each that
    /// something waits for.
    pub(super) fn next_on_drivers(&self, most: usize) -> Vec<(Weak<StreamCore>, u64)> {
        let next = self.waited_for.next(most).map(|(_, waited_for)| waited_for);
        let first = |waited_for: &WaitedFor| {
            let (ticket, _) = waited_for.freed.first()?;
            Some((Weak::clone(&waited_for.stream.core), *ticket))
        };
        next.filter(|waited_for| !waited_for.stream.progress.is_on_host())
            .filter_map(first)
            .collect()
    }

    /// The stream with a key, if it is known and there.
    fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        let waited_for = self.waited_for.get(key).and_then(|known| known.stream.core.upgrade());
        waited_for.or_else(|| self.homes.get(key)?.stream.core.upgrade())
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

/// A stream that freed memory waits for.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) stream: Arc<StreamCore>,
    /// The last of its tasks that anything waits for.
    pub(super) ticket: u64,
    /// What waits.
    pub(super) bytes: usize,
}

impl Books {
    /// True when its own stream has not passed the last use of a free block. Reused on that stream
    /// it is behind this use; for everything else the use has to be over.
    pub(super) fn is_busy(&self, block: &Block) -> bool {
        let stream = self.segments[block.segment].owner.stream;
        self.users.is_using(stream, block.busy_until)
    }

    /// Frees a block behind its uses: on its own stream it is ordered behind those, and for
    /// points on other streams it waits.
    pub(super) fn free(&mut self, id: BlockId, home: Option<&UsePoint>, others: &[UsePoint]) {
        self.complete_some_for(others.len());
        self.end_allocation(id);
        if let Some(UsePoint { stream, ticket }) = home {
            debug_assert_eq!(stream.key(), self.owner_of(id).stream, "freed on its own stream");
            self.users.note(stream, *ticket);
            let busy_until = &mut self.blocks[id].busy_until;
            *busy_until = (*busy_until).max(*ticket);
        }
        let mut waiting_points = 0;
        for UsePoint { stream, ticket } in others {
            waiting_points += u32::from(self.users.wait_for(stream, *ticket, Freed::Block(id)));
        }
        self.blocks[id].waiting_points = waiting_points;
        if waiting_points == 0 {
            self.complete_free(id);
        }
    }

    /// Completes the frees whose points are all passed, of the next streams that something waits
    /// for; true when there was one. Not while the same requests are to get the same offsets,
    /// because how far streams are is no request; see [`Self::complete_behind_synchronize`].
    pub(super) fn complete_some_if_free(&mut self, most: usize) {
        if !self.config.deterministic {
            self.complete_some(most);
        }
    }

    /// Before a free waits for several points. A request looks at as many streams as one point
    /// needs, so that those which have passed do not become more.
    pub(super) fn complete_some_for(&mut self, points: usize) {
        if points > 1 {
            self.complete_some_if_free(LOOKS * (points - 1));
        }
    }

    /// Completes all frees whose points are all passed; true when there was one.
    pub(super) fn complete_passed(&mut self) -> bool {
        self.complete_some(ALL)
    }

    /// As [`Self::complete_passed`], of the next streams that something waits for.
    pub(super) fn complete_some(&mut self, most: usize) -> bool {
        // Asked before each search, and nothing waits as a rule.
        !self.users.waited_for.is_empty() && self.complete_waiting(most)
    }

    fn complete_waiting(&mut self, most: usize) -> bool {
        self.complete_those(most, |_| true)
    }

    /// Completes the frees that wait for streams of a device alone, all of which have passed their
    /// points: the host has waited for it. Where frees are completed behind requests, does nothing.
    pub(super) fn complete_behind_synchronize(&mut self, device: Device) {
        if self.config.deterministic {
            self.complete_those(ALL, |stream| stream.device == device);
        }
    }

    fn complete_those(&mut self, most: usize, is_asked: impl Fn(&WaitedFor) -> bool) -> bool {
        let mut passed: Vec<(u64, Freed)> = Vec::new();
        let is_over =
            |key, stream: &mut WaitedFor| is_asked(stream) && stream.pass(key, &mut passed);
        self.users.waited_for.extract_if(most, is_over);
        // By stream, whichever was looked at first: the order is in the statistics.
        passed.sort_by_key(|(key, _)| *key);
        let mut has_completed = false;
        for (_, freed) in passed {
            let id = match freed {
                Freed::Block(id) => id,
                Freed::Piece(piece) => {
                    has_completed |= self.pass_piece(piece);
                    continue;
                }
            };
            let block = &mut self.blocks[id];
            debug_assert_eq!(block.state, State::AwaitingFree, "{block:?}");
            block.waiting_points -= 1;
            if block.waiting_points == 0 {
                self.complete_free(id);
                has_completed = true;
            }
        }
        has_completed
    }

    /// True when nothing uses what is to go back to the device.
    pub(super) fn is_all_to_go_back(&self) -> bool {
        self.holders(Wanted::Back).is_empty()
    }

    /// The streams that freed memory waits for: for its free, or for what it is wanted for.
    /// References to streams: to be dropped without the lock.
    pub(super) fn holders(&self, wanted: Wanted) -> Vec<Holder> {
        let mut held: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut note = |key: u64, ticket: u64, bytes: usize| {
            let (last, sum) = held.entry(key).or_default();
            *last = ticket.max(*last);
            *sum += bytes;
        };
        for (key, stream) in self.users.waited_for.iter() {
            for (ticket, freed) in &stream.freed {
                let bytes = match freed {
                    Freed::Block(id) => self.blocks[*id].bytes,
                    Freed::Piece(piece) => self.native.awaiting[piece].bytes(),
                };
                note(key, *ticket, bytes);
            }
        }
        self.native_holders(wanted, &mut note);
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if self.is_busy(block) {
                let key = self.segments[block.segment].owner.stream;
                note(key, block.busy_until, block.bytes);
            }
        }
        let holder = |(key, (ticket, bytes))| {
            let stream = self.users.stream(key).or_else(|| self.native.stream(key))?;
            Some(Holder { stream, ticket, bytes })
        };
        held.into_iter().filter_map(holder).collect()
    }
}
