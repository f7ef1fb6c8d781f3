//! A stream: a driver's in-order queue, with counts of submitted, flushed and completed commands.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::Error;
use accelrt::backend::contract::{Turn, Work};
use accelrt::internal::{LockRank, Mutex};
use accelrt::size::to_usize;

use crate::device::XpuDevice;
use crate::driver::{CallError, CallResult};
use crate::event;
use crate::session::Session;
use crate::sys::{self, Event, Queue};

/// The stream removes completed waits whenever the number of waits is a multiple of this.
const WAITS_PER_CHECK: usize = 64;

/// A queue, and counts of the commands that this backend has enqueued in it.
///
/// | count | meaning |
/// |---|---|
/// | `submitted` | all commands, except those that `query` enqueues to get an event |
/// | `flushed` | a lower bound of the commands that the driver has sent to the device |
/// | `completed` | a lower bound of the commands that the device has completed |
///
/// The driver may hold commands back until a flush, so a queue is flushed before an event of it is
/// awaited or queried. On an exclusive queue, `query` calls the driver only while `completed` is
/// less than `submitted`.
///
/// All accesses are relaxed: no count publishes other data, and the driver orders the commands.
#[derive(Debug)]
pub(crate) struct XpuStream {
    session: Arc<Session>,
    pub(crate) queue: Queue,
    /// The device of the queue. Callers use it to refuse work on a lost device and to convert a
    /// refused call into an error of the device.
    pub(crate) device: Arc<XpuDevice>,
    /// False for a wrapped queue, since other code also submits to it.
    is_exclusive: bool,
    submitted: AtomicU64,
    flushed: AtomicU64,
    completed: AtomicU64,
    /// The event of the latest query, and the value of `submitted` when the event was enqueued.
    query_event: Mutex<Option<(Event, u64)>>,
    /// Events of waits for other streams, except waits that are known to be complete. When the
    /// awaited work fails, OpenCL may still execute the commands after the wait. The status of the
    /// wait's event is then the only report of the failure.
    waits: Mutex<Vec<Event>>,
}

impl XpuStream {
    /// Takes ownership of a queue. The stream's drop releases the queue.
    pub(crate) fn new(
        session: &Arc<Session>,
        queue: Queue,
        device: &Arc<XpuDevice>,
        is_exclusive: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            queue,
            device: Arc::clone(device),
            is_exclusive,
            submitted: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            query_event: Mutex::new(LockRank::Backend, None),
            waits: Mutex::new(LockRank::Backend, Vec::new()),
        })
    }

    /// Adds one to `submitted`, after the driver has accepted a command.
    fn count(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed); // relaxed: see the type
    }

    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> CallResult {
        self.session.usm.enqueue_copy(self.queue, to, from, bytes).map(|()| self.count())
    }

    pub(crate) fn fill(&self, to: u64, byte: u8, bytes: usize) -> CallResult {
        self.session.usm.enqueue_fill(self.queue, to, byte, bytes).map(|()| self.count())
    }

    /// Calls `enqueue`, which submits one command to the queue, and counts the command.
    pub(crate) fn enqueue(&self, enqueue: impl FnOnce(Queue) -> CallResult) -> CallResult {
        enqueue(self.queue).map(|()| self.count())
    }

    /// Makes later commands wait for `event`. The event's queue needs no flush here, because
    /// [`Self::mark`], which created the event, has flushed that queue.
    pub(crate) fn wait_for(&self, event: Event) -> CallResult {
        let wait = self.session.driver.enqueue_wait(self.queue, event)?;
        self.count();
        let is_due = {
            let mut waits = self.waits.lock();
            waits.push(wait);
            waits.len().is_multiple_of(WAITS_PER_CHECK)
        };
        if is_due { self.remove_completed_waits() } else { Ok(()) }
    }

    /// Removes completed waits; fails when one of them failed.
    fn remove_completed_waits(&self) -> CallResult {
        // Moves the waits out of the lock, so that no driver call runs under the lock.
        let mut waits = std::mem::take(&mut *self.waits.lock());
        let mut outcome = Ok(());
        waits.retain(|wait| {
            let is_done = event::is_done(&self.session.driver, *wait);
            if is_done == Ok(false) {
                return true;
            }
            self.release(*wait);
            if let Err(CallError { code, .. }) = is_done {
                outcome = Err(CallError { call: "a wait for another stream", code });
            }
            false
        });
        self.waits.lock().append(&mut waits);
        outcome
    }

    /// Enqueues an event that completes after all submitted commands, and flushes the queue.
    pub(crate) fn mark(&self) -> CallResult<Event> {
        let event = self.session.driver.enqueue_marker(self.queue)?;
        self.count();
        if let Err(refusal) = self.flush() {
            self.release(event); // without a flush, the event might never complete
            return Err(refusal);
        }
        Ok(event)
    }

    /// Sends all submitted commands to the device. Does not wait for them.
    fn flush(&self) -> CallResult {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        self.session.driver.flush(self.queue)?;
        // Relaxed: see the type. A late store may lower the count, which costs one more flush.
        self.flushed.store(submitted, Ordering::Relaxed);
        Ok(())
    }

    /// Flushes, unless a flush already covers all submitted commands.
    pub(crate) fn flush_if_needed(&self) {
        // Relaxed: this thread ran the tasks that submitted the commands.
        if self.submitted.load(Ordering::Relaxed) != self.flushed.load(Ordering::Relaxed) {
            // The result is ignored: the next mark flushes again and reports the error.
            let _ = self.flush();
        }
    }

    /// Blocks until all submitted commands are done. Fails when a wait for another stream failed.
    pub(crate) fn finish(&self) -> CallResult {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        self.session.driver.finish(self.queue)?;
        self.completed.fetch_max(submitted, Ordering::Relaxed); // relaxed: see the type
        self.remove_completed_waits()
    }

    /// True when all submitted commands are done. OpenCL cannot query a queue, so the first call
    /// enqueues an event and queries its status. Later calls reuse the event until a command is
    /// submitted.
    pub(crate) fn query(&self) -> CallResult<bool> {
        let submitted = self.submitted.load(Ordering::Relaxed); // relaxed: see the type
        // Relaxed: see the type.
        if self.is_exclusive && self.completed.load(Ordering::Relaxed) >= submitted {
            return Ok(true);
        }
        let earlier = self.query_event.lock().take();
        let (event, submitted_before) = match earlier {
            Some(query_event) if query_event.1 == submitted => query_event,
            stale => {
                self.release_query_event(stale);
                let event = self.session.driver.enqueue_marker(self.queue)?;
                if let Err(refusal) = self.session.driver.flush(self.queue) {
                    self.release(event);
                    return Err(refusal);
                }
                (event, submitted)
            }
        };
        let is_done = event::is_done(&self.session.driver, event);
        if is_done == Ok(false) {
            let other = self.query_event.lock().replace((event, submitted_before));
            self.release_query_event(other);
        } else {
            self.release(event);
        }
        if is_done == Ok(true) {
            // Relaxed: see the type.
            self.completed.fetch_max(submitted_before, Ordering::Relaxed);
        }
        is_done
    }

    fn release_query_event(&self, query_event: Option<(Event, u64)>) {
        if let Some((event, _)) = query_event {
            self.release(event);
        }
    }

    fn release(&self, event: Event) {
        // The result is ignored: a failure leaks the event, since no other handle exists.
        let _ = self.session.driver.release_event(event);
    }

    pub(crate) fn native(&self) -> u64 {
        self.queue.0.expose_provenance() as u64
    }

    /// Wraps a queue that other code created. Fails unless the queue is in-order, on this device
    /// and in this context, because memory and events of one context are invalid in another.
    pub(crate) fn wrap(
        session: &Arc<Session>,
        device: &Arc<XpuDevice>,
        native: u64,
    ) -> CallResult<Arc<Self>> {
        let queue = Queue(std::ptr::with_exposed_provenance_mut(to_usize(native)));
        let driver = &session.driver;
        let refuse = |code| Err(CallError { call: "clRetainCommandQueue", code });
        if native == 0 {
            return refuse(sys::INVALID_COMMAND_QUEUE);
        }
        driver.retain_queue(queue)?;
        // From here on, the drop of `stream` releases the queue.
        let stream = Self::new(session, queue, device, false);
        if driver.queue_info::<sys::Context>(queue, sys::QUEUE_CONTEXT)? != session.context {
            return refuse(sys::INVALID_CONTEXT);
        }
        if driver.queue_info::<sys::DeviceId>(queue, sys::QUEUE_DEVICE)? != device.info.id {
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
        let query_event = self.query_event.lock().take();
        self.release_query_event(query_event);
        let waits = std::mem::take(&mut *self.waits.lock());
        for wait in waits {
            self.release(wait);
        }
        // `clReleaseCommandQueue` also flushes. The result is ignored: a failure leaks the queue.
        let _ = self.session.driver.release_queue(self.queue);
    }
}

/// Work that flushes its stream after each run.
pub(crate) struct FlushAfterRun {
    pub(crate) work: Arc<dyn Work>,
    pub(crate) stream: Arc<XpuStream>,
}

impl Work for FlushAfterRun {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        Arc::clone(&self.work).run(turn);
        self.stream.flush_if_needed();
    }

    fn refuse(self: Arc<Self>, reason: &Error) {
        Arc::clone(&self.work).refuse(reason);
    }
}
