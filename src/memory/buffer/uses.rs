//! The tasks that use an allocation, each stream's last one and last writer, and the free.
//!
//! # Frees in stream order
//!
//! A freed block may serve the next request on its home stream at once: the tasks of that request
//! run after every earlier task of the stream. For each other stream that uses the block, the
//! allocator records a use point (stream and ticket) and polls the stream's progress counter. It
//! also records one on the home stream of pinned memory, whose next request may be on any stream.
//! No thread and no stream waits for a free. On a driver's stream, this file also holds an empty
//! value at the use point: the runtime polls a stream until the device has passed its held values.
#![expect(unsafe_code, reason = "gives up a shared block once, behind its uses")]

use std::ops::Range;
use std::sync::Arc;

use crate::backend::contract::{Address, MemoryKind};
use crate::base::device::Device;
use crate::base::error::StreamFailure;
use crate::base::stream_map::StreamMap;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::order_watch;
use crate::engine::stream::order_watch::{Told, UsedBytes};
use crate::memory::allocator::{Allocated, CachingAllocator, UsePoint};

/// A ticket on some stream, and how a thread can wait for it. Tasks compare by ticket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) ticket: u64,
    /// True when the task wakes its waiters, as copies, fills and launches with buffers do.
    pub(crate) is_marker: bool,
}

impl Task {
    pub(crate) fn marker(ticket: u64) -> Self {
        Self { ticket, is_marker: true }
    }

    pub(crate) fn any(ticket: u64) -> Self {
        Self { ticket, is_marker: false }
    }
}

/// The bytes of an allocation that one task accesses, and whether the task writes them.
#[derive(Clone, Debug)]
pub(super) struct AccessedBytes {
    pub(super) bytes: Range<usize>,
    /// The task may write: later accesses wait for it.
    pub(super) writes: bool,
    /// The task counts as a write that makes skipped writes before it valid.
    overwrites: bool,
}

/// True when the ranges have a byte in common. An empty range is [`NO_BYTES`].
#[inline]
fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    other.start < one.end && one.start < other.end
}

/// The empty range in an [`AccessedBytes`]. It overlaps no range, and extends none.
#[expect(clippy::reversed_empty_ranges, reason = "any union with it is the other range")]
const NO_BYTES: Range<usize> = usize::MAX..0;

impl AccessedBytes {
    /// Stands for unknown accesses: covers all bytes and counts as a write.
    pub(super) const UNKNOWN: Self = Self { bytes: 0..usize::MAX, writes: true, overwrites: true };

    /// Stands for work that the program has told of, which may only read.
    pub(super) const TOLD: Self = Self { overwrites: false, ..Self::UNKNOWN };

    #[inline]
    pub(super) fn new(bytes: Range<usize>, writes: bool) -> Self {
        if bytes.is_empty() {
            Self::empty(writes)
        } else {
            Self { bytes, writes, overwrites: writes }
        }
    }

    #[cold]
    fn empty(writes: bool) -> Self {
        Self { bytes: NO_BYTES, writes, overwrites: writes }
    }

    /// True when the byte ranges have a byte in common and at least one of the two tasks writes.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes) && overlap(&self.bytes, &other.bytes)
    }
}

/// The last task of one stream that uses an allocation, the last that may write it, and the ticket
/// of the last that counts as a write. Ticket 0 stands for no task.
#[derive(Clone, Debug, Default)]
pub(super) struct LastTasks {
    pub(super) task: Task,
    write: Task,
    overwrite: u64,
    /// Covers the bytes of every task that may be unfinished.
    bytes: Range<usize>,
}

impl LastTasks {
    /// Records one more task. The stream has done its tasks up to ticket `done`: if they include
    /// every recorded task, the byte range restarts from the bytes of `accessed`.
    #[inline]
    pub(super) fn note(&mut self, task: Task, accessed: &AccessedBytes, done: u64) {
        let AccessedBytes { bytes, writes, overwrites } = accessed;
        let Range { start, end } = self.bytes;
        self.bytes = if self.task.ticket <= done {
            bytes.clone()
        } else {
            start.min(bytes.start)..end.max(bytes.end)
        };
        self.task = self.task.max(task);
        if *writes {
            self.write = self.write.max(task);
        }
        if *overwrites {
            self.overwrite = self.overwrite.max(task.ticket);
        }
    }

    /// The task that an access to `accessed` must wait for; ticket 0 for none. The task may touch
    /// other bytes, because one range covers the bytes of all unfinished tasks.
    pub(super) fn conflict(&self, accessed: &AccessedBytes) -> Task {
        let AccessedBytes { bytes, writes, .. } = accessed;
        if !overlap(bytes, &self.bytes) {
            return Task::default();
        }
        if *writes { self.task } else { self.write }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) stream: Arc<StreamCore>,
    pub(super) last: LastTasks,
}

impl Use {
    /// The failure of the last task, or else of the last task that may have written the memory, or
    /// of the last that counts as a write: later tasks that may only read make no skipped write
    /// valid. Without failures that a synchronise has raised before.
    pub(super) fn failure(&self) -> Option<Arc<StreamFailure>> {
        let failures = &self.stream.failures;
        let LastTasks { task, write, overwrite, .. } = &self.last;
        let tickets = [task.ticket, write.ticket, *overwrite];
        tickets.into_iter().find_map(|ticket| failures.unsynchronized_at(ticket))
    }

    /// True when the last task is known to be done. Does not query the device.
    pub(super) fn is_done(&self) -> bool {
        self.stream.progress.done() >= self.last.task.ticket
    }

    /// True when waits may ignore this use: its last task is done and its stream has not failed.
    fn is_over(&self) -> bool {
        self.is_done() && !self.stream.failures.has_failed()
    }

    fn is_on(&self, stream: &Arc<StreamCore>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }
}

/// The uses of one allocation, at most one per stream.
///
/// Most allocations have one stream, for which a record costs a comparison and a maximum. With more
/// streams, each record also checks a few known uses and forgets the finished ones. So the cost of
/// a record does not grow with the number of streams, and dropped streams do not accumulate.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The uses on the home stream. The allocation itself holds the reference to that stream.
    pub(super) at_home: LastTasks,
    first: Option<Use>,
    more: StreamMap<Use>,
}

/// Each record checks this many known uses, and forgets the finished ones among them.
pub(super) const CHECKS_PER_USE: usize = 8;
/// In place of `CHECKS_PER_USE`, for callers that have read all uses anyway.
pub(super) const CHECK_ALL: usize = usize::MAX;

/// A full map retains at most this many failed uses, so that a later wait reports their errors.
const MAX_FAILED: usize = 64;

impl Uses {
    /// Records a use on the home stream. Parameters and result are those of [`Uses::record`].
    #[inline]
    pub(super) fn record_home(
        &mut self,
        task: Task,
        accessed: &AccessedBytes,
        done: u64,
        checks: usize,
    ) -> Option<Vec<Use>> {
        self.at_home.note(task, accessed, done);
        self.forget_finished(checks)
    }

    /// Records a use on a stream other than the home stream, which has done its tasks up to `done`.
    /// Also checks up to `checks` uses, and returns those that it forgets. The caller must drop
    /// them outside of the lock, because a use may hold the last reference to its stream.
    #[inline]
    pub(super) fn record(
        &mut self,
        stream: &Arc<StreamCore>,
        task: Task,
        accessed: &AccessedBytes,
        done: u64,
        checks: usize,
    ) -> Option<Vec<Use>> {
        if let Some(first) = &mut self.first
            && first.is_on(stream)
        {
            first.last.note(task, accessed, done);
            return self.forget_finished(checks);
        }
        self.record_other(stream, task, accessed, done, checks)
    }

    /// Checks up to `checks` uses; removes the finished ones and returns them.
    #[inline]
    pub(super) fn forget_finished(&mut self, checks: usize) -> Option<Vec<Use>> {
        if self.more.is_empty() { None } else { Some(self.take_finished(checks)) }
    }

    #[inline(never)]
    fn take_finished(&mut self, checks: usize) -> Vec<Use> {
        self.more.extract_if(checks, |_, known| known.is_over())
    }

    /// Makes room in a full map: removes finished uses, and failed uses beyond `MAX_FAILED`.
    fn evict(&mut self) -> Vec<Use> {
        let mut num_failed = 0;
        let forgotten = self.more.extract_if(CHECK_ALL, |_, known| {
            let has_failed = known.is_done() && known.stream.failures.has_failed();
            num_failed += usize::from(has_failed);
            known.is_over() || has_failed && num_failed > MAX_FAILED
        });
        self.more.make_room();
        forgotten
    }

    #[inline(never)]
    fn record_other(
        &mut self,
        stream: &Arc<StreamCore>,
        task: Task,
        accessed: &AccessedBytes,
        done: u64,
        checks: usize,
    ) -> Option<Vec<Use>> {
        if let Some(known) = self.more.get_mut(stream.key()) {
            known.last.note(task, accessed, done);
            return self.forget_finished(checks);
        }
        let is_full = self.more.is_full();
        let mut forgotten = if is_full { self.evict() } else { self.take_finished(checks) };
        forgotten.extend(self.first.take_if(|known| known.is_over()));
        let mut new = Use { stream: Arc::clone(stream), last: LastTasks::default() };
        new.last.note(task, accessed, done);
        if self.first.is_none() {
            self.first = Some(new);
        } else {
            self.more.insert(stream.key(), new);
        }
        Some(forgotten)
    }

    /// One use per stream other than the home stream; recently finished uses may be among them.
    pub(super) fn others(&self) -> impl Iterator<Item = &Use> {
        self.first.iter().chain(self.more.values())
    }

    /// True when a stream other than the home stream may use the memory.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.first.is_some() || !self.more.is_empty()
    }

    pub(super) fn into_others(self) -> impl Iterator<Item = Use> {
        self.first.into_iter().chain(self.more.into_values())
    }
}

/// A block of an allocator, which is freed once. `State::is_released` records the free.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) allocator: Arc<CachingAllocator>,
    pub(super) block: Allocated,
    /// The device of the memory; for pinned host memory, the device that the request named.
    pub(super) device: Device,
    pub(super) kind: MemoryKind,
    pub(super) bytes: usize,
}

impl Memory {
    pub(super) fn address(&self) -> Address {
        Address(self.block.address())
    }

    /// All of it, for a watch of the order.
    pub(super) fn all_bytes(&self, home: &StreamCore) -> UsedBytes {
        UsedBytes {
            runtime: home.lifecycle.runtime,
            home: home.key(),
            address: self.block.address(),
            bytes: self.bytes,
            range: 0..self.bytes,
            writes: None,
        }
    }
}

/// Frees a block and clears the uses. The free is ordered after all work on the home stream and
/// after the uses on other streams. Never called in a forked child.
///
/// # Safety
/// The caller must call this function only once for `memory`.
#[inline]
pub(super) unsafe fn free(memory: &Memory, home: &Arc<StreamCore>, uses: &mut Uses) {
    if memory.bytes == 0 {
        *uses = Uses::default();
        return;
    }
    if order_watch::is_on() {
        order_watch::tell(Told::Free(memory.all_bytes(home)));
    }
    // SAFETY: the caller calls `free` once for this memory, so the block is given up once.
    let block = unsafe { memory.block.give_up() };
    if home.on_host && !uses.has_others() && home.progress.done() >= home.pushed() {
        uses.at_home = LastTasks::default();
        return memory.allocator.free_behind(block, None, &[]);
    }
    free_behind_uses(memory, block, home, std::mem::take(uses).into_others());
}

fn free_behind_uses(
    memory: &Memory,
    block: Allocated,
    home: &Arc<StreamCore>,
    others: impl Iterator<Item = Use>,
) {
    // On a driver's stream, the program may have submitted work through the native handle. The
    // ticket of a new task covers that work.
    let ticket = if home.on_host { home.pushed() } else { home.enqueue(EmptyTask, Always).ticket };
    let home = point(home, ticket);
    let others = others.filter(|point| !point.is_done());
    let mut others: Vec<UsePoint> =
        others.map(|Use { stream, last }| point(&stream, last.task.ticket)).collect();
    if memory.kind == MemoryKind::Host {
        others.push(home); // the next request of pinned memory may be on any stream
        return memory.allocator.free_behind(block, None, &others);
    }
    memory.allocator.free_behind(block, Some(&home), &others);
}

fn point(stream: &Arc<StreamCore>, ticket: u64) -> UsePoint {
    if !stream.on_host && stream.progress.done() < ticket {
        stream.hold(ticket, Box::new(()));
    }
    UsePoint { stream: Arc::clone(stream), ticket }
}
