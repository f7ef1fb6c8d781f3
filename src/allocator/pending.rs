//! Which streams still use memory: points of streams, and the blocks that wait for them.
//!
//! A free waits for a point of each stream that used the block, and costs no event: how far a
//! stream is, its counter says. Every stream is looked at, so one that is late holds back only what
//! it used itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::allocator::block::{Block, BlockId, State};
use crate::allocator::books::Books;
use crate::allocator::native::piece::Piece;
use crate::frontier::Progress;
use crate::stream::core::StreamCore;

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

/// What an allocator knows of a stream.
#[derive(Debug)]
struct User {
    progress: Arc<Progress>,
    /// For waiting alone: whether a point is done, the counter says, also when the stream is gone.
    stream: Weak<StreamCore>,
    /// The last task that any block waits or waited for.
    last_ticket: u64,
    /// What was freed, by the task that it waits for.
    waiting: BTreeSet<(u64, Freed)>,
}

impl User {
    fn new(stream: &Arc<StreamCore>) -> Self {
        Self {
            progress: Arc::clone(&stream.progress),
            stream: Arc::downgrade(stream),
            last_ticket: 0,
            waiting: BTreeSet::new(),
        }
    }

    /// True when nobody will ask for it again, nor has a free that waits for it.
    fn is_over(&self) -> bool {
        let is_done = self.progress.done() >= self.last_ticket;
        self.stream.strong_count() == 0 && is_done && self.waiting.is_empty()
    }
}

/// The streams that memory was freed on or that used it, by their keys.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_key: BTreeMap<u64, User>,
    /// For how many points anything waits, of all streams.
    waiting_count: usize,
    /// Size at which those that are over are forgotten.
    sweep_at: usize,
}

/// Streams below which none is forgotten.
const LEAST_SWEEP: usize = 64;

impl Users {
    fn user(&mut self, stream: &Arc<StreamCore>, ticket: u64) -> &mut User {
        if self.by_key.len() >= self.sweep_at {
            self.by_key.retain(|_, user| !user.is_over());
            self.sweep_at = LEAST_SWEEP.max(2 * self.by_key.len());
        }
        let user = self.by_key.entry(stream.key()).or_insert_with(|| User::new(stream));
        user.last_ticket = user.last_ticket.max(ticket);
        user
    }

    /// A stream has used something up to a task.
    pub(super) fn note(&mut self, stream: &Arc<StreamCore>, ticket: u64) {
        self.user(stream, ticket);
    }

    /// Has something that was freed wait for a stream's task. False when that was passed, or is
    /// waited for already: a point that is given twice is waited for once.
    pub(super) fn wait_for(&mut self, stream: &Arc<StreamCore>, ticket: u64, freed: Freed) -> bool {
        let user = self.user(stream, ticket);
        let is_new = user.progress.done() < ticket && user.waiting.insert((ticket, freed));
        self.waiting_count += usize::from(is_new);
        is_new
    }

    /// True when a stream has not passed its task `ticket`. Streams that are only numbers never
    /// use anything after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        let user = self.by_key.get(&stream);
        ticket > 0 && user.is_some_and(|user| user.progress.done() < ticket)
    }

    /// For how many points each block waits.
    pub(super) fn waiting_points(&self) -> BTreeMap<BlockId, u32> {
        let blocks = self.all_waiting().filter_map(|freed| match freed {
            Freed::Block(id) => Some(id),
            Freed::Piece(_) => None,
        });
        counted(blocks)
    }

    /// The same of the native policy's pieces.
    pub(super) fn waiting_pieces(&self) -> BTreeMap<Piece, u32> {
        let pieces = self.all_waiting().filter_map(|freed| match freed {
            Freed::Piece(piece) => Some(piece),
            Freed::Block(_) => None,
        });
        counted(pieces)
    }

    fn all_waiting(&self) -> impl Iterator<Item = Freed> {
        self.by_key.values().flat_map(|user| user.waiting.iter()).map(|(_, freed)| *freed)
    }

    /// The drivers' streams that blocks wait for, and the first task of each that one waits for.
    pub(super) fn waited_for_on_drivers(&self) -> Vec<(Weak<StreamCore>, u64)> {
        let of_drivers = self.by_key.values().filter(|user| !user.progress.is_on_host());
        let first = |user: &User| {
            let (ticket, _) = user.waiting.first()?;
            Some((Weak::clone(&user.stream), *ticket))
        };
        of_drivers.filter_map(first).collect()
    }
}

fn counted<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, u32> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts
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

    /// The same where it does not matter when: not while the same requests are to get the same
    /// offsets, because how far streams are is no request.
    pub(super) fn complete_passed_if_free(&mut self) {
        if !self.config.deterministic {
            self.complete_passed();
        }
    }

    /// Completes the frees whose points are all passed; true when there was one.
    pub(super) fn complete_passed(&mut self) -> bool {
        // Asked before each search, and nothing waits as a rule.
        self.users.waiting_count > 0 && self.complete_waiting()
    }

    fn complete_waiting(&mut self) -> bool {
        let mut passed: Vec<Freed> = Vec::new();
        for user in self.users.by_key.values_mut().filter(|user| !user.waiting.is_empty()) {
            let done = user.progress.done();
            while user.waiting.first().is_some_and(|(ticket, _)| *ticket <= done) {
                passed.extend(user.waiting.pop_first().map(|(_, freed)| freed));
            }
        }
        self.users.waiting_count -= passed.len();
        let mut has_completed = false;
        for freed in passed {
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

    /// The streams that freed memory waits for: for its free, or for going back to the device.
    /// References to streams: to be dropped without the lock.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let mut held: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut note = |key: u64, ticket: u64, bytes: usize| {
            let (last, sum) = held.entry(key).or_default();
            *last = ticket.max(*last);
            *sum += bytes;
        };
        for (key, user) in &self.users.by_key {
            for (ticket, freed) in &user.waiting {
                let bytes = match freed {
                    Freed::Block(id) => self.blocks[*id].bytes,
                    Freed::Piece(piece) => self.native.awaiting[piece].bytes(),
                };
                note(*key, *ticket, bytes);
            }
        }
        self.native_holders(&mut note);
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if self.is_busy(block) {
                let key = self.segments[block.segment].owner.stream;
                note(key, block.busy_until, block.bytes);
            }
        }
        let holder = |(key, (ticket, bytes))| {
            let known = self.users.by_key.get(&key).and_then(|user| user.stream.upgrade());
            let stream = known.or_else(|| self.native.stream(key))?;
            Some(Holder { stream, ticket, bytes })
        };
        held.into_iter().filter_map(holder).collect()
    }
}
