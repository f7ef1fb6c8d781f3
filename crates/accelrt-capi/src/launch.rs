//! Functions of C as tasks of a stream: launched, deferred, or described by name and addresses.
#![expect(unsafe_code, reason = "exports functions by name, and calls functions of the caller")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use accelrt::backend::contract::Address;
use accelrt::internal::{
    Checked, Class, Command, Details, MemoryAccess, NameId, OperationKind, TaskContext,
    assert_no_lock_held, fork, while_blocked,
};
use accelrt::{Buffer, Completion, FailureCause, Stream};
use accelrt_observe::internal::{Act, CallerScope};

use crate::arguments::{DropFunction, Owned, array, null, text};
use crate::buffer::{CBuffer, buffer_of};
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::status::{Outcome, Refused, Status, guard};
use crate::stream::{CStream, stream_of};

// Launches: the data of tasks, the text of their failure, their buffers.

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

// Deferred tasks: started in stream order, finished by any thread through a handle.

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

// Launches that say what their task is called and which memory it uses, by address.
//
// For bindings of programs that have no buffers of ours, as tensors: logs, profiles and the
// sanitizer show such a task by its own name, and the sanitizer knows its bytes.

/// Bytes that a task uses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UsedRange {
    /// The first address.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not known.
    pub access: u32,
    /// 0.
    pub reserved: u32,
}

/// What a launch says of its task.
#[derive(Debug)]
#[repr(C)]
pub struct TaskDescription {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// The name that logs, profiles and the sanitizer show, in UTF-8; NULL for the function's.
    pub name: *const c_char,
    /// The bytes that the task uses.
    pub ranges: *const UsedRange,
    /// How many ranges.
    pub range_count: usize,
}

struct Described {
    run: RunFunction,
    owned: Owned,
    description: *const TaskDescription,
}

// SAFETY: the caller of the launch promises that the description stays as it is until the data is
// given back, which this struct does; any thread may read it.
unsafe impl Send for Described {}

impl Command<TaskContext> for Described {
    const CLASS: Class = Class::Ffi;
    const OPERATION: OperationKind = OperationKind::Launch;

    fn details(&self) -> Details {
        // SAFETY: the launch has checked that it is there, and it stays until the data is given
        // back, which happens behind this.
        let description = unsafe { &*self.description };
        Details {
            function: self.run as usize,
            name: description.name(),
            accesses: description.ranges().iter().map(UsedRange::access).collect(),
            ..Details::default()
        }
    }

    fn run(self, context: &mut TaskContext) {
        call::<false>(self.run, &self.owned, context);
    }
}

impl TaskDescription {
    fn name(&self) -> NameId {
        if self.name.is_null() {
            return NameId::NONE;
        }
        // SAFETY: the caller of the launch promises a text that ends with a zero.
        let name = unsafe { CStr::from_ptr(self.name) };
        NameId::of(&name.to_string_lossy())
    }

    fn ranges(&self) -> &[UsedRange] {
        // SAFETY: the caller of the launch promises as many ranges, and the launch has seen that
        // they are there.
        unsafe { array(self.ranges, self.range_count, "ranges") }.unwrap_or_default()
    }

    /// Refuses what could not be read later, when no caller is there to be told.
    fn check(&self) -> Outcome {
        if self.size < size_of::<Self>() {
            let (given, least) = (self.size, size_of::<Self>());
            let text = format!("The description has a size of {given} bytes in place of {least}");
            return Err(Refused::argument(text));
        }
        // SAFETY: the caller promises as many ranges.
        for range in unsafe { array(self.ranges, self.range_count, "ranges") }? {
            writes_of(range.access)?;
        }
        Ok(())
    }
}

impl UsedRange {
    fn access(&self) -> MemoryAccess {
        MemoryAccess {
            address: Address(self.address),
            bytes: usize::try_from(self.bytes).ok(),
            writes: writes_of(self.access).unwrap_or_default(),
        }
    }
}

/// As `accelrt_stream_launch`, for a task that says its name and the bytes that it uses. These are
/// shown by logs and profiles, and compared by the sanitizer; nothing waits for them, and no memory
/// stays for them: a buffer that is destroyed is freed behind the work of its home stream and the
/// uses that `accelrt_buffer_record_use` was told of.
///
/// # Safety
/// As `accelrt_stream_launch`. `description`, its name and its `range_count` ranges are there and
/// stay as they are until `drop(data)` is called, so they may stand in `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_launch_described(
    stream: *mut CStream,
    run: TaskFunction,
    data: *mut c_void,
    drop: DropFunction,
    description: *const TaskDescription,
) -> Status {
    let owned = Owned { data, drop };
    guard(|| {
        let run = run.ok_or_else(|| null("run"))?;
        // SAFETY: the caller passes NULL or a description.
        let described = unsafe { description.as_ref() }.ok_or_else(|| null("description"))?;
        described.check()?;
        let stream = stream_of(stream)?;
        let core = stream.core();
        if !core.on_host {
            return Err(no_host_functions(stream));
        }
        let _caller = CallerScope::of(Act::Orders);
        core.enqueue(Described { run, owned, description }, Checked)?;
        Ok(())
    })
}
