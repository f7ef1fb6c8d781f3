//! Marks of the xpu kind: a mark's number is the address of an event of the driver.

use std::sync::Arc;

use super::driver::{CallError, CallResult, Driver};
use super::sys::{self, Event};
use crate::backend::contract::{DoneCallback, Mark, Turn, Work};
use crate::base::size::to_usize;
use crate::base::sync::{LockRank, Mutex};

/// Converts an event to a mark. The mark owns the event's reference until the mark's release.
pub(super) fn to_mark(event: Event) -> Mark {
    Mark(event.0.expose_provenance() as u64)
}

pub(super) fn from_mark(mark: Mark) -> Event {
    Event(std::ptr::with_exposed_provenance_mut(to_usize(mark.0)))
}

/// True when the event's command is complete. Fails when its status is an error code.
pub(super) fn is_done(driver: &Driver, event: Event) -> CallResult<bool> {
    let status: i32 = driver.event_info(event, sys::EVENT_COMMAND_EXECUTION_STATUS)?;
    if status < 0 {
        return Err(CallError { call: "a command of the queue", code: status });
    }
    Ok(status == sys::COMPLETE)
}

pub(super) fn wait(driver: &Driver, event: Event) -> CallResult {
    driver.wait_for_event(event).map_err(|refusal| {
        // The wait reports only that some command has failed. The event's status has the code.
        is_done(driver, event).err().unwrap_or(refusal)
    })
}

/// Nanoseconds between the ends of two commands, by the device's clock.
pub(super) fn elapsed_ns(driver: &Driver, start: Event, end: Event) -> CallResult<i64> {
    let (start, end) = (driver.event_end_ns(start)?, driver.event_end_ns(end)?);
    Ok(end.wrapping_sub(start).cast_signed())
}

/// A callback that a driver's thread posts to a thread of this backend. A driver's thread must not
/// call the driver, but a callback may: dropping the last handle of a stream releases a queue.
pub(super) struct Completion(Mutex<Option<DoneCallback>>);

impl Completion {
    pub(super) fn new(callback: DoneCallback) -> Arc<Self> {
        Arc::new(Self(Mutex::new(LockRank::Backend, Some(callback))))
    }

    /// Drops the callback without a call.
    pub(super) fn disarm(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<DoneCallback> {
        self.0.lock().take()
    }

    fn call(&self) {
        if let Some(callback) = self.take() {
            callback();
        }
    }
}

impl Work for Completion {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        self.call();
    }
}

impl Drop for Completion {
    /// Calls the callback if no thread has run the completion, as after a shutdown.
    fn drop(&mut self) {
        self.call();
    }
}
