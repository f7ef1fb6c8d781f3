//! Deferred tasks: started in stream order, finished by any thread through a handle.
#![expect(unsafe_code, reason = "exports functions by name, and calls functions of the caller")]

use std::ffi::{c_char, c_void};

use accelrt::Completion;
use accelrt::internal::fork;

use crate::arguments::{null, text};
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::last_error::guard;
use crate::launch::{DropFunction, Owned};
use crate::status::Status;
use crate::stream::{CStream, stream_of};

/// What finishes a deferred task. A handle is a number in a pointer's clothes.
pub struct CCompletion {
    _private: [u8; 0],
}

/// A task that was started, and its data.
struct Started {
    completion: Completion,
    owned: Owned,
}

// SAFETY: the data is only given back, by the thread that takes the value out of its slot.
unsafe impl Sync for Started {}

static COMPLETIONS: Slots<Started> = Slots::new(10, "completion", None);

/// Starts a deferred task: gets the data of its launch, and the handle that some thread passes to
/// `accelrt_completion_finish`. Must not throw or jump out.
pub type StartFunction =
    Option<unsafe extern "C" fn(data: *mut c_void, completion: *mut CCompletion)>;

/// Enqueues a task that the stream starts and another thread finishes: of a library that calls
/// back, or a thread that waits for many things. When everything enqueued before is done, on the
/// device too, a thread calls `start(data, completion)` once, which hands the work on and returns.
/// The stream goes on when any thread calls `accelrt_completion_finish`; meanwhile no thread waits.
/// Works on every kind. Blocks as `accelrt_stream_launch`.
///
/// `drop(data)` is called once, on any thread: when the task was finished, or in place of `start`
/// when the stream has failed before, the runtime is shut down or this function fails. `drop` may
/// be NULL. A task that is never finished keeps its stream waiting until the shutdown.
///
/// The task's buffers are recorded by `accelrt_buffer_record_use`, behind this call.
///
/// # Safety
/// Any thread may call `start` and `drop` with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_launch_deferred(
    stream: *mut CStream,
    start: StartFunction,
    data: *mut c_void,
    drop: DropFunction,
) -> Status {
    let owned = Owned { data, drop };
    guard(|| {
        let start = start.ok_or_else(|| null("start"))?;
        let begin = move |completion| {
            let owned: Owned = owned; // the closure has all of it, which any thread may use
            let data = owned.data;
            let handle = COMPLETIONS.insert(Started { completion, owned });
            let handle = handle.expect("no task starts in a forked child");
            // SAFETY: the caller promises a function for this data, on any thread.
            unsafe { start(data, to_pointer(handle)) };
        };
        let stream = stream_of(stream)?.clone(); // which a task may destroy meanwhile
        stream.enqueue_deferred(begin)?;
        Ok(())
    })
}

/// Finishes a deferred task, and makes the handle stale. With NULL as `error` its stream goes on; a
/// text fails the stream. To be called once for each task, by any thread, also inside of `start`;
/// the stream's later tasks do not run inside of this call. Does not block.
///
/// # Safety
/// `error` is NULL or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_completion_finish(
    completion: *mut CCompletion,
    error: *const c_char,
) -> Status {
    guard(|| {
        let outcome = if error.is_null() {
            Ok(())
        } else {
            // SAFETY: the caller passes a text.
            Err(unsafe { text(error, "error") }?.to_owned().into())
        };
        fork::check()?;
        let Started { completion, owned } = COMPLETIONS.remove(of_pointer(completion))?;
        completion.finish(outcome);
        drop(owned);
        Ok(())
    })
}
