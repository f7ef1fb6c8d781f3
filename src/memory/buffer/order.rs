//! Enqueues tasks that use buffers, ordered after conflicting tasks.
//!
//! Two uses of the same bytes *conflict* when one of them writes. This file enqueues a task and
//! records its uses in one step, under the locks of its allocations, taken in address order. Of two
//! threads with conflicting tasks, the second therefore finds the task of the first. A new task
//! makes its stream wait for the last conflicting task of each other stream; on its own stream, the
//! queue gives the order at no cost. Waits name only earlier tasks, so they form no cycle.
//!
//! A task that conflicts with a running host access is enqueued after that access. The task's
//! stream waits for conflicting accesses in the queue of `host_accesses`. Memory that the home
//! stream still uses for an earlier allocation counts as written by the home stream.
//!
//! Code that orders streams by events passes [`Order::ByCaller`]; this file then records the uses,
//! and waits for the memory's earlier allocation alone: the program cannot know of that.
#![expect(unsafe_code, reason = "calls of C functions, as the caller promises")]

use std::sync::Arc;

use crate::FfiCall;
use crate::base::error::Result;
use crate::base::spin::SpinGuard;
use crate::base::sync::park;
use crate::engine::frontier::Announced;
use crate::engine::stream::Stream;
use crate::engine::stream::commands::{WaitForLatch, WaitForMarker};
use crate::engine::stream::core::{StreamCore, TaskContext};
use crate::engine::stream::enqueue::{Always, Attempt, Checked, Direct, Enqueue, Unscheduled};
use crate::engine::stream::internal::Marker;
use crate::engine::stream::order_watch::{self, NextUses};
use crate::engine::stream::task::MemoryAccess;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::allocation::{Allocation, Refusal, State};
use crate::memory::buffer::host_accesses::HOST_PERIOD;
use crate::memory::buffer::transfer::Transfer;
use crate::memory::buffer::uses::{AccessedBytes, CHECK_ALL, CHECKS_PER_USE, Task, Use};
use crate::queue::{Command, Pushed};

/// The order of a task relative to other uses of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The task runs after every conflicting use.
    BehindConflicts,
    /// The caller prevents conflicting uses while the task runs.
    ByCaller,
}

#[derive(Clone, Copy)]
pub(crate) struct OrderedUse<'a> {
    buffer: &'a Buffer,
    writes: bool,
    /// True when exports of the memory refuse the task: their accesses have no order.
    is_tracked: bool,
}

pub(super) fn write_use(buffer: &Buffer) -> OrderedUse<'_> {
    OrderedUse { buffer, writes: true, is_tracked: false }
}

pub(super) fn read_use(buffer: &Buffer) -> OrderedUse<'_> {
    OrderedUse { buffer, writes: false, is_tracked: false }
}

/// A use by safe code of the host, which no untracked access may meet.
pub(crate) fn tracked_use(buffer: &Buffer, writes: bool) -> OrderedUse<'_> {
    OrderedUse { buffer, writes, is_tracked: true }
}

impl<'a> OrderedUse<'a> {
    fn allocation(&self) -> &'a Allocation {
        self.buffer.allocation()
    }

    /// The address of the allocation, which orders the locks of several allocations.
    fn address(&self) -> usize {
        std::ptr::from_ref(self.allocation()).addr()
    }

    fn access(&self) -> MemoryAccess {
        let (address, bytes) = (self.buffer.begin(), self.buffer.nbytes());
        MemoryAccess { address, bytes: Some(bytes), writes: Some(self.writes) }
    }

    fn accessed(&self) -> AccessedBytes {
        AccessedBytes::new(self.buffer.bytes(), self.writes)
    }
}

/// Enqueues a task that uses buffers. If all buffers are empty, only checks them.
#[inline]
pub(super) fn enqueue<T: Command<TaskContext>, const N: usize>(
    stream: &Stream,
    used: [OrderedUse<'_>; N],
    order: Order,
    command: T,
) -> Result<Transfer> {
    let core = stream.core();
    if used.iter().all(|used| used.buffer.is_empty()) {
        core.lifecycle.check()?;
        return LockedBuffers::new(&used).map(|_| Transfer(None));
    }
    enqueue_task(stream, used, order, command)
}

/// As [`enqueue`], also for a task that does something without the bytes of any buffer.
#[inline]
pub(crate) fn enqueue_task<T: Command<TaskContext>, const N: usize>(
    stream: &Stream,
    used: [OrderedUse<'_>; N],
    order: Order,
    command: T,
) -> Result<Transfer> {
    debug_assert!(reports_every_buffer(&command, &used), "a subscriber is told of every buffer");
    stream.core().enqueue(BufferTask { used: &used, order, command }, Checked)
}

/// True when the command's details list each of its buffers.
fn reports_every_buffer<T: Command<TaskContext>>(command: &T, used: &[OrderedUse<'_>]) -> bool {
    let reported = command.details().accesses;
    used.iter().all(|used| reported.iter().any(|access| access.agrees_with(&used.access())))
}

/// A task to enqueue, and its buffers. The enqueue locks the buffers' states while it takes the
/// ticket and records the uses.
struct BufferTask<'a, T, const N: usize> {
    used: &'a [OrderedUse<'a>; N],
    order: Order,
    command: T,
}

impl<T: Command<TaskContext>, const N: usize> Enqueue for BufferTask<'_, T, N> {
    type Command = T;
    type Receipt = Transfer;

    #[inline]
    fn run_directly(self, mut direct: Direct<'_>) -> Attempt<Self> {
        let core = direct.core();
        let mut locked = match LockedBuffers::new(self.used) {
            Ok(locked) => locked,
            Err(refusal) => return Attempt::Over(Err(refusal)),
        };
        let ticket = if locked.can_run(core, self.order) { direct.take_ticket() } else { None };
        let Some(ticket) = ticket else {
            drop(locked);
            return Attempt::Queue(self);
        };
        // Recorded before the task runs, so that another thread's free is ordered after the task.
        let forgotten = locked.note(core, Task::marker(ticket), self.order);
        drop(locked);
        drop(forgotten);
        let has_failed = direct.run::<T>(|context| self.command.run(context));
        if has_failed {
            // Not too late: only the consumer, which is this thread, clears the stream's error.
            core.failures.retain_cleared();
        }
        Attempt::Over(Ok(Transfer::of(core, ticket, has_failed)))
    }

    #[inline]
    fn queue(
        self,
        core: &Arc<StreamCore>,
        push: impl FnOnce(T) -> Pushed,
    ) -> Result<(Pushed, Transfer)> {
        let mut locked = LockedBuffers::new(self.used)?;
        if self.order == Order::BehindConflicts && locked.has_host_access() {
            locked = locked.after_host_accesses()?;
        }
        // Retains errors before the task can fail. Otherwise the stream could clear and drop the
        // error before the caller queries the transfer.
        core.failures.retain_cleared();
        let mut waits = Waits::new(core);
        if self.order == Order::BehindConflicts {
            locked.each_conflict(core, |source, last| waits.push(source, last));
            locked.each_queued(core, |wait| _ = waits.push_command(wait));
        } else {
            let earlier = self.used.iter().filter_map(|used| used.allocation().earlier_life(core));
            earlier.for_each(|(source, last)| waits.push(source, last));
        }
        if order_watch::is_on() {
            declare_uses(self.used, self.order);
        }
        let pushed = push(self.command);
        let forgotten = locked.note(core, Task::marker(pushed.ticket), self.order);
        drop(locked); // before `publish` locks histories, and `forgotten` drops streams
        drop(forgotten);
        Ok((waits.publish(pushed), Transfer::of(core, pushed.ticket, true)))
    }
}

/// Tells a watch of the order what the next task uses: what is read first, as copies' details.
#[cold]
#[inline(never)]
fn declare_uses(ordered: &[OrderedUse<'_>], order: Order) {
    let told = |one: &OrderedUse<'_>| one.buffer.used_bytes(Some(one.writes));
    let uses = ordered.iter().rev().map(told).collect();
    let is_behind_conflicts = order == Order::BehindConflicts;
    order_watch::declare(Some(NextUses { uses, is_behind_conflicts, ..NextUses::NONE }));
}

struct LockedBuffers<'a, const N: usize> {
    used: &'a [OrderedUse<'a>; N],
    /// `None` for a repeated allocation, whose lock is in an earlier entry.
    states: [Option<SpinGuard<'a, State>>; N],
}

impl<'a, const N: usize> LockedBuffers<'a, N> {
    #[inline]
    fn new(used: &'a [OrderedUse<'a>; N]) -> Result<Self> {
        let mut indices: [usize; N] = std::array::from_fn(|index| index);
        // Stable: of one allocation, the first use holds the lock.
        if N > 2 {
            indices.sort_by_key(|index| used[*index].address());
        } else if N == 2 && used[1].address() < used[0].address() {
            indices.reverse();
        }
        let mut states = [const { None }; N];
        for (nth, index) in indices.into_iter().enumerate() {
            let OrderedUse { buffer, .. } = used[index];
            let is_locked = nth > 0 && used[indices[nth - 1]].address() == used[index].address();
            if !is_locked {
                let state = used[index].allocation().lock();
                let state = state.ok_or_else(|| buffer.refused(Refusal::Released))?;
                if used[index].is_tracked && state.exports > 0 {
                    return Err(buffer.refused(Refusal::SliceOfExported(state.exports)));
                }
                states[index] = Some(state);
            }
        }
        Ok(Self { used, states })
    }

    /// The state of the allocation that the use at `index` belongs to.
    #[inline]
    fn state(&mut self, index: usize) -> &mut State {
        let address = self.used[index].address();
        let of_it = self.used.iter().zip(&mut self.states).find_map(|(used, state)| {
            if used.address() == address { state.as_mut() } else { None }
        });
        of_it.expect("each allocation is locked")
    }

    /// True when no conflict delays the task, so that this thread can run it at once.
    fn can_run(&mut self, core: &Arc<StreamCore>, order: Order) -> bool {
        if order == Order::ByCaller {
            return self.used.iter().all(|used| used.allocation().earlier_life(core).is_none());
        }
        let is_behind_host_access = (0..N).any(|index| {
            let accessed = self.used[index].accessed();
            self.state(index).host_accesses.has_waiter_before(&accessed)
        });
        let mut is_free = !self.has_host_access() && !is_behind_host_access;
        self.each_conflict(core, |_, _| is_free = false);
        is_free
    }

    /// True when a running host access conflicts with the task.
    #[inline]
    fn has_host_access(&mut self) -> bool {
        (0..N).any(|index| {
            let writes = self.used[index].writes;
            let host_accesses = &self.state(index).host_accesses;
            host_accesses.has_any() && host_accesses.conflict_with(writes)
        })
    }

    /// Announces the task, unlocks, waits until no running host access conflicts, and locks again.
    /// Host accesses that begin during the wait are queued.
    #[cold]
    fn after_host_accesses(mut self) -> Result<Self> {
        let used = self.used;
        (0..N).for_each(|index| self.state(index).host_accesses.announce());
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
                (0..N).for_each(|index| self.state(index).host_accesses.withdraw());
                return Ok(self);
            }
        }
    }

    /// Calls `found` with a wait for each conflicting queued access that the stream does not wait
    /// for yet.
    #[inline]
    fn each_queued(&mut self, core: &Arc<StreamCore>, mut found: impl FnMut(WaitForLatch)) {
        for index in 0..N {
            let used = self.used[index];
            let host_accesses = &mut self.state(index).host_accesses;
            if host_accesses.has_any() {
                host_accesses.each_wait(core, &used.accessed(), &mut found);
            }
        }
    }

    /// Calls `found` with each conflicting unfinished task of another stream.
    #[inline]
    fn each_conflict(
        &mut self,
        core: &Arc<StreamCore>,
        mut found: impl FnMut(&Arc<StreamCore>, Task),
    ) {
        for index in 0..N {
            let (used, accessed) = (self.used[index], self.used[index].accessed());
            let conflicts = used.allocation().conflicts(self.state(index), Some(core), &accessed);
            conflicts.for_each(|(source, last)| found(source, last));
        }
    }

    /// Records the uses of a task. The caller unlocks the buffers before it drops the result.
    #[inline]
    fn note(&mut self, core: &Arc<StreamCore>, task: Task, order: Order) -> [Option<Vec<Use>>; N] {
        let done = core.progress.done();
        // The search for conflicts has already read each use, so checking all of them is cheap.
        let checks = if order == Order::BehindConflicts { CHECK_ALL } else { CHECKS_PER_USE };
        std::array::from_fn(|index| {
            let (used, accessed) = (self.used[index], self.used[index].accessed());
            used.allocation().note(self.state(index), core, task, &accessed, done, checks)
        })
    }
}

/// Makes a stream wait for what its home stream still does with a buffer's memory for an earlier
/// allocation. For tasks of functions and kernels, which the program orders otherwise.
#[inline]
pub(crate) fn follow_earlier_life(core: &Arc<StreamCore>, buffer: &Buffer) {
    if let Some((source, last)) = buffer.allocation().earlier_life(core) {
        debug_assert!(!last.is_marker, "a free places no marker");
        let _announced = core.history.announce();
        let until = source.enqueue(Marker, Always).ticket;
        let wait = core.enqueue(WaitForMarker::new(Arc::clone(source), until), Always);
        core.note_wait(wait.ticket, source, until);
    }
}

/// The waits that a task needs. `push` enqueues them under the locks; `publish` notes them and
/// schedules the streams afterwards.
struct Waits<'a> {
    core: &'a Arc<StreamCore>,
    /// The least place in a segment that a wait got.
    least_place: u64,
    /// `None` for most tasks, which wait for no other stream's.
    for_tasks: Option<(Announced<'a>, Vec<TaskWait>)>,
}

/// A wait for a task of another stream.
struct TaskWait {
    ticket: u64,
    source: Arc<StreamCore>,
    until: u64,
    /// True when `until` is a new marker, and the source is not scheduled yet.
    is_marked: bool,
}

impl<'a> Waits<'a> {
    fn new(core: &'a Arc<StreamCore>) -> Self {
        Self { core, least_place: u64::MAX, for_tasks: None }
    }

    /// Makes the stream wait for the task `last` of the stream `source`.
    #[cold]
    fn push(&mut self, source: &Arc<StreamCore>, last: Task) {
        let core = self.core;
        self.for_tasks.get_or_insert_with(|| (core.history.announce(), Vec::new()));
        let Task { ticket: mut until, is_marker } = last;
        if !is_marker {
            // The task does not wake its waiters, so the wait names a new marker behind the task.
            until = source.enqueue(Marker, Unscheduled).ticket;
        }
        let ticket = self.push_command(WaitForMarker::new(Arc::clone(source), until));
        let wait = TaskWait { ticket, source: Arc::clone(source), until, is_marked: !is_marker };
        if let Some((_, waits)) = &mut self.for_tasks {
            waits.push(wait);
        }
    }

    /// Returns the ticket of the wait.
    #[cold]
    fn push_command<T: Command<TaskContext>>(&mut self, wait: T) -> u64 {
        let pushed = self.core.enqueue(wait, Unscheduled);
        self.least_place = self.least_place.min(pushed.place_in_segment);
        pushed.ticket
    }

    /// Notes the waits, and schedules the streams with new markers. Returns `last` with the least
    /// place of all pushes.
    #[inline]
    fn publish(self, last: Pushed) -> Pushed {
        if let Some((_announced, waits)) = self.for_tasks {
            Self::note(self.core, &waits);
        }
        let place_in_segment = last.place_in_segment.min(self.least_place);
        Pushed { place_in_segment, ..last }
    }

    #[cold]
    fn note(core: &StreamCore, waits: &[TaskWait]) {
        for TaskWait { ticket, source, until, .. } in waits {
            core.note_wait(*ticket, source, *until);
        }
        for wait in waits.iter().filter(|wait| wait.is_marked) {
            wait.source.schedule();
        }
    }
}

impl Stream {
    /// As [`Stream::launch`], and records a use of each buffer. A buffer may be dropped right after
    /// the call, and a host access to a buffer waits for the function.
    ///
    /// Fails as [`Stream::launch`], and when a buffer is released or belongs to another runtime. A
    /// call that fails enqueues nothing.
    ///
    /// ```
    /// use accelrt::FfiCall;
    /// extern "C" fn count_up(bytes: *mut u8, count: usize) {
    ///     let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, count) };
    ///     bytes.iter_mut().for_each(|byte| *byte += 1);
    /// }
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let (stream, buffer) = (runtime.current_stream()?, runtime.zeros(3, device)?);
    /// let arguments = [buffer.address()?.into(), buffer.nbytes().into()];
    /// let call = FfiCall::new(count_up as *const _, &arguments)?;
    /// // SAFETY: the types are those of `count_up`, and the buffer has as many bytes.
    /// unsafe { stream.launch_with_buffers(call, &[&buffer])? };
    /// assert_eq!(buffer.read_to_vec()?, [1; 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Stream::launch`], except that the recorded uses keep the buffers' memory allocated.
    pub unsafe fn launch_with_buffers(&self, call: FfiCall, buffers: &[&Buffer]) -> Result<u64> {
        let uses: Vec<_> = buffers.iter().map(|buffer| (*buffer, None)).collect();
        // SAFETY: the caller upholds `launch`'s contract; with `None`, no accesses are stated.
        unsafe { self.launch_with_uses(call, &uses) }
    }

    /// As [`Stream::launch_with_buffers`]. `Some(writes)` states that the function uses only the
    /// bytes of the buffer's view, and whether the function writes them.
    ///
    /// # Safety
    /// As [`Stream::launch_with_buffers`], and the stated accesses are complete.
    #[doc(hidden)]
    pub unsafe fn launch_with_uses(
        &self,
        call: FfiCall,
        uses: &[(&Buffer, Option<bool>)],
    ) -> Result<u64> {
        // SAFETY: the caller upholds `launch`'s contract. The buffers stay allocated until their
        // uses are recorded.
        self.enqueue_using(uses, || unsafe { self.launch_marker(call) })
    }

    /// Enqueues a task, which is a marker, by `enqueue`, and records its uses. On another stream
    /// than a buffer's home, the task runs behind what the home still does with the memory for an
    /// earlier buffer.
    #[doc(hidden)]
    pub fn enqueue_using(
        &self,
        uses: &[(&Buffer, Option<bool>)],
        enqueue: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let core = self.core();
        for (buffer, _) in uses {
            core.lifecycle.check_same_runtime("a buffer", buffer.runtime())?;
        }
        let accesses: Vec<_> = uses.iter().map(|(it, _)| it.access()).collect::<Result<_>>()?;
        for (buffer, _) in uses {
            follow_earlier_life(core, buffer);
        }
        if order_watch::is_on() {
            let told = uses.iter().map(|(buffer, writes)| buffer.used_bytes(*writes));
            let uses = told.collect();
            order_watch::declare(Some(NextUses { uses, ..NextUses::NONE }));
        }
        let ticket = enqueue().inspect_err(|_| order_watch::declare(None))?;
        for (access, (buffer, writes)) in accesses.into_iter().zip(uses) {
            access.record_use(core, Task::marker(ticket), buffer.bytes(), *writes);
        }
        Ok(ticket)
    }
}
