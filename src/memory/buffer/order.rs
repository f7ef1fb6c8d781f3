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
//! comes after those that wait for their turn ([`crate::memory::buffer::hosts`]). Memory that its
//! home stream still uses from its earlier life counts as written there.
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
use crate::engine::stream::direct::Announced;
use crate::engine::stream::gated::UntilOpen;
use crate::engine::stream::own::Marker;
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
    task: T,
) -> Result<Transfer> {
    let core = stream.core();
    core.lifecycle.check()?;
    if used.iter().all(|used| used.buffer.is_empty()) {
        return Locked::new(&used).map(|_| Transfer::of_nothing());
    }
    let task = match enqueue_directly(core, &used, order, task) {
        Ok(transfer) => return transfer,
        Err(task) => task,
    };
    let mut locked = Locked::new(&used)?;
    if order == Order::BehindConflicts && locked.is_hosts() {
        locked = locked.when_not_hosts()?;
    }
    // For callers that query the transfer: an error could otherwise be opened, ended and forgotten
    // before.
    core.failures.bind();
    let mut waits = Waits::default();
    if order == Order::BehindConflicts {
        locked.each_conflict(core, |source, last| waits.push(core, source, last));
        locked.each_place(core, |wait| waits.push_command(core, wait));
    }
    let pushed = core.push_unscheduled(task);
    let forgotten = locked.note(core, Task::marker(pushed.ticket), order);
    drop(locked); // before streams are scheduled, or end with their last references
    drop(forgotten);
    match core.published(waits.publish(pushed)) {
        Ok(()) => Ok(Transfer::of(core, pushed.ticket, true)),
        Err(refusal) => {
            core.failures.unbind();
            Err(refusal)
        }
    }
}

/// The same past the queue, on a driver's stream. Returns the task where it has to be enqueued: on
/// other streams, and where it has to wait for something.
#[inline]
fn enqueue_directly<T: Command<TaskContext>, const N: usize>(
    core: &Arc<StreamCore>,
    used: &[Used<'_>; N],
    order: Order,
    task: T,
) -> Result<Result<Transfer>, T> {
    if core.on_host {
        return Err(task);
    }
    // Known before it runs: a free on another thread meanwhile comes after it.
    let announce = |ticket| {
        let mut locked = Locked::new(used).map_err(Some)?;
        let mut is_free = true;
        if order == Order::BehindConflicts {
            is_free = !locked.is_hosts() && !locked.is_behind_hosts();
            locked.each_conflict(core, |_, _| is_free = false);
        }
        let forgotten = is_free.then(|| locked.note(core, Task::marker(ticket), order));
        drop(locked);
        forgotten.map(drop).ok_or(None)
    };
    match core.push_watched_directly(task, announce) {
        Announced::Ran { ticket, has_failed } => Ok(Ok(Transfer::of(core, ticket, has_failed))),
        Announced::Refused(Some(refusal), _) => Ok(Err(refusal)),
        Announced::Refused(None, task) | Announced::Queueable(task) => Err(task),
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

    /// True when a host thread uses bytes in conflict.
    #[inline]
    fn is_hosts(&mut self) -> bool {
        (0..N).any(|place| {
            let writes = self.used[place].writes;
            let hosts = &self.state(place).hosts;
            hosts.are_there() && hosts.are_inside(writes)
        })
    }

    /// True when a host thread waits for its turn to use bytes in conflict.
    fn is_behind_hosts(&mut self) -> bool {
        (0..N).any(|place| {
            let touch = self.used[place].touch();
            self.state(place).hosts.have_place_before(&touch)
        })
    }

    /// Locks again when the host threads that were there are done. Host threads that arrive
    /// meanwhile wait for their turn.
    #[cold]
    fn when_not_hosts(mut self) -> Result<Self> {
        let used = self.used;
        (0..N).for_each(|place| self.state(place).hosts.announce());
        loop {
            drop(self);
            park(Some(HOST_PERIOD));
            self = match Self::new(used) {
                Ok(locked) => locked,
                Err(refusal) => {
                    for one in used {
                        one.allocation().state.lock().hosts.withdraw();
                    }
                    return Err(refusal);
                }
            };
            if !self.is_hosts() {
                (0..N).for_each(|place| self.state(place).hosts.withdraw());
                return Ok(self);
            }
        }
    }

    /// Calls `found` with each wait that a task of this stream needs to come after those threads.
    #[inline]
    fn each_place(&mut self, core: &Arc<StreamCore>, mut found: impl FnMut(UntilOpen)) {
        for place in 0..N {
            let touch = self.used[place].touch();
            let hosts = &mut self.state(place).hosts;
            if hosts.are_there() {
                hosts.each_wait(core, &touch, &mut found);
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
            ticket = source.push_unscheduled(Marker).ticket;
            self.marked.push(Arc::clone(source));
        }
        self.push_command(core, Behind::new(Arc::clone(source), ticket));
    }

    /// Pushes a wait to a stream.
    #[cold]
    fn push_command<T: Command<TaskContext>>(&mut self, core: &StreamCore, wait: T) {
        let pushed = core.push_unscheduled(wait);
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
