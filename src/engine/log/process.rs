//! The log of this process, and the ring that each of its threads has in it.
#![expect(unsafe_code, reason = "a thread finds its ring by a pointer to a variable of its own")]

use std::cell::{Cell, OnceCell};
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

use crate::base::fork;
use crate::engine::log::collector::{Keeps, Log, Subscription, Taken, ThreadLog, Wants};
use crate::engine::log::context::NameId;
use crate::engine::log::device_times::{self, TimedTask};
use crate::engine::log::record::LogRecord;

/// Made by the first subscription.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

thread_local! {
    static THREAD: CurrentThread = const { CurrentThread(OnceCell::new()) };
    /// What `THREAD` has, for as long as it has it: to be found in one load.
    static RING: Cell<*const ThreadLog> = const { Cell::new(ptr::null()) };
}

struct CurrentThread(OnceCell<ThreadLog>);

impl Drop for CurrentThread {
    fn drop(&mut self) {
        RING.set(ptr::null());
        // A forked child's log may be locked by a thread that the child lacks.
        if let (Some(thread), Some(log)) = (self.0.get(), LOG.get())
            && !fork::is_child()
        {
            log.remove_thread(thread);
        }
    }
}

/// True while some subscription of this process asks for one of these.
#[inline]
pub fn is_wanted(wants: Wants) -> bool {
    LOG.get().is_some_and(|log| log.is_wanted(wants))
}

/// Writes a record of this thread. A thread whose variables were dropped hands it over without a
/// ring, and so without its number. Nothing is written in a forked child.
pub fn write(record: &LogRecord) {
    if let Some(log) = LOG.get() {
        Writer(log).write(record);
    }
}

/// The log, for a record that some subscription asks for.
pub(crate) struct Writer(&'static Log);

/// `None` while no subscription asks for one of these.
#[inline]
pub(crate) fn writer(wants: Wants) -> Option<Writer> {
    LOG.get().filter(|log| log.is_wanted(wants)).map(|log| Writer(log))
}

impl Writer {
    /// As [`write()`]. Inlined, and nothing that is called gets the record's address: so it is made
    /// field by field where the ring has it. A copy would wait for the stores of the fields.
    #[inline(always)]
    pub(crate) fn write(self, record: &LogRecord) {
        if fork::is_child() {
            return;
        }
        // SAFETY: the pointer is null, or that of the value in this thread's `THREAD`, which stays
        // in its place until its drop; the drop sets the pointer to null first.
        match unsafe { RING.get().as_ref() } {
            Some(thread) => self.0.write(thread, record),
            None => self.write_first(*record),
        }
    }

    /// Writes the thread's first record, or one behind the drop of its ring.
    #[cold]
    #[inline(never)]
    fn write_first(self, record: LogRecord) {
        let Self(log) = self;
        let written = THREAD.try_with(|own| {
            let thread = own.0.get_or_init(|| {
                let name = std::thread::current().name().map_or(NameId::NONE, NameId::of);
                log.add_thread(name)
            });
            RING.set(thread);
            log.write(thread, &record);
        });
        if written.is_err() {
            log.add(&[record]); // a value that was dropped behind the thread's ring, as a buffer
        }
    }
}

/// True while devices have not done all tasks whose records are wanted. Asks their drivers.
#[must_use]
pub fn has_unfinished_device_tasks() -> bool {
    !fork::is_child() && poll_devices()
}

/// Adds a task of a driver, whose record the log gets once the device has done it.
pub(crate) fn add_device_task(task: TimedTask) {
    if device_times::add(task) {
        poll_devices();
    }
}

/// Asks drivers which of their tasks are done, and adds the records of these. True while some are
/// not.
fn poll_devices() -> bool {
    device_times::poll(|record| {
        if let Some(log) = LOG.get().filter(|_| !fork::is_child()) {
            log.add(&[*record]);
        }
    })
}

/// A subscription to the log of this process.
pub struct ProcessSubscription(Option<Subscription>);

impl fmt::Debug for ProcessSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSubscription").finish_non_exhaustive()
    }
}

/// Begins a subscription: see `Log::subscribe`.
pub fn subscribe(
    wants: Wants,
    runtime: Option<u64>,
    limit: usize,
    keeps: Keeps,
) -> ProcessSubscription {
    fork::watch();
    if fork::is_child() {
        return ProcessSubscription(None); // what the parent's threads locked stays so
    }
    poll_devices(); // what is done by now is for the earlier subscriptions
    let log = LOG.get_or_init(Log::new);
    ProcessSubscription(Some(log.subscribe(wants, runtime, limit, keeps)))
}

impl ProcessSubscription {
    /// As [`Self::take`], without a question to drivers: under an allocator's lock.
    pub fn take_written(&self) -> Taken {
        self.0.as_ref().filter(|_| !fork::is_child()).map(Subscription::take).unwrap_or_default()
    }

    /// Takes what has come since the last call: see `Subscription::take`. Asks drivers which of
    /// their tasks are done, and waits for none. Nothing comes in a forked child.
    #[must_use]
    pub fn take(&self) -> Taken {
        if !fork::is_child() {
            poll_devices();
        }
        self.take_written()
    }
}

impl Drop for ProcessSubscription {
    fn drop(&mut self) {
        if fork::is_child() {
            std::mem::forget(self.0.take());
            return;
        }
        drop(self.0.take());
        if let Some(log) = LOG.get() {
            device_times::forget_all_but(|runtime| log.is_runtime_wanted(runtime));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::log::record::{OperationKind, RecordKind};

    #[test]
    fn a_thread_that_ended_is_told_to_no_later_subscription() {
        let subscribe =
            || subscribe(Wants::TASKS.and(Wants::RANGES), None, usize::MAX, Keeps::Oldest);
        let has_thread = |subscription: &ProcessSubscription| {
            let records = subscription.take().records;
            records.iter().any(|it| &*it.name().text() == "a thread that ends")
        };
        let earlier = subscribe();
        let range = || write(&LogRecord::new(RecordKind::Range, OperationKind::Internal));
        let thread = std::thread::Builder::new().name("a thread that ends".to_owned());
        thread.spawn(range).unwrap().join().unwrap();
        let later = subscribe();
        assert_eq!([has_thread(&earlier), has_thread(&later)], [true, false]);
    }
}
