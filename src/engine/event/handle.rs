//! The public type [`Event`]: records, waits, queries, and the record as a task.
//!
//! # The record as a task
//!
//! A record needs no completion flag. On a host kind the stream's counter shows that the record is
//! done; on a driver kind a mark shows it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::base::device::{Device, DeviceKind};
use crate::base::error::{DriverError, Error, EventError, Result};
use crate::base::fork;
use crate::base::fork::Inherited;
use crate::base::sync::Ordering;
use crate::base::thread::while_blocked;
use crate::engine::event::core::{EventCore, PendingRecord, Shared};
use crate::engine::frontier::Point;
use crate::engine::stream::commands::{Inherit, WaitFor};
use crate::engine::stream::core::{StreamCore, TaskContext};
use crate::engine::stream::enqueue::{Attempt, Checked, Direct, Enqueue};
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::marks::PlacedMark;
use crate::engine::stream::order_watch::Told;
use crate::engine::stream::synchronize::raise;
use crate::engine::stream::task::{Details, OperationKind};
use crate::engine::stream::{Stream, order_watch};
use crate::queue::{Class, Command, Pushed};

/// A position in a stream, for which threads and other streams can wait.
///
/// An event that was never recorded counts as done. A wait is for the latest record at the time of
/// the call; later records do not change the wait. An event recorded on a failed stream has failed
/// too, until its next record. Handles are cheap to clone and compare equal when they name the same
/// event.
///
/// ```
/// use accelrt::{Config, Device, Event, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// let (first, second) = (runtime.stream(Device::cpu(0))?, runtime.stream(Device::cpu(0))?);
/// let (start, end) = (Event::timed(), Event::timed());
/// first.record(&start)?;
/// first.enqueue(|| { /* a worker runs this */ })?;
/// first.record(&end)?;
/// second.wait_event(&end)?; // what follows on `second` runs after it, and no thread waits
/// end.synchronize()?;
/// assert!(start.elapsed_ms(&end)? >= 0.0);
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use std::time::Duration;
/// use accelrt::{DeviceKind, Event};
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let stream = runtime.stream(accelrt::Device::cpu(0))?;
/// let event = Event::for_kind(DeviceKind::CPU, false);
/// assert!(event.is_done() && !event.is_timed(), "never recorded");
/// assert_eq!((event.version(), event.id(), event.device()), (0, 0, None));
/// stream.record(&event)?;
/// assert_eq!((event.version(), event.device()), (1, Some(stream.device())));
/// assert_ne!(event.id(), 0);
/// event.synchronize_timeout(Duration::from_secs(60))?;
/// event.synchronize_unless(&mut || false)?; // the check could end the wait
/// assert!(event.is_done());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    pub(super) core: Inherited<Shared>,
}

impl Event {
    /// Creates an event without timing. The first record determines the event's kind and device.
    #[must_use]
    pub fn new() -> Self {
        Self::build(None, false)
    }

    /// Creates an event whose records store the time, for [`Event::elapsed_ms`].
    #[must_use]
    pub fn timed() -> Self {
        Self::build(None, true)
    }

    /// Creates an event that only streams of `kind` can record.
    #[must_use]
    pub fn for_kind(kind: DeviceKind, is_timed: bool) -> Self {
        Self::build(Some(kind), is_timed)
    }

    fn build(kind: Option<DeviceKind>, is_timed: bool) -> Self {
        Self { core: Inherited::new(Shared::new(EventCore::new(kind, is_timed))) }
    }

    /// True when [`Event::elapsed_ms`] is allowed.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.core.finished.is_timed
    }

    /// The device of all records of this event; `None` before the first record.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.core.device.get().copied()
    }

    /// The number of records, which identifies the latest record; 0 before the first record.
    #[must_use]
    pub fn version(&self) -> u64 {
        // Acquire: a thread that sees the version also sees the event's device; pairs with
        // `Shared::begin`. No model: the device is stored in a cell of the standard library, which
        // loom does not track.
        self.core.recorded.load(Ordering::Acquire)
    }

    /// An id that no other live event has; 0 before the first record.
    #[must_use]
    pub fn id(&self) -> u64 {
        if self.version() == 0 { 0 } else { self.core.address() }
    }

    /// True when everything before the latest record is done, even if it failed. Also true before
    /// the first record. Never blocks, never fails. Under a schedule, runs one task unless done.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        self.is_complete() || self.step_schedule() && self.is_complete()
    }

    /// As [`Event::is_done`], and never runs a task.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_done = self.looks_complete();
        if is_done && order_watch::is_on() {
            self.tell_waited();
        }
        is_done
    }

    /// As [`Event::is_done`], for `Debug` and `repr`: runs no task and tells no watch of the order.
    #[doc(hidden)]
    #[must_use]
    pub fn looks_complete(&self) -> bool {
        self.core.is_latest_complete() || self.poll()
    }

    /// Tells a watch of the order that this thread knows the latest record to be done.
    #[cold]
    pub(crate) fn tell_waited(&self) {
        if fork::is_child() {
            return; // a thread that it lacks may hold the lock
        }
        if let Some(record) = self.core.record().filter(|record| self.core.is_reached(record)) {
            record.source.tell_waited(record.ticket, false, &Ok(()));
        }
    }

    #[cold]
    fn step_schedule(&self) -> bool {
        !fork::is_child() && self.core.record().is_some_and(|it| it.source.lifecycle.step())
    }

    /// True when the latest record is done and has failed. Never blocks.
    #[doc(hidden)]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        // False in a forked child, where a lock that a thread of the parent held stays locked.
        let is_done = !fork::is_child() && self.looks_complete();
        is_done && self.core.record().is_some_and(|record| self.core.failure_of(&record).is_some())
    }

    /// True when the stream's counter, or else a poll of the driver, shows the latest record done.
    #[cold]
    fn poll(&self) -> bool {
        let core = &self.core;
        if fork::is_child() {
            // Only tries the lock, which stays locked if a thread of the parent held it.
            return core.latest.try_lock().is_some_and(|latest| core.is_passed(&latest));
        }
        let (is_passed, is_on_host) = {
            let latest = core.latest.lock();
            (core.is_passed(&latest), latest.is_on_host())
        };
        if is_passed || is_on_host {
            return is_passed;
        }
        let Some(record) = core.record() else { return true };
        match record.source.marks.poll() {
            Ok(()) => core.is_reached(&record) && core.is_latest_complete(),
            // A lost device executes no more work, so the record counts as done. After any other
            // refusal the record counts as pending.
            Err(error) => matches!(error, Error::Driver(DriverError::DeviceLost { .. })),
        }
    }

    /// Blocks until everything before the latest record is done. Raises the record's error, and
    /// does not clear the stream's error. Fails inside a task of the stream while the record is
    /// pending.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_within(&mut Interrupt::default())
    }

    /// As [`Event::synchronize`], but calls `is_interrupted` every 50 ms. If the call returns true,
    /// the wait fails with [`Interrupted`](crate::RuntimeError::Interrupted). The work continues.
    pub fn synchronize_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.synchronize_within(&mut Interrupt::by(is_interrupted))
    }

    /// As [`Event::synchronize`], for at most `timeout`. Then the wait fails with
    /// [`TimedOut`](crate::RuntimeError::TimedOut), and the work continues. This thread executes no
    /// tasks, because their length is unknown.
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<()> {
        self.synchronize_within(&mut Interrupt::after(timeout))
    }

    #[doc(hidden)]
    pub fn synchronize_within(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        fork::check()?;
        let Some(record) = self.core.record() else { return Ok(()) };
        let waited = self.core.wait_on_host(&record, interrupt);
        record.source.tell_waited(record.ticket, false, &waited);
        waited?;
        raise(self.core.failure_of(&record))
    }

    /// Milliseconds from this event's record to the record of `other`; negative in reverse order.
    ///
    /// Fails in a forked child, and unless both events are of one kind, timed, recorded, done and
    /// without a failure, in one runtime, and on one device if the kind is a driver kind. The
    /// checks run in this order. On driver kinds the resolution is that of the device's time
    /// stamps. On host kinds it is one tick of the time stamp counter if the system's clock uses
    /// that counter, else one clock step.
    pub fn elapsed_ms(&self, other: &Self) -> Result<f64> {
        fork::check()?;
        let (this_record, other_record) = (self.core.record(), other.core.record());
        let (this_kind, other_kind) = (self.core.kind(), other.core.kind());
        if let (Some(this), Some(other)) = (this_kind, other_kind)
            && this != other
        {
            return Err(Error::Event(EventError::ElapsedKindMismatch { this, other }));
        }
        if !self.is_timed() || !other.is_timed() {
            return Err(Error::Event(EventError::WithoutTiming));
        }
        let (Some(this_record), Some(other_record)) = (this_record, other_record) else {
            return Err(Error::Event(EventError::NotRecorded));
        };
        if !self.is_complete() || !other.is_complete() {
            return Err(Error::Event(EventError::NotComplete));
        }
        raise(self.core.failure_of(&this_record))?;
        raise(other.core.failure_of(&other_record))?;
        let start = self.core.mark_of(&this_record).ok_or(Error::Event(EventError::NotComplete))?;
        let end = other.core.mark_of(&other_record).ok_or(Error::Event(EventError::NotComplete))?;
        let (source, other_source) = (&this_record.source, &other_record.source);
        source.lifecycle.check_same_runtime("an event", other_source.lifecycle.runtime)?;
        if !source.on_host && source.identity.device != other_source.identity.device {
            let capability = "elapsed time between events of two devices";
            return Err(Error::Driver(DriverError::Unsupported {
                kind: source.identity.device.kind(),
                capability,
            }));
        }
        let elapsed_ns = start.elapsed_ns(&end)?;
        #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
        Ok(elapsed_ns as f64 / 1e6)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.core.address() == other.core.address()
    }
}

impl Eq for Event {}

impl Hash for Event {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.address().hash(state);
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// Records the event behind everything enqueued before. Does not block, except as
    /// [`Stream::enqueue`]. An error of the stream does not make this call fail.
    ///
    /// Fails when the event belongs to another kind, another device or another runtime, after a
    /// shutdown and in a forked child.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<()> {
        self.core().enqueue(Recording(&event.core), Checked)
    }

    /// Records a new event without timing, and returns the event. Fails as [`Stream::record`] does.
    pub fn record_event(&self) -> Result<Event> {
        let event = Event::new();
        self.record(&event)?;
        Ok(event)
    }

    /// Makes tasks enqueued later run after everything before the event's latest record. No thread
    /// waits. Has no effect if the event was never recorded. A failed event fails this stream.
    ///
    /// Fails when the event was recorded on another kind or in another runtime, after a shutdown
    /// and in a forked child.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let core = self.core();
        core.lifecycle.check()?;
        let record = event.core.record();
        if order_watch::is_on() {
            let source = record.as_ref().map(|record| (&**record.source, record.ticket));
            order_watch::tell(Told::Wait(core, source, event.core.address()));
        }
        let Some(record) = record else { return Ok(()) };
        let (kind, own_kind) = (record.source.identity.device.kind(), core.identity.device.kind());
        if kind != own_kind {
            return Err(Error::Event(EventError::KindMismatch {
                event: kind,
                role: "blocking",
                stream: own_kind,
            }));
        }
        core.lifecycle.check_same_runtime("an event", record.source.lifecycle.runtime)?;
        let wait = WaitFor::new(&record.source, record.ticket);
        if event.core.is_reached(&record) {
            return match event.core.failure_of(&record) {
                None => Ok(()),
                Some(error) => core.enqueue(Inherit(error), Checked).map(drop),
            };
        }
        let _announced = core.history.announce();
        let ticket = core.enqueue(wait, Checked)?.ticket;
        if !core.on_host
            && let Some(error) = event.core.failure_of(&record)
        {
            // Inherits the error that the event stores. The wait may find none in the source's log:
            // a synchronise may have cleared the error after the source retired the record.
            core.enqueue(Inherit(error), Checked)?;
        }
        core.note_wait(ticket, &record.source, record.ticket);
        Ok(())
    }

    /// Makes tasks enqueued later run after everything already enqueued on `other`. Fails as
    /// [`Stream::wait_event`] does.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        let lifecycle = &self.core().lifecycle;
        lifecycle.check_same_runtime("a stream", other.core().lifecycle.runtime)?;
        self.wait_event(&other.record_event()?)
    }

    /// True when this stream's next task is known to run after the event's latest record: the
    /// record is done or on this stream, or this stream waits for the record, directly or through
    /// other streams. May be false while the wait is being enqueued.
    #[must_use]
    pub fn is_ordered_after(&self, event: &Event) -> bool {
        if fork::is_child() {
            return event.is_complete();
        }
        let Some(record) = event.core.record() else { return true };
        let point = Point { progress: Arc::clone(&record.source.progress), ticket: record.ticket };
        let is_own = Arc::ptr_eq(&record.source, self.core());
        let is_joined =
            || self.core().history.latest().is_some_and(|known| known.dominates(&point));
        is_own || event.is_complete() || is_joined()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("device", &self.device())
            .field("is_timed", &self.is_timed())
            .field("version", &self.version())
            .field("is_done", &self.looks_complete())
            .finish()
    }
}

pub(super) struct RecordCommand(pub(super) PendingRecord);

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Record;

    fn details(&self) -> Details {
        let core: *const EventCore = &raw const *self.0;
        Details { event: core.addr() as u64, ..Details::default() }
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self(event) = self;
        run(&event, event.version, context);
    }
}

/// Enqueues a record. The recording thread takes the ticket under the event's lock, so versions and
/// tickets of one stream grow together.
pub(super) struct Recording<'a>(pub(super) &'a Shared);

impl Enqueue for Recording<'_> {
    type Command = RecordCommand;
    type Receipt = ();

    #[inline]
    fn run_directly(self, mut direct: Direct<'_>) -> Attempt<Self> {
        let (Self(event), core) = (&self, direct.core());
        let mut latest = match event.lock_for(core) {
            Ok(latest) => latest,
            Err(refusal) => return Attempt::Over(Err(refusal)),
        };
        let Some(ticket) = direct.take_ticket() else {
            drop(latest);
            return Attempt::Queue(self);
        };
        let version = event.begin_direct(&mut latest);
        let previous = latest.move_to(core, ticket);
        // Unlocks the event, because the drop of `direct` may run other threads' tasks.
        drop(latest);
        direct.run::<RecordCommand>(|context| run(event, version, context));
        drop(direct);
        drop(previous); // perhaps the last reference to a stream, whose drop waits for the device
        Attempt::Over(Ok(()))
    }

    #[inline(always)]
    fn queue(
        self,
        core: &Arc<StreamCore>,
        push: impl FnOnce(RecordCommand) -> Pushed,
    ) -> Result<(Pushed, ())> {
        let mut latest = self.0.lock_for(core)?;
        let pushed = push(RecordCommand(self.0.begin(&mut latest)));
        let previous = latest.move_to(core, pushed.ticket);
        drop(latest);
        drop(previous); // without the lock: perhaps the last reference to a stream
        Ok((pushed, ()))
    }
}

/// Runs the record `version` of the event, from the queue or past it.
#[inline]
pub(super) fn run(event: &EventCore, version: u64, context: &mut TaskContext) {
    context.is_marker = true;
    let is_plain = !event.finished.is_timed && context.failure().is_none();
    if context.on_host && is_plain {
        return;
    }
    if is_plain && let Some(mark) = context.bare_mark(false) {
        // The stream stores the mark of an untimed record, and waits find it there.
        context.effects().mark = Some(PlacedMark::Sole(mark));
        return;
    }
    finish(event, version, is_plain, context);
}

/// Stores a record's mark and failure in the event. After a refused mark, waits for the device.
#[inline(never)]
fn finish(event: &EventCore, version: u64, was_refused: bool, context: &mut TaskContext) {
    let mark = if was_refused { None } else { context.mark(event.finished.is_timed) };
    let is_refused = mark.is_none() && !context.on_host;
    if is_refused {
        // No mark will report this record, so the thread waits for the device before it completes
        // the version. It ignores the wait's error: the record has failed already.
        let _ = while_blocked(|| context.handle.synchronize());
    }
    event.finish(version, mark.clone(), context.failure().cloned());
    if is_refused {
        event.complete(version);
    } else if !context.on_host {
        context.effects().mark = mark.map(PlacedMark::Shared);
    }
}
