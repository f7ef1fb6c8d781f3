//! Functions of C as tasks of a stream: their data, the text of their failure, their buffers.
#![expect(unsafe_code, reason = "exports functions by name, and calls functions of the caller")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use accelrt::internal::{
    Checked, Class, Command, Details, OperationKind, TaskContext, assert_no_lock_held,
    while_blocked,
};
use accelrt::{Buffer, FailureCause, Stream};

use crate::arguments::{array, null};
use crate::buffer::{CBuffer, buffer_of};
use crate::last_error::guard;
use crate::status::{Outcome, Refused, Status};
use crate::stream::{CStream, stream_of};

/// The room for the text of a failure, with its zero.
const TEXT_BYTES: usize = 512;

/// A task: gets the data of its launch. Returns 0, or another number for a failure, whose text it
/// writes to `error_text`, at most `error_capacity` bytes with the 0 at the end. Must not throw or
/// jump out.
pub type TaskFunction = Option<
    unsafe extern "C" fn(data: *mut c_void, error_text: *mut c_char, error_capacity: usize) -> i32,
>;

/// A task's function that is there.
pub(super) type RunFunction = unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> i32;

/// Frees what a launch or a copy was given. Must not throw or jump out.
pub type DropFunction = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// How a task uses a buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferUse {
    /// The buffer.
    pub buffer: *mut CBuffer,
    /// `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not known: the task may then use all of
    /// the memory that the buffer is a view of.
    pub access: u32,
    /// 0.
    pub reserved: u32,
}

/// A task only reads the bytes of the buffer.
pub const READS: u32 = 1;
/// A task may read and write the bytes of the buffer, and no other ones of its memory.
pub const WRITES: u32 = 2;

/// Data of the caller. Its drop gives the data back, on any thread.
pub(super) struct Owned {
    pub(super) data: *mut c_void,
    pub(super) drop: DropFunction,
}

// SAFETY: the caller of the function that took the data promises that any thread may use it.
unsafe impl Send for Owned {}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the caller has passed a function for this data, which is called once: here.
            unsafe { drop(self.data) }
        }
    }
}

/// `BLOCKS`: another worker serves the other streams meanwhile, and no waiting thread takes over.
struct Launch<const BLOCKS: bool> {
    run: RunFunction,
    owned: Owned,
}

impl<const BLOCKS: bool> Command<TaskContext> for Launch<BLOCKS> {
    const CLASS: Class = if BLOCKS { Class::Blocking } else { Class::Ffi };
    const OPERATION: OperationKind = OperationKind::Launch;

    fn details(&self) -> Details {
        Details { function: self.run as usize, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        call::<BLOCKS>(self.run, &self.owned, context);
    }
}

/// Calls a function of a launch, and fails its stream when the function says so.
pub(super) fn call<const BLOCKS: bool>(run: RunFunction, owned: &Owned, context: &mut TaskContext) {
    assert_no_lock_held();
    context.is_marker = true; // a host access may wait for the buffers that it uses
    let mut text = MaybeUninit::<[c_char; TEXT_BYTES]>::uninit();
    let first = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: the array has a first byte.
    unsafe { first.write(0) };
    // SAFETY: the caller of the launch promises a function that takes these arguments on any
    // thread and does not throw; the text has as many bytes.
    let call = || unsafe { run(owned.data, first, TEXT_BYTES) };
    let status = if BLOCKS { while_blocked(call) } else { call() };
    if status != 0 {
        // SAFETY: the array has a last byte. A text that fills the room ends here.
        let last = unsafe { first.add(TEXT_BYTES - 1) };
        // SAFETY: as above.
        unsafe { last.write(0) };
        // SAFETY: a zero was written to the first byte, and another one to the last.
        let text = unsafe { CStr::from_ptr(first) };
        context.fail(cause_of(status, run as usize, text));
    }
}

#[cold]
fn cause_of(status: i32, function: usize, text: &CStr) -> FailureCause {
    if text.is_empty() {
        return FailureCause::Status { function, status };
    }
    FailureCause::Returned(text.to_string_lossy().into_owned().into())
}

/// Enqueues a function, which any thread calls once in stream order as `run(data, text, capacity)`.
/// Does not block, except while the stream has more tasks queued than `ACCELRT_STREAM_TASKS`: then
/// the thread helps or waits.
///
/// `drop(data)` is called once, on any thread: behind `run`, or in its place when the stream has
/// failed before, the runtime is shut down or this function fails. `drop` may be NULL.
///
/// A number other than 0 that `run` returns fails the stream; the text says why. `uses` are
/// `use_count` buffers that `run` uses: their memory stays until then, and copies, fills and reads
/// of the host that come later wait for it. The function itself is ordered by its stream alone.
///
/// Inside of `run` the functions of this header may be called, but a wait for the own stream fails.
///
/// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds whose tasks do not run on the host.
///
/// # Safety
/// Any thread may call `run` and `drop` with `data`. What `run` accesses is there when it runs, and
/// ordered. There are `use_count` uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_launch(
    stream: *mut CStream,
    run: TaskFunction,
    data: *mut c_void,
    drop: DropFunction,
    uses: *const BufferUse,
    use_count: usize,
) -> Status {
    // SAFETY: the caller promises the same.
    unsafe { launch::<false>(stream, run, Owned { data, drop }, uses, use_count) }
}

/// As `accelrt_stream_launch`, for a function that blocks its thread: that waits for a file,
/// another process or another thread. Another worker serves the other streams meanwhile; the call
/// itself costs more, so that this is for functions that take longer than some microseconds.
///
/// # Safety
/// As `accelrt_stream_launch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_launch_blocking(
    stream: *mut CStream,
    run: TaskFunction,
    data: *mut c_void,
    drop: DropFunction,
    uses: *const BufferUse,
    use_count: usize,
) -> Status {
    // SAFETY: the caller promises the same.
    unsafe { launch::<true>(stream, run, Owned { data, drop }, uses, use_count) }
}

/// # Safety
/// As `accelrt_stream_launch`.
#[inline(always)]
unsafe fn launch<const BLOCKS: bool>(
    stream: *mut CStream,
    run: TaskFunction,
    owned: Owned,
    uses: *const BufferUse,
    use_count: usize,
) -> Status {
    guard(|| {
        let run = run.ok_or_else(|| null("run"))?;
        let stream = stream_of(stream)?;
        let core = stream.core();
        if !core.on_host {
            return Err(no_host_functions(stream));
        }
        let task = Launch::<BLOCKS> { run, owned };
        if use_count > 0 {
            // SAFETY: the caller passes as many uses.
            let uses = unsafe { array(uses, use_count, "uses") }?;
            return launch_with_uses(stream, task, uses);
        }
        core.enqueue(task, Checked)?;
        Ok(())
    })
}

#[cold]
#[inline(never)]
pub(super) fn no_host_functions(stream: &Stream) -> Refused {
    let kind = stream.device().kind();
    let text = format!("{kind} devices do not support functions of the host as tasks");
    Refused::new(Status::Unsupported, text)
}

#[inline(never)]
fn launch_with_uses<const BLOCKS: bool>(
    stream: &Stream,
    launch: Launch<BLOCKS>,
    uses: &[BufferUse],
) -> Outcome {
    // Tasks may destroy the handles while the stream's limit blocks the call.
    let held: Vec<(Buffer, Option<bool>)> =
        uses.iter().map(BufferUse::resolve).collect::<Outcome<_>>()?;
    let buffers: Vec<_> = held.iter().map(|(buffer, writes)| (buffer, *writes)).collect();
    let stream = stream.clone();
    let enqueue = || Ok(stream.core().enqueue(launch, Checked)?.ticket);
    stream.enqueue_using(&buffers, enqueue)?;
    Ok(())
}

impl BufferUse {
    /// The buffer, and whether the task writes its bytes.
    fn resolve(&self) -> Outcome<(Buffer, Option<bool>)> {
        Ok((buffer_of(self.buffer)?.clone(), writes_of(self.access)?))
    }
}

/// Whether a task writes the bytes that it uses, if that is said.
pub(super) fn writes_of(access: u32) -> Outcome<Option<bool>> {
    match access {
        0 => Ok(None),
        READS => Ok(Some(false)),
        WRITES => Ok(Some(true)),
        other => Err(Refused::argument(format!("There is no access {other} of buffers"))),
    }
}
