//! The state that the handles and queued records of one event share: versions and their outcomes.
//!
//! # Lifetime
//!
//! With one count, its cache line would move between processors at every record: the recording
//! thread increments the count, and the consumer decrements it. So there are two counts: `recorded`
//! (records begun) and `finished.records` (records passed or dropped). The drop of the last handle
//! subtracts `recorded`, now final, from `finished.records`. The thread that then brings
//! `finished.records` to zero frees the core; no other thread touches the core again. A record that
//! bypasses the queue ends before its handle. `direct` counts these records, and the last handle
//! subtracts `direct` from `recorded` first.
#![expect(unsafe_code, reason = "a core is reached by raw pointers whose counts are kept here")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::backend::contract::owned::OwnedMark;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{Error, EventError, Result, StreamFailure};
use crate::base::spin::{SpinGuard, SpinMutex};
use crate::base::sync::{AtomicU64, LifetimeTracker, Ordering};
use crate::engine::stream::core::{RetainingStream, StreamCore};
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

/// A counted reference to a core, held by each [`Event`](super::Event) handle.
pub(super) struct Shared(NonNull<EventCore>);

/// A queued record, with its reference to the core. The drop counts the record as ended.
pub(super) struct PendingRecord {
    core: NonNull<EventCore>,
    pub(super) version: u64,
}

// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Send for Shared {}
// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Sync for Shared {}
// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Send for PendingRecord {}

#[cfg(not(loom))] // in models `life` contains a cell, which is not `Sync`
const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<EventCore>();
};

impl Shared {
    pub(super) fn new(core: EventCore) -> Self {
        Self(NonNull::from(Box::leak(Box::new(core))))
    }

    /// Begins the next version. The caller takes the ticket under the same lock, so versions and
    /// tickets of one stream grow together.
    #[inline]
    pub(super) fn begin(&self, _under_lock: &mut Latest) -> PendingRecord {
        // Relaxed, and no atomic add: `recorded` changes only under the lock.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        // Release: a thread that sees the version also sees the event's device; pairs with
        // `Event::version`. No model: loom does not see the standard library's cell of the device.
        self.recorded.store(version, Ordering::Release);
        PendingRecord { core: self.0, version }
    }

    /// As [`Shared::begin`], for a record that ends before the caller's handle, which keeps the
    /// core alive. Returns the version.
    #[inline]
    pub(super) fn begin_direct(&self, _under_lock: &mut Latest) -> u64 {
        // Relaxed, and no atomic adds: both counts change only under the lock.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        self.direct.store(self.direct.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: pairs with `Event::version`. No model: for the reason given in `begin`.
        self.recorded.store(version, Ordering::Release);
        version
    }

    /// The address of the core, which identifies the event.
    pub(super) fn address(&self) -> u64 {
        self.0.addr().get() as u64
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: this handle keeps the core alive during the call.
        self.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Deref for Shared {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: this handle is alive, and the core is freed only after the last handle's drop
        // (head of this file).
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: pairs with the drops of the other handles, whose uses come before the last drop.
        if self.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Relaxed: the handles that began records are ordered before this by the AcqRel above.
        let begun = self.recorded.load(Ordering::Relaxed) - self.direct.load(Ordering::Relaxed);
        // AcqRel: acquires the finished records' uses of the core; releases the handles' uses to
        // the record that frees the core.
        if self.finished.records.fetch_sub(begun, Ordering::AcqRel) == begun {
            // SAFETY: the count is zero, so no handle and no record is left. This subtraction made
            // the count zero, so no record's drop frees the core.
            unsafe { free(self.0) };
        }
    }
}

impl Deref for PendingRecord {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: the core is freed only after every record has finished (head of this file). This
        // record finishes in its drop.
        unsafe { self.core.as_ref() }
    }
}

impl Drop for PendingRecord {
    #[inline]
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: releases this record's uses of the core to the thread that frees it, and acquires
        // the other uses in case this thread frees the core. The count is below zero only after the
        // last handle's drop.
        if self.finished.records.fetch_add(1, Ordering::AcqRel) == u64::MAX {
            // SAFETY: this addition made the count zero, so no handle and no other record is left,
            // and no other thread frees the core.
            unsafe { free(self.core) };
        }
    }
}

/// # Safety
/// `core` must come from [`Shared::new`] and must not be used again.
#[cold]
unsafe fn free(core: NonNull<EventCore>) {
    // SAFETY: `Shared::new` leaked the core from a box, and the caller does not use it again.
    let core = unsafe { Box::from_raw(core.as_ptr()) };
    core.life.note_end();
    drop(core);
}
