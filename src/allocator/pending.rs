//! Which streams still use memory: points of streams, and the blocks that wait for them.
//!
//! A free waits for a point of each stream that used the block, and costs no event: how far a
//! stream is, its counter says. Every stream is looked at, so one that is late holds back only what
//! it used itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::allocator::block::{Block, BlockId, State};
use crate::allocator::books::Books;
use crate::frontier::Progress;
use crate::stream::core::StreamCore;

/// A stream's task after which it does not use a block any more.
#[derive(Clone, Debug)]
pub(crate) struct UsePoint {
    pub(crate) stream: Arc<StreamCore>,
    pub(crate) ticket: u64,
}

/// What an allocator knows of a stream.
#[derive(Debug)]
struct User {
    progress: Arc<Progress>,
    /// For waiting alone: whether a point is done, the counter says, also when the stream is gone.
    stream: Weak<StreamCore>,
    /// The last task that any block waits or waited for.
    last_ticket: u64,
    /// Blocks by the task that they wait for.
    waiting: BTreeSet<(u64, BlockId)>,
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

    /// True when nobody will ask for it again.
    fn is_over(&self) -> bool {
        self.stream.strong_count() == 0 && self.progress.done() >= self.last_ticket
    }
}

/// The streams that memory was freed on or that used it, by their keys.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_key: BTreeMap<u64, User>,
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

    /// True when a stream has not passed its task `ticket`. Streams that are only numbers never
    /// use anything after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        let user = self.by_key.get(&stream);
        ticket > 0 && user.is_some_and(|user| user.progress.done() < ticket)
    }

    /// For how many points each block waits.
    pub(super) fn waiting_points(&self) -> BTreeMap<BlockId, u32> {
        let mut points = BTreeMap::new();
        for (_, id) in self.by_key.values().flat_map(|user| user.waiting.iter()) {
            *points.entry(*id).or_default() += 1;
        }
        points
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
            self.users.user(stream, *ticket);
            let busy_until = &mut self.blocks[id].busy_until;
            *busy_until = (*busy_until).max(*ticket);
        }
        let mut waiting_points = 0;
        for UsePoint { stream, ticket } in others {
            let user = self.users.user(stream, *ticket);
            // A point that is given twice is waited for once.
            if user.progress.done() < *ticket && user.waiting.insert((*ticket, id)) {
                waiting_points += 1;
            }
        }
        self.blocks[id].waiting_points = waiting_points;
        if waiting_points == 0 {
            self.complete_free(id);
        }
    }

    /// Completes the frees whose points are all passed; true when there was one.
    pub(super) fn complete_passed(&mut self) -> bool {
        let mut passed: Vec<BlockId> = Vec::new();
        for user in self.users.by_key.values_mut().filter(|user| !user.waiting.is_empty()) {
            let done = user.progress.done();
            while user.waiting.first().is_some_and(|(ticket, _)| *ticket <= done) {
                passed.extend(user.waiting.pop_first().map(|(_, id)| id));
            }
        }
        let mut has_completed = false;
        for id in passed {
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
            for (ticket, id) in &user.waiting {
                note(*key, *ticket, self.blocks[*id].bytes);
            }
        }
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if self.is_busy(block) {
                let key = self.segments[block.segment].owner.stream;
                note(key, block.busy_until, block.bytes);
            }
        }
        let holder = |(key, (ticket, bytes))| {
            let stream = self.users.by_key.get(&key)?.stream.upgrade()?;
            Some(Holder { stream, ticket, bytes })
        };
        held.into_iter().filter_map(holder).collect()
    }
}
