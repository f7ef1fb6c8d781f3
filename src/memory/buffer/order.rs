//! Tasks that use buffers, enqueued behind conflicting tasks.
//!
//! Two uses of the same bytes *conflict* when one of them writes. A task is enqueued, and its use
//! noted, in one step under the locks of its allocations, taken in the order of their addresses: of
//! two threads with conflicting tasks the second one sees the first one's. The task makes its
//! stream wait for the last conflicting task of each other stream; on the same stream the queue is
//! the order, which costs nothing. Waits are only for tasks enqueued before them, so there are no
//! cycles.
//!
//! The host's own use counts while it lasts: a conflicting task is enqueued when it is over, and
//! comes after those that wait for their turn (`host_accesses`). Memory that its home stream still
//! uses from its earlier life counts as written there.
//!
//! Code that orders streams by events passes [`Order::Given`]: uses are noted, and nothing is
//! waited for.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::spin::SpinGuard;
use crate::base::sync::park;
use crate::engine::stream::Stream;
use crate::engine::stream::commands::Behind;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::direct::Direct;
use crate::engine::stream::enqueue::{Attempt, Checked, Enqueue, Unscheduled};
use crate::engine::stream::internal::Marker;
use crate::engine::stream::latched::WaitForLatch;
use crate::engine::stream::operation::MemoryAccess;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::allocation::{Allocation, Refusal, State};
use crate::memory::buffer::host::HOST_PERIOD;
use crate::memory::buffer::transfer::Transfer;
use crate::memory::buffer::uses::{ALL, LOOKS, Task, Touch, Use};
use crate::queue::{Command, Pushed};

/// How a task is ordered against other uses of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Behind conflicting uses.
    BehindConflicts,
    /// By the caller. It promises that no conflicting use runs at the same time.
    Given,
}

/// A buffer that a task uses, and whether it writes there.
#[derive(Clone, Copy)]
pub(super) struct Used<'a> {
    buffer: &'a Buffer,
    writes: bool,
}

/// The use of a task that writes.
pub(super) fn written(buffer: &Buffer) -> Used<'_> {
    Used { buffer, writes: true }
}

/// The use of a task that only reads.
pub(super) fn read(buffer: &Buffer) -> Used<'_> {
    Used { buffer, writes: false }
}

impl<'a> Used<'a> {
    fn allocation(&self) -> &'a Allocation {
        self.buffer.allocation()
    }

    /// The key that locks are ordered by.
    fn address(&self) -> usize {
        std::ptr::from_ref(self.allocation()).addr()
    }

    fn access(&self) -> MemoryAccess {
        let (address, bytes) = (self.buffer.begin(), self.buffer.nbytes());
        MemoryAccess { address, bytes: Some(bytes), writes: Some(self.writes) }
    }

    fn touch(&self) -> Touch {
        Touch { bytes: self.buffer.bytes(), writes: self.writes }
    }
}

/// Enqueues a task that uses buffers of one size, unless it has no bytes to work on.
#[inline]
pub(super) fn enqueue<T: Command<TaskContext>, const N: usize>(
    stream: &Stream,
    used: [Used<'_>; N],
    order: Order,
    command: T,
) -> Result<Transfer> {
    let core = stream.core();
    if used.iter().all(|used| used.buffer.is_empty()) {
        core.lifecycle.check()?;
        return Locked::new(&used).map(|_| Transfer::of_nothing());
    }
    debug_assert!(tells_of_all(&command, &used), "a subscriber is told of every buffer");
    core.enqueue(Using { used: &used, order, command }, Checked)
}

/// True when the command's details have each of its buffers.
fn tells_of_all<T: Command<TaskContext>>(command: &T, used: &[Used<'_>]) -> bool {
    let told = command.details().accesses;
    used.iter().all(|used| told.iter().any(|access| access.tells_of(&used.access())))
}

/// A task on its way into a stream, with the buffers that it uses: they are locked while the task
/// gets its ticket and its uses are noted.
struct Using<'a, T, const N: usize> {
    used: &'a [Used<'a>; N],
    order: Order,
    command: T,
}

impl<T: Command<TaskContext>, const N: usize> Enqueue for Using<'_, T, N> {
    type Command = T;
    type Receipt = Transfer;

    #[inline]
    fn run_directly(self, mut direct: Direct<'_>) -> Attempt<Self> {
        let core = direct.core();
        let mut locked = match Locked::new(self.used) {
            Ok(locked) => locked,
            Err(refusal) => return Attempt::Over(Err(refusal)),
        };
        let place = if locked.is_free(core, self.order) { direct.take_place() } else { None };
        let Some(ticket) = place else {
            drop(locked);
            return Attempt::Queue(self);
        };
        // Noted before the task runs: a free on another thread meanwhile comes after it.
        let forgotten = locked.note(core, Task::marker(ticket), self.order);
        drop(locked);
        drop(forgotten);
        let has_failed = direct.run::<T>(|context| self.command.run(context));
        if has_failed {
            // The error is still open: only a consumer ends it, and this thread is the consumer.
            core.failures.bind();
        }
        Attempt::Over(Ok(Transfer::of(core, ticket, has_failed)))
    }

    #[inline]
    fn queue(
        self,
        core: &Arc<StreamCore>,
        place: impl FnOnce(T) -> Pushed,
    ) -> Result<(Pushed, Transfer)> {
        let mut locked = Locked::new(self.used)?;
        if self.order == Order::BehindConflicts && locked.has_host_access() {
            locked = locked.without_host_access()?;
        }
        // For callers that query the transfer: an error could otherwise be opened, ended and
        // forgotten before.
        core.failures.bind();
        let mut waits = Waits::default();
        if self.order == Order::BehindConflicts {
            locked.each_conflict(core, |source, last| waits.push(core, source, last));
            locked.each_place(core, |wait| waits.push_command(core, wait));
        }
        let pushed = place(self.command);
        let forgotten = locked.note(core, Task::marker(pushed.ticket), self.order);
        drop(locked); // before streams are scheduled, or end with their last references
        drop(forgotten);
        Ok((waits.publish(pushed), Transfer::of(core, pushed.ticket, true)))
    }
}

/// The allocations that a task uses, locked.
struct Locked<'a, const N: usize> {
    used: &'a [Used<'a>; N],
    /// `None` for a later use of the same allocation: an earlier entry has its lock.
    states: [Option<SpinGuard<'a, State>>; N],
}

impl<'a, const N: usize> Locked<'a, N> {
    /// Fails when one was released.
    #[inline]
    fn new(used: &'a [Used<'a>; N]) -> Result<Self> {
        let mut places: [usize; N] = std::array::from_fn(|place| place);
        places.sort_by_key(|place| used[*place].address()); // stable: an earlier one has the lock
        let mut states = [const { None }; N];
        for (nth, place) in places.into_iter().enumerate() {
            let Used { buffer, .. } = used[place];
            let is_locked = nth > 0 && used[places[nth - 1]].address() == used[place].address();
            if !is_locked {
                let state = used[place].allocation().lock();
                states[place] = Some(state.ok_or_else(|| buffer.refused(Refusal::Released))?);
            }
        }
        Ok(Self { used, states })
    }

    /// The state of the allocation at an index.
    #[inline]
    fn state(&mut self, place: usize) -> &mut State {
        let address = self.used[place].address();
        let of_it = self.used.iter().zip(&mut self.states).find_map(|(used, state)| {
            if used.address() == address { state.as_mut() } else { None }
        });
        of_it.expect("each allocation is locked")
    }

    /// True when the task has nothing to wait for.
    fn is_free(&mut self, core: &Arc<StreamCore>, order: Order) -> bool {
        if order == Order::Given {
            return true;
        }
        let mut is_free = !self.has_host_access() && !self.is_behind_host_access();
        self.each_conflict(core, |_, _| is_free = false);
        is_free
    }

    /// True when a host thread uses bytes in conflict.
    #[inline]
    fn has_host_access(&mut self) -> bool {
        (0..N).any(|place| {
            let writes = self.used[place].writes;
            let host_accesses = &self.state(place).host_accesses;
            host_accesses.is_any() && host_accesses.conflict_with(writes)
        })
    }

    /// True when a host thread waits for its turn to use bytes in conflict.
    fn is_behind_host_access(&mut self) -> bool {
        (0..N).any(|place| {
            let touch = self.used[place].touch();
            self.state(place).host_accesses.have_place_before(&touch)
        })
    }

    /// Locks again when the host threads that were there are done. Host threads that arrive
    /// meanwhile wait for their turn.
    #[cold]
    fn without_host_access(mut self) -> Result<Self> {
        let used = self.used;
        (0..N).for_each(|place| self.state(place).host_accesses.announce());
        loop {
            drop(self);
            park(Some(HOST_PERIOD));
            self = match Self::new(used) {
                Ok(locked) => locked,
                Err(refusal) => {
                    for one in used {
                        one.allocation().state.lock().host_accesses.withdraw();
                    }
                    return Err(refusal);
                }
            };
            if !self.has_host_access() {
                (0..N).for_each(|place| self.state(place).host_accesses.withdraw());
                return Ok(self);
            }
        }
    }

    /// Calls `found` with each wait that a task of this stream needs to come after those threads.
    #[inline]
    fn each_place(&mut self, core: &Arc<StreamCore>, mut found: impl FnMut(WaitForLatch)) {
        for place in 0..N {
            let touch = self.used[place].touch();
            let host_accesses = &mut self.state(place).host_accesses;
            if host_accesses.is_any() {
                host_accesses.each_wait(core, &touch, &mut found);
            }
        }
    }

    /// Calls `found` with each task of another stream that a task of this one must come after.
    #[inline]
    fn each_conflict(
        &mut self,
        core: &Arc<StreamCore>,
        mut found: impl FnMut(&Arc<StreamCore>, Task),
    ) {
        for place in 0..N {
            let (used, touch) = (self.used[place], self.used[place].touch());
            let conflicts = used.allocation().conflicts(self.state(place), Some(core), &touch);
            conflicts.for_each(|(source, last)| found(source, last));
        }
    }

    /// Notes the uses of a task that has its place. The caller drops the result without the locks.
    #[inline]
    fn note(&mut self, core: &Arc<StreamCore>, task: Task, order: Order) -> [Option<Vec<Use>>; N] {
        let done = core.progress.done();
        // The search for conflicts has already looked at each use.
        let looks = if order == Order::BehindConflicts { ALL } else { LOOKS };
        std::array::from_fn(|place| {
            let (used, touch) = (self.used[place], self.used[place].touch());
            used.allocation().note(self.state(place), core, task, &touch, done, looks)
        })
    }
}

/// Waits that were enqueued under locks, and the steps left for them.
#[derive(Default)]
struct Waits {
    is_first_of_segment: bool,
    /// Streams that got a task to be waited for.
    marked: Vec<Arc<StreamCore>>,
}

impl Waits {
    /// Has a stream wait for a task of another one.
    #[cold]
    fn push(&mut self, core: &Arc<StreamCore>, source: &Arc<StreamCore>, last: Task) {
        let Task { mut ticket, is_marker } = last;
        if !is_marker {
            // It wakes no thread itself.
            ticket = source.enqueue(Marker, Unscheduled).ticket;
            self.marked.push(Arc::clone(source));
        }
        self.push_command(core, Behind::new(Arc::clone(source), ticket));
    }

    /// Pushes a wait to a stream.
    #[cold]
    fn push_command<T: Command<TaskContext>>(&mut self, core: &Arc<StreamCore>, wait: T) {
        let pushed = core.enqueue(wait, Unscheduled);
        self.is_first_of_segment |= pushed.is_first_of_segment;
    }

    /// Schedules the other streams; returns the last push, as if it were the only one.
    #[inline]
    fn publish(self, last: Pushed) -> Pushed {
        self.marked.iter().for_each(StreamCore::schedule);
        let is_first_of_segment = last.is_first_of_segment | self.is_first_of_segment;
        Pushed { is_first_of_segment, ..last }
    }
}
