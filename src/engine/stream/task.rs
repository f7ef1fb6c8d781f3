//! What every task has: an outcome, details for logs and checks, and a panic that is contained.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::contract::Address;
use crate::base::error::{FailureCause, TaskError};
use crate::base::thread::contain;
use crate::engine::log::context::NameId;
pub use crate::engine::log::record::OperationKind;
use crate::engine::log::record::RecordedSource;

/// What a task returns: a `Result` whose error becomes the stream's error, or a value that is
/// dropped, on the thread that ran the task.
///
/// `()`, `!` (of a function that never returns), numbers, texts, tuples, the usual containers of
/// anything (`Option`, `Box`, `Vec`, maps) and handles of this crate are such values. A closure
/// whose value is of another type ends with `;`: only this crate implements the trait.
///
/// ```
/// use accelrt::{Config, Device, Runtime};
/// # let runtime = Runtime::new(Config::default())?;
/// # let stream = runtime.stream(Device::cpu(0))?;
/// let mut read = std::io::Cursor::new(vec![1, 2, 3]);
/// stream.enqueue(move || std::io::Read::read(&mut read, &mut [0; 2]))?; // the number is dropped
/// let mut names = Vec::new();
/// stream.enqueue(move || names.push("first"))?;
/// stream.enqueue(|| panic!("a function that never returns"))?;
/// assert!(stream.synchronize().unwrap_err().to_string().contains("never returns"));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a task cannot return `{Self}`",
    note = "end the function with `;`, or return a `Result`"
)]
pub trait TaskOutcome: Sized {
    /// Returns the error that fails the stream, if any. Called on the thread that ran the task.
    fn into_task_result(self) -> Result<(), TaskError> {
        Ok(())
    }
}

impl TaskOutcome for () {}

impl<T, E: Into<TaskError>> TaskOutcome for Result<T, E> {
    fn into_task_result(self) -> Result<(), TaskError> {
        self.map(drop).map_err(Into::into)
    }
}

/// Calls `act` and catches its panic. In models panics propagate: loom reports errors by panics.
#[inline]
pub fn catch_panic<R>(act: impl FnOnce() -> R) -> std::thread::Result<R> {
    if cfg!(loom) { Ok(act()) } else { catch_unwind(AssertUnwindSafe(act)) }
}

/// Calls `drop_it`, which drops a user's value, and discards its panic. The task's outcome is
/// already decided, and the panic must not unwind the thread that retires tasks.
pub(crate) fn drop_quietly(drop_it: impl FnOnce()) {
    if cfg!(loom) { drop_it() } else { contain(drop_it) }
}

/// The failure of a task that panicked.
#[cold]
#[must_use]
pub fn panic_cause(panic: Box<dyn Any + Send>) -> FailureCause {
    FailureCause::Panicked(take_panic_message(panic))
}

/// Takes the message out of a caught panic, and drops the panic.
#[cold]
pub(super) fn take_panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panic_message(&*panic);
    drop_quietly(|| drop(panic));
    text
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with a value that is not a text").to_owned()
}

/// What logs, profiles and the race detector show of a task.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The size of the task's data in bytes; 0 for a task without data.
    pub bytes: usize,
    /// The memory that the task is known to use.
    pub accesses: Vec<MemoryAccess>,
    /// The point in another stream that the task waits for.
    pub source: Option<RecordedSource>,
    /// The address of the C function that the task calls; else 0.
    pub function: usize,
    /// The words of this function's arguments that may be pointers. Some are other arguments.
    pub words: Vec<u64>,
    /// The id of the event that the task records; else 0.
    pub event: u64,
    /// The name that the program gave.
    pub name: NameId,
}

/// One access of a task to memory, as far as the task's creator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The first byte.
    pub address: Address,
    /// `None` when only the address is known.
    pub bytes: Option<usize>,
    /// `None` when the direction is unknown.
    pub writes: Option<bool>,
}

impl MemoryAccess {
    pub(crate) fn read(address: Address, bytes: usize) -> Self {
        Self { address, bytes: Some(bytes), writes: Some(false) }
    }

    /// A write of `bytes` bytes.
    #[must_use]
    pub fn write(address: Address, bytes: usize) -> Self {
        Self { address, bytes: Some(bytes), writes: Some(true) }
    }

    /// True when `other` has the same value in every field that is known here.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.address == other.address
            && self.bytes.is_none_or(|bytes| Some(bytes) == other.bytes)
            && self.writes.is_none_or(|writes| Some(writes) == other.writes)
    }

    /// An access of unknown size and direction.
    pub(crate) fn unknown(address: Address) -> Self {
        Self { address, bytes: None, writes: None }
    }
}
