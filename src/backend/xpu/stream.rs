//! One stream: an in-order queue, and how far it was submitted, flushed and completed.
#![expect(unsafe_code, reason = "a handle is the address of a stream")]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use super::device::XpuDevice;
use super::driver::{Answer, Refusal};
use super::event;
use super::program::XpuKernel;
use super::session::Session;
use super::sys::{self, Event, Queue};
use crate::backend::contract::{LaunchArgument, LaunchSize, StreamHandle, Turn, Work};
use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering};

/// A stream checks its waits once per this many, so that unqueried waits do not pile up.
const WAITS_PER_LOOK: usize = 64;

/// A queue and its counters.
///
/// | number | meaning |
/// |---|---|
/// | `submitted` | commands that were enqueued through us |
/// | `flushed` | of them, those that the device was told of; what is not flushed may never start |
/// | `done` | of them, those that the device is known to have done |
///
/// Their accesses are relaxed: each is a number alone, and the driver orders the commands.
#[derive(Debug)]
pub(super) struct XpuStream {
    session: Arc<Session>,
    pub(super) queue: Queue,
    pub(super) device: Arc<XpuDevice>,
    /// False for a queue of other code, which submits without us.
    is_own: bool,
    submitted: AtomicU64,
    flushed: AtomicU64,
    done: AtomicU64,
    /// The marker of the latest query, and the count of submissions before it.
    question: Mutex<Option<(Event, u64)>>,
    /// Waits for other streams that were not seen to end. Only their own events report a failure of
    /// the awaited work, and a queue need not stop behind them.
    waits: Mutex<Vec<Event>>,
}

/// A stream that the holder of its handle keeps alive.
pub(super) struct Held(ManuallyDrop<Arc<XpuStream>>);

impl Held {
    /// The stream behind a handle.
    ///
    /// # Safety
    /// The stream is live.
    pub(super) unsafe fn of(handle: StreamHandle) -> Self {
        let address = usize::try_from(handle.0).expect("addresses have 64 bits");
        let stream = std::ptr::with_exposed_provenance(address);
        // SAFETY: a handle of this backend is an address from `Arc::into_raw` in `into_handle`, and
        // `end` alone gives its reference back: the contract's callers use no handle after that.
        Self(ManuallyDrop::new(unsafe { Arc::from_raw(stream) }))
    }

    /// A separate reference: the stream may be given back meanwhile.
    pub(super) fn share(&self) -> Arc<XpuStream> {
        Arc::clone(&self.0)
    }

    /// Gives the handle's reference back.
    pub(super) fn end(self) -> Arc<XpuStream> {
        ManuallyDrop::into_inner(self.0)
    }
}

impl Deref for Held {
    type Target = XpuStream;

    fn deref(&self) -> &XpuStream {
        &self.0
    }
}

impl XpuStream {
    /// Takes ownership of a queue, which the drop releases.
    pub(super) fn new(
        session: &Arc<Session>,
        queue: Queue,
        device: &Arc<XpuDevice>,
        is_own: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            queue,
            device: Arc::clone(device),
            is_own,
            submitted: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            question: Mutex::new(LockRank::Backend, None),
            waits: Mutex::new(LockRank::Backend, Vec::new()),
        })
    }

    /// The handle, which holds a reference until [`Held::end`].
    pub(super) fn into_handle(self: Arc<Self>) -> StreamHandle {
        StreamHandle(Arc::into_raw(self).expose_provenance() as u64)
    }

    /// Counts a command; its number.
    fn count(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::Relaxed) + 1 // relaxed: see the type
    }

    pub(super) fn copy(&self, to: u64, from: u64, bytes: usize) -> Answer {
        self.session.usm.enqueue_copy(self.queue, to, from, bytes)?;
        self.count();
        Ok(())
    }

    pub(super) fn fill(&self, to: u64, byte: u8, bytes: usize) -> Answer {
        self.session.usm.enqueue_fill(self.queue, to, byte, bytes)?;
        self.count();
        Ok(())
    }

    /// Runs a kernel.
    pub(super) fn launch(
        &self,
        kernel: &XpuKernel,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Answer {
        kernel.enqueue(self.queue, arguments, size)?;
        self.count();
        Ok(())
    }

    /// Has later commands wait for an event, which was flushed when it was placed.
    pub(super) fn wait_for(&self, event: Event) -> Answer {
        let wait = self.session.driver.enqueue_wait(self.queue, event)?;
        self.count();
        let is_due = {
            let mut waits = self.waits.lock();
            waits.push(wait);
            waits.len().is_multiple_of(WAITS_PER_LOOK)
        };
        if is_due { self.check_waits() } else { Ok(()) }
    }

    /// Forgets the waits that have ended; fails when one of them failed.
    fn check_waits(&self) -> Answer {
        // Taken out of the lock, because the driver must not be called under one.
        let mut waits = std::mem::take(&mut *self.waits.lock());
        let mut outcome = Ok(());
        waits.retain(|wait| {
            let is_done = event::is_done(&self.session.driver, *wait);
            if is_done == Ok(false) {
                return true;
            }
            self.forget(Some((*wait, 0)));
            if let Err(Refusal { code, .. }) = is_done {
                outcome = Err(Refusal { call: "a wait for another stream", code });
            }
            false
        });
        self.waits.lock().append(&mut waits);
        outcome
    }

    /// An event behind everything submitted, on its way to the device.
    pub(super) fn mark(&self) -> Answer<Event> {
        let event = self.session.driver.enqueue_marker(self.queue)?;
        self.count();
        if let Err(refusal) = self.flush() {
            // The mark would never be reached.
            let _ = self.session.driver.release_event(event);
            return Err(refusal);
        }
        Ok(event)
    }

    /// Flushes the queue: tells the device of everything submitted.
    fn flush(&self) -> Answer {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        self.session.driver.flush(self.queue)?;
        // Relaxed: see the type. A late thread may store less than another one did, which costs a
        // flush and claims nothing.
        self.flushed.store(submitted, Ordering::Relaxed);
        Ok(())
    }

    /// As [`Self::flush`], when there are commands that were not flushed.
    pub(super) fn flush_rest(&self) {
        // Relaxed: the tasks that submitted these commands ran on this thread.
        if self.submitted.load(Ordering::Relaxed) != self.flushed.load(Ordering::Relaxed) {
            // There is no caller to tell; the next mark flushes again, and reports it.
            let _ = self.flush();
        }
    }

    /// Blocks until everything submitted is done; fails when a wait of it failed.
    pub(super) fn finish(&self) -> Answer {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        self.session.driver.finish(self.queue)?;
        self.done.fetch_max(submitted, Ordering::Relaxed); // relaxed: see the type
        self.check_waits()
    }

    /// True when everything submitted is done. A queue cannot be queried, so this places a marker
    /// and queries that from then on.
    pub(super) fn query(&self) -> Answer<bool> {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        // Relaxed: see the type.
        if self.is_own && self.done.load(Ordering::Relaxed) >= submitted {
            return Ok(true);
        }
        let earlier = self.question.lock().take();
        let (event, at) = match earlier {
            Some(question) if question.1 == submitted => question,
            stale => {
                self.forget(stale);
                let event = self.session.driver.enqueue_marker(self.queue)?;
                if let Err(refusal) = self.session.driver.flush(self.queue) {
                    self.forget(Some((event, 0)));
                    return Err(refusal);
                }
                (event, submitted)
            }
        };
        let is_done = event::is_done(&self.session.driver, event);
        if is_done == Ok(false) {
            let other = self.question.lock().replace((event, at));
            self.forget(other);
        } else {
            self.forget(Some((event, at)));
        }
        if is_done == Ok(true) {
            self.done.fetch_max(at, Ordering::Relaxed); // relaxed: see the type
        }
        is_done
    }

    fn forget(&self, question: Option<(Event, u64)>) {
        if let Some((event, _)) = question {
            // A refusal leaves nothing to do: there is no other handle of the event.
            let _ = self.session.driver.release_event(event);
        }
    }

    /// The native handle.
    pub(super) fn native(&self) -> u64 {
        self.queue.0.expose_provenance() as u64
    }

    /// Takes a reference to a queue that other code made: in order, on this device, and of our
    /// context, because memory and events of another context mean nothing here.
    pub(super) fn wrap(
        session: &Arc<Session>,
        device: &Arc<XpuDevice>,
        native: u64,
    ) -> Answer<Arc<Self>> {
        let address = usize::try_from(native).expect("addresses have 64 bits");
        let queue = Queue(std::ptr::with_exposed_provenance_mut(address));
        let driver = &session.driver;
        let refuse = |code| Err(Refusal { call: "clRetainCommandQueue", code });
        if native == 0 {
            return refuse(sys::INVALID_COMMAND_QUEUE);
        }
        driver.retain_queue(queue)?;
        // From here on the drop releases it.
        let stream = Self::new(session, queue, device, false);
        if driver.queue_info::<sys::Context>(queue, sys::QUEUE_CONTEXT)? != session.context {
            return refuse(sys::INVALID_CONTEXT);
        }
        if driver.queue_info::<sys::DeviceId>(queue, sys::QUEUE_DEVICE)? != device.id() {
            return refuse(sys::INVALID_DEVICE);
        }
        let properties: u64 = driver.queue_info(queue, sys::QUEUE_PROPERTIES)?;
        if properties & sys::QUEUE_OUT_OF_ORDER != 0 {
            return refuse(sys::INVALID_QUEUE_PROPERTIES);
        }
        Ok(stream)
    }
}

impl Drop for XpuStream {
    fn drop(&mut self) {
        let question = self.question.lock().take();
        self.forget(question);
        let waits = std::mem::take(&mut *self.waits.lock());
        for wait in waits {
            self.forget(Some((wait, 0)));
        }
        // The driver finishes submitted commands: releasing a queue flushes it.
        let _ = self.session.driver.release_queue(self.queue);
    }
}

/// Work of a stream that flushes the stream afterwards.
pub(super) struct Flushed {
    pub(super) work: Arc<dyn Work>,
    pub(super) stream: Arc<XpuStream>,
}

impl Work for Flushed {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        Arc::clone(&self.work).run(turn);
        self.stream.flush_rest();
    }

    fn refuse(self: Arc<Self>, reason: &Error) {
        Arc::clone(&self.work).refuse(reason);
    }
}
