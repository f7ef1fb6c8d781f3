//! Launches that say what their task is called and which memory it uses, by address.
//!
//! For bindings of programs that have no buffers of ours, as tensors: logs, profiles and the
//! sanitizer show such a task by its own name, and the sanitizer knows its bytes.
#![expect(unsafe_code, reason = "exports a function by name, and reads what the caller describes")]

use std::ffi::{CStr, c_char, c_void};

use accelrt::backend::contract::Address;
use accelrt::internal::{
    Checked, Class, Command, Details, MemoryAccess, NameId, OperationKind, TaskContext,
};
use accelrt_observe::internal::{Act, CallerScope};

use crate::arguments::{array, null};
use crate::last_error::guard;
use crate::launch::{
    DropFunction, Owned, RunFunction, TaskFunction, call, no_host_functions, writes_of,
};
use crate::status::{Outcome, Refused, Status};
use crate::stream::{CStream, stream_of};

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
