//! The commands of a stream: a user's closure, a wait for another stream, an inherited error.
//!
//! # Operations
//!
//! A command's type determines its kind and name, so reading them needs no task. Details are
//! computed before the task runs, for a subscriber that asks for them and for debug assertions.

use std::any::{Any, type_name};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::backend::contract::owned::OwnedMark;
use crate::backend::contract::{Address, Backend};
use crate::base::error::{DriverError, Error, FailureCause, StreamFailure, TaskError};
use crate::base::sync::assert_no_lock_held;
use crate::base::thread::{contain, while_blocked};
use crate::engine::log::context::NameId;
pub use crate::engine::log::record::OperationKind;
use crate::engine::log::record::RecordedSource;
use crate::engine::stream::context::{Blocker, TaskContext};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::failures::RetainingStream;
use crate::queue::{Class, Command};

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

/// A user's closure as a task. Its error or panic fails the stream.
pub(crate) struct Call<F>(pub(crate) F);

impl<F, R> Command<TaskContext> for Call<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: TaskOutcome,
{
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Call;

    fn details(&self) -> Details {
        Details { name: NameId::of_static(type_name::<F>()), ..Details::default() }
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        match catch_panic(|| (self.0)().into_task_result()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => context.fail(FailureCause::Returned(error)),
            Err(panic) => context.fail(panic_cause(panic)),
        }
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

/// A command that waits until the stream `source` has passed its task `ticket`, which must be a
/// marker. The command only orders the two streams; it does not inherit the task's failure.
pub(crate) struct WaitForMarker {
    source: Arc<StreamCore>,
    ticket: u64,
}

impl WaitForMarker {
    pub(crate) fn new(source: Arc<StreamCore>, ticket: u64) -> Self {
        Self { source, ticket }
    }
}

impl State {
    /// Polls whether the source has passed the ticket. Submits no work and never blocks.
    fn poll(source: &Arc<StreamCore>, ticket: u64, backend: &Arc<dyn Backend>) -> Self {
        if source.progress.done() >= ticket {
            return Self::Passed;
        }
        if source.on_host || source.progress.retired() < ticket {
            return Self::Blocked(Blocker::Retired(Arc::clone(source), ticket));
        }
        // The task was submitted to the driver, which may have done it since the last poll.
        let polled = source.marks.poll();
        if source.progress.done() >= ticket {
            return Self::Passed;
        }
        match (source.marks.at(ticket), polled) {
            (None, _) => Self::Unmarked,
            (Some(mark), _) if Arc::ptr_eq(&source.backend, backend) => Self::Submitted(mark),
            // Fails the wait: a lost device makes no progress and calls no callback.
            (Some(_), Err(lost @ Error::Driver(DriverError::DeviceLost { .. }))) => {
                Self::Lost(lost)
            }
            (Some(_), _) => Self::Blocked(Blocker::Reached(Arc::clone(source), ticket)),
        }
    }

    /// Parks the stream, adds a wait for the mark, or fails the stream. True if the stream can go
    /// on.
    fn apply(self, context: &mut TaskContext) -> bool {
        match self {
            Self::Passed | Self::Unmarked => {}
            Self::Blocked(blocker) => {
                context.effects().blocked_on = Some(blocker);
                return false;
            }
            Self::Submitted(mark) => {
                if let Err(refusal) = context.handle.wait(&mark) {
                    context.fail(FailureCause::Backend(refusal));
                    // Later tasks must still run after the mark, so this thread waits for the mark.
                    // The result is ignored: the stream has failed already.
                    let _ = while_blocked(|| mark.wait());
                }
            }
            Self::Lost(lost) => context.fail(FailureCause::Backend(lost)),
        }
        true
    }
}

fn details(source: &StreamCore, ticket: u64) -> Details {
    let (device, stream_id) = (source.identity.device, source.identity.id);
    let source = RecordedSource { device, stream_id, ticket };
    Details { source: Some(source), ..Details::default() }
}

/// The polled progress of a wait's source.
enum State {
    Passed,
    /// The source may not have passed the task: the stream parks on this blocker.
    Blocked(Blocker),
    /// The task was submitted to the waiting stream's own backend, which can wait for this mark.
    Submitted(Arc<OwnedMark>),
    /// The task was submitted, and no pending mark is at or behind it.
    Unmarked,
    Lost(Error),
}

impl Command<TaskContext> for WaitForMarker {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        details(&self.source, self.ticket)
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let mut state = State::poll(&self.source, self.ticket, &context.backend);
        if matches!(state, State::Unmarked) {
            // Places the missing mark, and polls again.
            if let Err(refusal) = self.source.mark_now() {
                // The tasks that follow are skipped, so they need no order.
                context.fail(FailureCause::Backend(refusal));
                return true;
            }
            state = State::poll(&self.source, self.ticket, &context.backend);
        }
        state.apply(context)
    }

    fn run(self, _context: &mut TaskContext) {}
}

/// A command that waits for a record as [`WaitForMarker`] does, and inherits the record's failure.
pub(crate) struct WaitFor {
    source: RetainingStream,
    ticket: u64,
}

impl WaitFor {
    pub(crate) fn new(source: &Arc<StreamCore>, ticket: u64) -> Self {
        Self { source: RetainingStream::new(source), ticket }
    }
}

impl Command<TaskContext> for WaitFor {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Wait;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        details(&self.source, self.ticket)
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        State::poll(&self.source, self.ticket, &context.backend).apply(context)
    }

    fn run(self, context: &mut TaskContext) {
        if let Some(error) = self.source.failures.at(self.ticket) {
            context.inherit(&error);
        }
    }
}

/// A command that fails its stream with the failure of another stream's task.
pub(crate) struct Inherit(pub(crate) Arc<StreamFailure>);

impl Command<TaskContext> for Inherit {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.inherit(&self.0);
    }
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
    /// The words that this function is called with, among which pointers are.
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
