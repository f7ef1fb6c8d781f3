//! Marks of the xpu kind: a mark's number is the address of an event of the driver.
use accelrt::backend::contract::Mark;
use accelrt::size::to_usize;

use crate::driver::{CallError, CallResult, Driver};
use crate::sys::{self, Event};

/// Converts an event to a mark. The mark owns the event's reference until the mark's release.
pub(crate) fn to_mark(event: Event) -> Mark {
    Mark(event.0.expose_provenance() as u64)
}

pub(crate) fn from_mark(mark: Mark) -> Event {
    Event(std::ptr::with_exposed_provenance_mut(to_usize(mark.0)))
}

/// True when the event's command is complete. Fails when its status is an error code.
pub(crate) fn is_done(driver: &Driver, event: Event) -> CallResult<bool> {
    let status: i32 = driver.event_info(event, sys::EVENT_COMMAND_EXECUTION_STATUS)?;
    if status < 0 {
        return Err(CallError { call: "a command of the queue", code: status });
    }
    Ok(status == sys::COMPLETE)
}

pub(crate) fn wait(driver: &Driver, event: Event) -> CallResult {
    driver.wait_for_event(event).map_err(|refusal| {
        // The wait reports only that some command has failed. The event's status has the code.
        is_done(driver, event).err().unwrap_or(refusal)
    })
}

/// Nanoseconds between the ends of two commands, by the device's clock.
pub(crate) fn elapsed_ns(driver: &Driver, start: Event, end: Event) -> CallResult<i64> {
    let (start, end) = (driver.event_end_ns(start)?, driver.event_end_ns(end)?);
    Ok(end.wrapping_sub(start).cast_signed())
}
