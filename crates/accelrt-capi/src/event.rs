//! Events: places in streams that other streams and threads wait for.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::mem::MaybeUninit;

use accelrt::Event;
use accelrt::internal::fork;

use crate::arguments::place;
use crate::device::limit;
use crate::handle::{LocalPlaces, Slots, of_pointer, to_pointer};
use crate::status::guard;
use crate::status::{Outcome, Status};
use crate::stream::{CStream, stream_of};

/// An event: a place in a stream. A handle is a number in a pointer's clothes.
pub struct CEvent {
    _private: [u8; 0],
}

thread_local! {
    static PLACES: LocalPlaces = const { LocalPlaces::new(|places| EVENTS.take_back(places)) };
}

static EVENTS: Slots<Event> = Slots::new(2, "event", Some(&PLACES));

#[inline(always)]
fn event_of(handle: *mut CEvent) -> Outcome<&'static Event> {
    EVENTS.get(of_pointer(handle))
}

/// Creates an event, whose records store the time when `is_timed` is not 0. Its first record
/// determines its device. Initialises nothing.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_create(
    is_timed: i32,
    event: Option<&mut MaybeUninit<*mut CEvent>>,
) -> Status {
    guard(|| {
        fork::check()?;
        let to = place(event, "event")?;
        let event = if is_timed == 0 { Event::new() } else { Event::timed() };
        to.write(to_pointer(EVENTS.insert(event)?));
        Ok(())
    })
}

/// Makes the handle stale. Records and waits that were enqueued stay as they are. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_destroy(event: *mut CEvent) -> Status {
    guard(|| EVENTS.remove(of_pointer(event)).map(drop))
}

/// Records the event behind everything that was enqueued on the stream; it stands for that place
/// until its next record. Does not block, except as `accelrt_stream_launch`.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when it was recorded on another device before.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_record(event: *mut CEvent, stream: *mut CStream) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (stream, event) = (stream_of(stream)?.clone(), event_of(event)?.clone());
        Ok(stream.record(&event)?)
    })
}

/// Makes what is enqueued on `stream` from now on run behind the event's latest record. No thread
/// waits. Without a record there is nothing to wait for; a failed event fails the stream.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when stream and event are of two kinds.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_wait_event(stream: *mut CStream, event: *mut CEvent) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (stream, event) = (stream_of(stream)?.clone(), event_of(event)?.clone());
        Ok(stream.wait_event(&event)?)
    })
}

/// Writes 1 when everything before the latest record is done, failed or not, or there is no record,
/// else 0. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_query(
    event: *mut CEvent,
    is_done: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(is_done, "is_done")?;
        to.write(event_of(event)?.is_done().into());
        Ok(())
    })
}

/// Blocks until everything before the latest record is done, for at most `timeout_ms` milliseconds
/// unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may execute short tasks of the
/// stream. Fails with the error that the stream had at the record, and ends none.
///
/// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`,
/// `ACCELRT_STATUS_TIMED_OUT`, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task of the
/// stream.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_synchronize(event: *mut CEvent, timeout_ms: i64) -> Status {
    guard(|| {
        let event = event_of(event)?.clone(); // which a task may destroy meanwhile
        match limit(timeout_ms) {
            None => event.synchronize()?,
            Some(timeout) => event.synchronize_timeout(timeout)?,
        }
        Ok(())
    })
}

/// Writes the milliseconds from the latest record of `start` to that of `end`; negative in the
/// other order. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` for an event without timing or record, with
/// `ACCELRT_STATUS_NOT_READY` for one that is not done, with `ACCELRT_STATUS_STREAM_FAILED` for one
/// that has failed, and with `ACCELRT_STATUS_INVALID_ARGUMENT` for two kinds.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_event_get_elapsed(
    start: *mut CEvent,
    end: *mut CEvent,
    elapsed_ms: Option<&mut MaybeUninit<f64>>,
) -> Status {
    guard(|| {
        let to = place(elapsed_ms, "elapsed_ms")?;
        to.write(event_of(start)?.elapsed_ms(event_of(end)?)?);
        Ok(())
    })
}
