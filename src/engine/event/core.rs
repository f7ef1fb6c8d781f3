//! The state that the handles and queued records of one event share: versions and their outcomes.

use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::backend::contract::owned::OwnedMark;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{Error, EventError, Result, StreamFailure};
use crate::base::spin::{SpinGuard, SpinMutex};
use crate::base::sync::{AtomicU64, LifetimeTracker, Ordering};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::failures::RetainingStream;
use crate::engine::stream::interrupt::Interrupt;

/// One event, as its handles and queued records share it.
///
/// Recording threads write the fields before `finished`. Consumers write `finished`, on a separate
/// cache line: a shared line would move between processors at each record of a pipeline.
pub(super) struct EventCore {
    /// The records' device, set by the first record. Read without the lock, also in a forked child.
    pub(super) device: OnceLock<Device>,
    /// The latest version: the number of records begun.
    pub(super) recorded: AtomicU64,
    /// The number of records that bypassed the queue. Part of the reference count in `shared.rs`.
    pub(super) direct: AtomicU64,
    pub(super) handles: AtomicU64,
    pub(super) latest: SpinMutex<Latest>,
    pub(super) finished: CachePadded<Finished>,
    pub(super) life: LifetimeTracker,
}

/// The fields that consumers write, on a cache line of their own.
pub(super) struct Finished {
    pub(super) is_timed: bool,
    /// The highest version known to be done. Saves later queries a read of the stream.
    completed: AtomicU64,
    /// The number of queued records that were run or dropped. The drop of the last handle subtracts
    /// the number of queued records begun (see `shared.rs`).
    pub(super) records: AtomicU64,
}

/// The source of the latest version, and the outcome of the highest finished version.
pub(super) struct Latest {
    /// The kind that the event was created for, or the kind of the first record.
    kind: Option<DeviceKind>,
    /// The stream and ticket of the latest version.
    source: Option<(Arc<StreamCore>, u64)>,
    /// The version whose outcome is in `mark` and `failure`, both `None` for an untimed success.
    finished_version: u64,
    mark: Option<Arc<OwnedMark>>,
    failure: Option<Arc<StreamFailure>>,
}

/// One record of an event. While this value exists, the source stream retains cleared errors.
pub(super) struct Record {
    pub(super) source: RetainingStream,
    pub(super) ticket: u64,
    pub(super) version: u64,
}

impl EventCore {
    pub(super) fn new(kind: Option<DeviceKind>, is_timed: bool) -> Self {
        let latest = Latest { kind, source: None, finished_version: 0, mark: None, failure: None };
        let finished =
            Finished { is_timed, completed: AtomicU64::new(0), records: AtomicU64::new(0) };
        Self {
            device: OnceLock::new(),
            recorded: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            handles: AtomicU64::new(1),
            latest: SpinMutex::new(latest),
            finished: CachePadded::new(finished),
            life: LifetimeTracker::new(),
        }
    }

    pub(super) fn record(&self) -> Option<Record> {
        let latest = self.latest.lock();
        let (source, ticket) = latest.source.as_ref()?;
        // Relaxed: `recorded` changes only under the lock, which is held here.
        let version = self.recorded.load(Ordering::Relaxed);
        // Created under the lock: from here on the stream retains the record's error, even if a
        // later record replaces the failure that the event stores.
        Some(Record { source: RetainingStream::new(source), ticket: *ticket, version })
    }

    /// Locks the event to record it on a stream. Fails when the event's kind, device or runtime
    /// does not match the stream. The caller stores the record by [`Latest::move_to`].
    #[inline]
    pub(super) fn lock_for(&self, core: &Arc<StreamCore>) -> Result<SpinGuard<'_, Latest>> {
        let mut latest = self.latest.lock();
        if !latest.is_on(core) {
            self.bind(&mut latest, core)?;
        }
        Ok(latest)
    }

    /// Sets the event's kind and device, or fails if they differ from the stream's. Also fails if
    /// the event's latest record is in another runtime.
    #[cold]
    fn bind(&self, latest: &mut Latest, core: &StreamCore) -> Result<()> {
        let device = core.identity.device;
        if let Some(event) = latest.kind
            && event != device.kind()
        {
            let (role, stream) = ("recording", device.kind());
            return Err(Error::Event(EventError::KindMismatch { event, role, stream }));
        }
        let own = *self.device.get_or_init(|| device);
        if own != device {
            let (event, stream) = (own.index(), device.index());
            return Err(Error::Event(EventError::DeviceMismatch { event, stream }));
        }
        if let Some((source, _)) = &latest.source {
            core.lifecycle.check_same_runtime("an event", source.lifecycle.runtime)?;
        }
        latest.kind = Some(device.kind());
        Ok(())
    }

    /// True when the counter of the latest record's stream shows that the record is done.
    pub(super) fn is_passed(&self, latest: &Latest) -> bool {
        let is_passed = latest.is_passed();
        if is_passed {
            // Relaxed: `recorded` changes only under the lock, which the caller holds.
            self.complete(self.recorded.load(Ordering::Relaxed));
        }
        is_passed
    }

    pub(super) fn kind(&self) -> Option<DeviceKind> {
        self.latest.lock().kind
    }

    pub(super) fn is_complete(&self, version: u64) -> bool {
        self.completed() >= version
    }

    /// True when the latest record is known to be done. Reads only the event, not the stream.
    #[inline]
    pub(super) fn is_latest_complete(&self) -> bool {
        let completed = self.completed();
        // Relaxed: the acquire load in `completed` orders this load. If a record began before
        // `complete` was called for an older one, this load sees the newer record.
        completed >= self.recorded.load(Ordering::Relaxed)
    }

    /// The highest version that is known to be done.
    #[inline]
    fn completed(&self) -> u64 {
        // Acquire: pairs with `complete`.
        self.finished.completed.load(Ordering::Acquire)
    }

    pub(super) fn complete(&self, version: u64) {
        // Release: pairs with the loads of `completed`. A thread that sees this version done also
        // sees its outcome and the work before it.
        self.finished.completed.fetch_max(version, Ordering::Release);
    }

    /// True when the event or the stream's counter shows that the record is done.
    pub(super) fn is_reached(&self, record: &Record) -> bool {
        let is_reached =
            self.is_complete(record.version) || record.source.progress.done() >= record.ticket;
        if is_reached {
            self.complete(record.version);
        }
        is_reached
    }

    /// Stores the outcome of a version, unless a later version has already finished.
    pub(super) fn finish(
        &self,
        version: u64,
        mark: Option<Arc<OwnedMark>>,
        failure: Option<Arc<StreamFailure>>,
    ) {
        let (mut mark, mut failure) = (mark, failure);
        let mut latest = self.latest.lock();
        if version > latest.finished_version {
            latest.finished_version = version;
            std::mem::swap(&mut latest.mark, &mut mark);
            std::mem::swap(&mut latest.failure, &mut failure);
        }
        drop(latest); // so that the previous outcome is dropped without the lock
    }

    pub(super) fn mark_of(&self, record: &Record) -> Option<Arc<OwnedMark>> {
        let latest = self.latest.lock();
        latest.mark.clone().filter(|_| latest.finished_version == record.version)
    }

    /// The failure of a finished record, from the event or else from the stream's log.
    pub(super) fn failure_of(&self, record: &Record) -> Option<Arc<StreamFailure>> {
        let own = {
            let latest = self.latest.lock();
            latest.failure.clone().filter(|_| latest.finished_version == record.version)
        };
        own.or_else(|| record.source.failures.at(record.ticket))
    }

    pub(super) fn wait_on_host(
        &self,
        record: &Record,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let Record { source, ticket, version } = record;
        if self.is_complete(*version) {
            return Ok(());
        }
        source.wait_retired(*ticket, interrupt)?;
        if !source.on_host {
            if let Some(mark) = source.marks.at(*ticket) {
                source.wait_at_mark(*ticket, &mark, interrupt)?;
                source.marks.reached(*ticket);
            }
            self.complete(*version);
        }
        Ok(())
    }
}

impl Latest {
    fn is_passed(&self) -> bool {
        let Some((source, ticket)) = &self.source else { return true };
        source.progress.done() >= *ticket
    }

    /// True when the latest record is on a host kind.
    pub(super) fn is_on_host(&self) -> bool {
        self.source.as_ref().is_some_and(|(source, _)| source.on_host)
    }

    /// True when the latest record is on this stream.
    #[inline]
    pub(super) fn is_on(&self, core: &Arc<StreamCore>) -> bool {
        self.source.as_ref().is_some_and(|(source, _)| Arc::ptr_eq(source, core))
    }

    /// Moves the latest record to this ticket of the stream in one step, so that no query finds the
    /// event done between two pending records. Returns the previous stream, which the caller must
    /// drop without the lock.
    #[inline]
    #[must_use]
    pub(super) fn move_to(
        &mut self,
        core: &Arc<StreamCore>,
        ticket: u64,
    ) -> Option<Arc<StreamCore>> {
        if let Some((source, latest)) = &mut self.source
            && Arc::ptr_eq(source, core)
        {
            *latest = ticket;
            return None;
        }
        self.change_stream(core, ticket)
    }

    #[cold]
    fn change_stream(&mut self, core: &Arc<StreamCore>, ticket: u64) -> Option<Arc<StreamCore>> {
        self.source.replace((Arc::clone(core), ticket)).map(|(source, _)| source)
    }
}
