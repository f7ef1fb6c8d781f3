//! Events: lazy, versioned marks in streams, with time stamps on request.
//!
//! Source of the behaviour: torch 2.13's `Event`, with its argument checks made complete.
//!
//! Each record makes a new *version*. Words:
//!
//! * `recorded`: the latest version; 0 before the first record
//! * `completed`: the highest version that is known to be done
//! * `latest`: where the latest version was recorded, and how the highest finished one ended
//!
//! The event is done when `completed >= recorded`. Recording is: under the lock, push a command
//! that names the event and its version, note stream and ticket; then schedule the stream. It is
//! O(1) and clones no frontier: the ticket is looked up in the stream's history by who waits.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::backend::blocking::while_blocked;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result, StreamError};
use crate::fork::{self, Inherited};
use crate::frontier::Point;
use crate::queue::{Class, Command};
use crate::spin::SpinMutex;
use crate::stream::Stream;
use crate::stream::commands::{Inherit, WaitFor};
use crate::stream::context::TaskContext;
use crate::stream::core::StreamCore;
use crate::stream::marks::OwnedMark;
use crate::stream::synchronize::raise;
use crate::stream::wait::Interrupt;
use crate::sync::{AtomicU64, Ordering};

/// A mark that streams record, wait for and query.
///
/// An event that was never recorded counts as done. A wait binds to the record that is the latest
/// at that moment; a later record does not move it. An event recorded on a failed stream is
/// complete and failed until it is recorded again.
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
#[derive(Clone)]
pub struct Event {
    core: Inherited<Arc<EventCore>>,
}

struct EventCore {
    is_timed: bool,
    /// Of all its records: an event does not change its device. Read without the lock, also in a
    /// forked child.
    device: OnceLock<Device>,
    recorded: AtomicU64,
    /// On a line of its own: consumers write it while the recording thread works on the others.
    completed: CachePadded<AtomicU64>,
    latest: SpinMutex<Latest>,
}

struct Latest {
    /// The kind it was made for, or the kind of the first record.
    kind: Option<DeviceKind>,
    /// Where the version `recorded` stands.
    source: Option<(Arc<StreamCore>, u64)>,
    /// How the version `finished_version` ended. Successful untimed records on host leave nothing.
    finished_version: u64,
    mark: Option<Arc<OwnedMark>>,
    failure: Option<Arc<StreamError>>,
}

/// One version of an event, looked up in one step. The source's errors are bound to it, so that the
/// one that extends over it is not forgotten before this is dropped.
struct Record {
    source: Arc<StreamCore>,
    ticket: u64,
    version: u64,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.source.failures.unbind();
    }
}

impl Event {
    /// An event without timing; its kind is that of the first stream it is recorded on.
    #[must_use]
    pub fn new() -> Self {
        Self::build(None, false)
    }

    /// An event that can be asked for elapsed time.
    #[must_use]
    pub fn timed() -> Self {
        Self::build(None, true)
    }

    /// An event for streams of one kind.
    #[must_use]
    pub fn for_kind(kind: DeviceKind, is_timed: bool) -> Self {
        Self::build(Some(kind), is_timed)
    }

    fn build(kind: Option<DeviceKind>, is_timed: bool) -> Self {
        let latest = Latest { kind, source: None, finished_version: 0, mark: None, failure: None };
        let core = EventCore {
            is_timed,
            device: OnceLock::new(),
            recorded: AtomicU64::new(0),
            completed: CachePadded::new(AtomicU64::new(0)),
            latest: SpinMutex::new(latest),
        };
        Self { core: Inherited::new(Arc::new(core)) }
    }

    /// True when [`Event::elapsed_ms`] is allowed.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.core.is_timed
    }

    /// The device of the latest record; `None` before the first.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.core.device.get().copied()
    }

    /// How often the event was recorded: names the latest record; 0 before the first.
    #[must_use]
    pub fn version(&self) -> u64 {
        // Acquire: pairs with the store in `record`.
        self.core.recorded.load(Ordering::Acquire)
    }

    /// Names this event while it lives; 0 before the first record.
    #[must_use]
    pub fn id(&self) -> u64 {
        if self.version() == 0 { 0 } else { Arc::as_ptr(&self.core).addr() as u64 }
    }

    /// True when everything before the latest record is done, also when it failed, and before the
    /// first record. Never blocks, never fails.
    #[must_use]
    #[inline]
    pub fn query(&self) -> bool {
        // Acquire, in this order: a completion seen belongs to at least the record seen; pairs with
        // `record` and `complete`.
        let recorded = self.core.recorded.load(Ordering::Acquire);
        self.core.completed.load(Ordering::Acquire) >= recorded || self.poll()
    }

    /// Asks the driver about the latest record.
    #[cold]
    fn poll(&self) -> bool {
        if fork::is_child() {
            return false; // a thread that is not here may hold the lock; nothing goes on here
        }
        let Some(record) = self.core.record() else { return true };
        if record.source.on_host {
            return self.core.is_complete(record.version);
        }
        match record.source.marks.poll() {
            Ok(()) => self.core.is_reached(&record),
            // On a lost device nothing goes on; any other refusal is no answer yet.
            Err(error) => matches!(error, Error::DeviceLost { .. }),
        }
    }

    /// Blocks until everything before the latest record is done; raises the error it is failed
    /// with, and ends nothing. Fails inside a task of the stream that has not reached the record.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_on_host(&mut None)
    }

    /// As [`Event::synchronize`], asking `is_interrupted` every 50 ms while asleep; when that says
    /// true the wait is given up with [`Error::Interrupted`] and the work goes on.
    pub fn synchronize_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.wait_on_host(&mut Some(is_interrupted))
    }

    fn wait_on_host(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        fork::check()?;
        let Some(record) = self.core.record() else { return Ok(()) };
        self.core.wait_on_host(&record, interrupt)?;
        raise(self.core.failure_of(&record))
    }

    /// Milliseconds from this event's record to the other's; negative when it came first.
    ///
    /// Checked in this order: same kind, both timed, both recorded, both complete, neither failed.
    /// Resolution: the time stamp counter's tick where it is the system's clock, else its step.
    pub fn elapsed_ms(&self, other: &Self) -> Result<f64> {
        fork::check()?;
        let (this_record, other_record) = (self.core.record(), other.core.record());
        let (this_kind, other_kind) = (self.core.kind(), other.core.kind());
        if let (Some(this), Some(other)) = (this_kind, other_kind)
            && this != other
        {
            return Err(Error::ElapsedKindMismatch { this, other });
        }
        if !self.is_timed() || !other.is_timed() {
            return Err(Error::EventWithoutTiming);
        }
        let (Some(this_record), Some(other_record)) = (this_record, other_record) else {
            return Err(Error::EventNotRecorded);
        };
        if !self.query() || !other.query() {
            return Err(Error::EventNotComplete);
        }
        raise(self.core.failure_of(&this_record))?;
        raise(other.core.failure_of(&other_record))?;
        let start = self.core.mark_of(&this_record).ok_or(Error::EventNotComplete)?;
        let end = other.core.mark_of(&other_record).ok_or(Error::EventNotComplete)?;
        let (source, other_source) = (&this_record.source, &other_record.source);
        if !source.on_host && source.identity.device != other_source.identity.device {
            let capability = "elapsed time between events of two devices";
            return Err(Error::Unsupported { kind: source.identity.device.kind(), capability });
        }
        let elapsed_ns = this_record.source.backend.elapsed_ns(start.mark(), end.mark())?;
        #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
        Ok(elapsed_ns as f64 / 1e6)
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCore {
    /// The latest record, if there is one.
    fn record(&self) -> Option<Record> {
        let latest = self.latest.lock();
        let (source, ticket) = latest.source.as_ref()?;
        // Relaxed: written under the lock.
        let version = self.recorded.load(Ordering::Relaxed);
        // Bound under the lock: until then the record is the latest, and knows its own failure.
        source.failures.bind();
        Some(Record { source: Arc::clone(source), ticket: *ticket, version })
    }

    fn kind(&self) -> Option<DeviceKind> {
        self.latest.lock().kind
    }

    fn is_complete(&self, version: u64) -> bool {
        // Acquire: pairs with `complete`.
        self.completed.load(Ordering::Acquire) >= version
    }

    fn complete(&self, version: u64) {
        // Release: what was done before, and how it ended, is visible to who sees it complete;
        // pairs with the loads of `completed`.
        self.completed.fetch_max(version, Ordering::Release);
    }

    /// True when the record is known to be done.
    fn is_reached(&self, record: &Record) -> bool {
        let is_reached =
            self.is_complete(record.version) || record.source.progress.done() >= record.ticket;
        if is_reached {
            self.complete(record.version);
        }
        is_reached
    }

    /// Notes how a version ended, unless a later one ended before.
    fn finish(
        &self,
        version: u64,
        mark: Option<Arc<OwnedMark>>,
        failure: Option<Arc<StreamError>>,
    ) {
        let (mut mark, mut failure) = (mark, failure);
        let mut latest = self.latest.lock();
        if version > latest.finished_version {
            latest.finished_version = version;
            std::mem::swap(&mut latest.mark, &mut mark);
            std::mem::swap(&mut latest.failure, &mut failure);
        }
        drop(latest); // what was there before is dropped without the lock
    }

    fn mark_of(&self, record: &Record) -> Option<Arc<OwnedMark>> {
        let latest = self.latest.lock();
        latest.mark.clone().filter(|_| latest.finished_version == record.version)
    }

    /// The error that a finished record is failed with.
    fn failure_of(&self, record: &Record) -> Option<Arc<StreamError>> {
        let own = {
            let latest = self.latest.lock();
            latest.failure.clone().filter(|_| latest.finished_version == record.version)
        };
        own.or_else(|| record.source.failures.at(record.ticket))
    }

    fn wait_on_host(&self, record: &Record, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let Record { source, ticket, version } = record;
        if self.is_complete(*version) {
            return Ok(());
        }
        source.wait_retired(*ticket, interrupt)?;
        if !source.on_host {
            if let Some(mark) = source.marks.at(*ticket) {
                while_blocked(|| source.backend.wait_mark(mark.mark()))?;
                source.marks.reached(*ticket);
            }
            self.complete(*version);
        }
        Ok(())
    }
}

/// The record as a task.
struct RecordCommand {
    event: Arc<EventCore>,
    version: u64,
}

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Own;

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self { event, version } = self;
        context.is_marker = true;
        if context.on_host && !event.is_timed && context.failure().is_none() {
            return event.complete(version);
        }
        let mark = context.mark(event.is_timed);
        if mark.is_none() && !context.on_host {
            // Refused: the record is failed, and still not complete before the device is there.
            let _ = while_blocked(|| context.backend.stream_synchronize(context.handle));
        }
        let failure = context.failure().cloned();
        let is_done = context.on_host || mark.is_none();
        event.finish(version, mark.clone(), failure);
        if is_done {
            event.complete(version);
        } else {
            context.effects().mark = mark;
        }
    }
}

impl Stream {
    /// Records the event behind everything enqueued so far. Never blocks; never fails because of an
    /// open error of the stream.
    ///
    /// Fails when the event belongs to another kind or another device.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<()> {
        let core = self.core();
        core.lifecycle.check()?;
        let previous;
        let pushed = {
            let mut latest = event.core.latest.lock();
            previous = latest.move_to(core)?;
            event.core.device.get_or_init(|| core.identity.device);
            // Relaxed: written under the lock.
            let version = event.core.recorded.load(Ordering::Relaxed) + 1;
            let event_core = Arc::clone(&event.core);
            let pushed = core.push_unscheduled(RecordCommand { event: event_core, version });
            if let Some((_, ticket)) = &mut latest.source {
                *ticket = pushed.ticket;
            }
            // Release: pairs with `query`.
            event.core.recorded.store(version, Ordering::Release);
            pushed
        };
        drop(previous); // the last reference to a stream is dropped without the lock
        core.published(pushed);
        Ok(())
    }

    /// Records a new event without timing and returns it.
    pub fn record_event(&self) -> Result<Event> {
        let event = Event::new();
        self.record(&event)?;
        Ok(event)
    }

    /// What is enqueued from now on runs after everything before the event's latest record. No
    /// thread waits. Nothing to do when the event was never recorded. A failed event fails this
    /// stream.
    ///
    /// Fails when the event belongs to another kind.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let core = self.core();
        core.lifecycle.check()?;
        let Some(record) = event.core.record() else { return Ok(()) };
        let (kind, own_kind) = (record.source.identity.device.kind(), core.identity.device.kind());
        if kind != own_kind {
            return Err(Error::EventKindMismatch {
                event: kind,
                role: "blocking",
                stream: own_kind,
            });
        }
        record.source.failures.bind();
        let wait = WaitFor::new_bound(Arc::clone(&record.source), record.ticket);
        if event.core.is_complete(record.version) {
            return match event.core.failure_of(&record) {
                None => Ok(()),
                Some(error) => core.push(Inherit(error)).map(drop),
            };
        }
        let ticket = core.push(wait)?;
        let point = Point { progress: Arc::clone(&record.source.progress), ticket: record.ticket };
        core.history.join(ticket, &point, record.source.history.at(record.ticket).as_deref());
        Ok(())
    }

    /// What is enqueued from now on runs after everything enqueued on `other` so far.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        self.wait_event(&other.record_event()?)
    }

    /// True when this stream's next task is known to run after the event's latest record: the
    /// record is done, it is on this stream, or this stream waits for it, directly or through
    /// others. May lag behind waits that are being enqueued; never runs ahead of them.
    #[must_use]
    pub fn is_ordered_after(&self, event: &Event) -> bool {
        if fork::is_child() {
            return event.query();
        }
        let Some(record) = event.core.record() else { return true };
        let point = Point { progress: Arc::clone(&record.source.progress), ticket: record.ticket };
        let is_own = Arc::ptr_eq(&record.source, self.core());
        let is_joined =
            || self.core().history.latest().is_some_and(|known| known.dominates(&point));
        is_own || event.query() || is_joined()
    }
}

impl Latest {
    /// The event is about to be recorded on `core`. Returns what is to be dropped without the lock.
    #[inline]
    fn move_to(&mut self, core: &Arc<StreamCore>) -> Result<Option<Arc<StreamCore>>> {
        if let Some((source, _)) = &self.source
            && Arc::ptr_eq(source, core)
        {
            return Ok(None);
        }
        let device = core.identity.device;
        if let Some(event) = self.kind
            && event != device.kind()
        {
            let (role, stream) = ("recording", device.kind());
            return Err(Error::EventKindMismatch { event, role, stream });
        }
        if let Some((source, _)) = &self.source
            && source.identity.device != device
        {
            let (event, stream) = (source.identity.device.index(), device.index());
            return Err(Error::EventDeviceMismatch { event, stream });
        }
        self.kind = Some(device.kind());
        Ok(self.source.replace((Arc::clone(core), 0)).map(|(source, _)| source))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("device", &self.device())
            .field("is_timed", &self.is_timed())
            .field("version", &self.version())
            .field("is_done", &self.query())
            .finish()
    }
}
