//! The crate's error type: one family of errors per component, with the values of the failed call.
//!
//! The runtime detects its own bugs by assertions, which panic.

mod components;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use components::{
    ConfigError, DeviceError, DriverError, EventError, GeneratorError, IntegrationError,
    MemoryError, ProgramError, RuntimeError,
};

use crate::base::device::{Device, DeviceKind};
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::{AtomicBool, AtomicU8, AtomicU64};
use crate::base::thread::contain;

/// The result of every call that can fail. A bug of the runtime panics instead.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error that a user's task returns. The stream then fails with [`FailureCause::Returned`].
pub type TaskError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// An error of the runtime. Each variant holds the errors of one component.
///
/// ```
/// use accelrt::{Config, Device, DeviceError, Error, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// match runtime.empty(1, Device::cpu(7)) {
///     Err(Error::Device(DeviceError::NotFound { count, .. })) => assert_eq!(count, 1),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
/// As debug text it is its sentence, which a `main` that returns [`Result`] prints.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// An invalid device name, or a missing device.
    Device(#[from] DeviceError),
    /// A call that a device, its driver or the operating system refused, or does not support.
    Driver(#[from] DriverError),
    /// A setting that is not allowed.
    Config(#[from] ConfigError),
    /// A forked or shut down runtime, an object of another runtime, or an interrupted wait.
    Runtime(#[from] RuntimeError),
    /// Failed work of a stream, or an invalid use of a stream.
    Stream(#[from] StreamError),
    /// An invalid record of an event, wait for an event, or time between events.
    Event(#[from] EventError),
    /// Missing memory, or an invalid use of memory.
    Memory(#[from] MemoryError),
    /// An invalid use of a random generator.
    Generator(#[from] GeneratorError),
    /// A program, a kernel or a native function that cannot be built or launched.
    Program(#[from] ProgramError),
    /// A refusal by another library of the process.
    Integration(#[from] IntegrationError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Creates [`DriverError::Refused`] from the driver's or the operating system's error code.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(
        kind: DeviceKind,
        call: &'static str,
        code: impl Into<i64>,
        message: impl Into<String>,
    ) -> Self {
        let (code, message) = (code.into(), message.into());
        Self::Driver(DriverError::Refused { kind, call, code, message })
    }
}

/// What a program does about an [`Error`]: see [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Too little memory: free some, or ask for less.
    OutOfMemory,
    /// The device is gone for good: use another one, or start the process anew.
    DeviceLost,
    /// Work failed on a stream: by its own error or panic, or a failed wait. The call is right.
    TaskFailed,
    /// Work did not run because its stream was cancelled.
    Cancelled,
    /// The wait ended before the work did: wait again.
    TimedOut,
    /// The wait's check said so: wait again, or go on.
    Interrupted,
    /// The runtime is shut down: it takes no new work.
    ShutDown,
    /// The call is not possible in a forked child: start processes in another way.
    BadFork,
    /// A device, stream, kind, kernel or library that is not there.
    NotFound,
    /// The kind of device cannot do it.
    Unsupported,
    /// A driver, a compiler or the operating system refused the call.
    Refused,
    /// The call does not fit its objects, or they are in a state in which it makes no sense: a
    /// mistake in the program or its settings.
    Invalid,
}

impl Error {
    /// What a program does about this error. The error's variant and its text say which object was
    /// wrong, and how.
    ///
    /// ```
    /// use accelrt::{Config, Device, ErrorKind, Runtime};
    /// let config = Config::builder().cpu_memory_bytes(64 << 20).build()?;
    /// let (runtime, device) = (Runtime::new(config)?, Device::cpu(0));
    /// let buffer = match runtime.empty(1 << 30, device) {
    ///     Err(error) if error.kind() == ErrorKind::OutOfMemory => runtime.empty(1 << 20, device)?,
    ///     other => other?,
    /// };
    /// assert_eq!(buffer.nbytes(), 1 << 20);
    /// assert_eq!(Device::new(device.kind(), 1000).unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(MemoryError::OutOfMemory { .. }) => ErrorKind::OutOfMemory,
            Self::Driver(DriverError::DeviceLost { .. }) => ErrorKind::DeviceLost,
            Self::Driver(DriverError::Unsupported { .. }) => ErrorKind::Unsupported,
            Self::Stream(StreamError::Failed(failure)) => kind_of(failure),
            Self::Stream(StreamError::SeveralFailed { errors, .. }) => {
                errors.first().map_or(ErrorKind::TaskFailed, |first| kind_of(first))
            }
            Self::Runtime(RuntimeError::TimedOut { .. }) => ErrorKind::TimedOut,
            Self::Runtime(RuntimeError::Interrupted) => ErrorKind::Interrupted,
            Self::Runtime(RuntimeError::ShutDown) => ErrorKind::ShutDown,
            Self::Runtime(RuntimeError::BadFork) => ErrorKind::BadFork,
            Self::Device(
                DeviceError::NotFound { .. }
                | DeviceError::KindUnavailable { .. }
                | DeviceError::UnknownKind { .. },
            )
            | Self::Stream(StreamError::NotFound { .. })
            | Self::Integration(IntegrationError::LibraryMissing { .. })
            | Self::Program(ProgramError::NoSuchKernel { .. }) => ErrorKind::NotFound,
            Self::Driver(_)
            | Self::Integration(_)
            | Self::Program(ProgramError::BuildFailed { .. }) => ErrorKind::Refused,
            Self::Config(_)
            | Self::Device(_)
            | Self::Event(_)
            | Self::Generator(_)
            | Self::Memory(_)
            | Self::Program(_)
            | Self::Runtime(_)
            | Self::Stream(_) => ErrorKind::Invalid,
        }
    }
}

/// A lost device and missing memory stay what they are also when a task met them.
fn kind_of(failure: &StreamFailure) -> ErrorKind {
    match failure.root().failure() {
        FailureCause::StreamCancelled => ErrorKind::Cancelled,
        FailureCause::Cancelled => ErrorKind::ShutDown,
        FailureCause::Backend(error) => match error.kind() {
            kind @ (ErrorKind::DeviceLost | ErrorKind::OutOfMemory) => kind,
            _ => ErrorKind::TaskFailed,
        },
        _ => ErrorKind::TaskFailed,
    }
}

/// No call has raised the error.
const NEW: u8 = 0;
/// No call has raised the error, and a counter counts it.
const COUNTED: u8 = 1;
/// A call has raised the error.
const RAISED: u8 = 2;

/// The cause and the location of a stream's failure.
///
/// The failed stream skips users' later tasks. The error ends when a call receives it: a
/// synchronise of the stream or its device, a wait for a transfer that failed, or the host's access
/// to a buffer whose last use failed. docs/streams.md lists the calls that end an error.
///
/// ```
/// use accelrt::{Error, FailureCause, StreamError};
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let device = accelrt::Device::cpu(0);
/// let (first, second) = (runtime.stream(device)?, runtime.stream(device)?);
/// first.enqueue(|| Err::<(), _>("a broken file"))?;
/// second.wait_stream(&first)?;
/// second.enqueue(|| println!("skipped"))?;
/// let Err(Error::Stream(StreamError::Failed(failure))) = second.synchronize() else {
///     panic!("it waited for a failed stream")
/// };
/// assert_eq!((failure.device(), failure.stream_id()), (device, second.id()));
/// assert_eq!((failure.operation(), failure.ticket()), (Some("wait"), 1));
/// assert_eq!(failure.skipped_count(), 1);
/// let root = failure.inherited_from().expect("of the first stream");
/// assert_eq!(root.stream_id(), failure.root().stream_id());
/// assert!(matches!(root.failure(), FailureCause::Returned(_)));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamFailure {
    device: Device,
    stream_id: u64,
    operation: Option<&'static str>,
    /// 0 until the stream fails with this error: tickets begin at 1.
    ticket: AtomicU64,
    skipped_count: AtomicU64,
    cause: FailureCause,
    inherited_from: Option<Arc<StreamFailure>>,
    /// One of `NEW`, `COUNTED` and `RAISED`.
    report: AtomicU8,
    /// Counts this error among those that its stream has dropped, until a call raises it.
    counter: OnceLock<Arc<AtomicU64>>,
    /// True when a call has received this error through a handle and thereby ended it.
    is_ended: AtomicBool,
}

/// The reason of a stream's failure: a failed task, a failed wait or a shutdown.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum FailureCause {
    /// The task returned an error.
    #[error("a task returned an error: {0}")]
    Returned(#[source] TaskError),
    /// The task panicked with this message.
    #[error("a task panicked: {0}")]
    Panicked(String),
    /// A checked native function returned a number other than 0.
    #[error("the native function at {function:#x} returned status {status}")]
    Status { function: usize, status: i32 },
    /// The [`Completion`](crate::Completion) of a deferred task was dropped without an outcome.
    #[error("the completion of a deferred task was dropped unfinished")]
    Unfinished,
    /// The backend refused an operation.
    #[error("{0}")]
    Backend(#[source] Error),
    /// The stream waited for an event of a failed stream.
    #[error("it waited for a failed event")]
    Inherited,
    /// The stream was cancelled before the task ran: [`Stream::cancel`](crate::Stream::cancel).
    #[error("it was cancelled")]
    StreamCancelled,
    /// The runtime was shut down before the task ran.
    #[error("the runtime was shut down first")]
    Cancelled,
    /// The stream has dropped the cause, because it has failed more than 16 times since.
    #[error("the cause was dropped, because the stream has failed more than 16 times since")]
    Forgotten,
}

impl StreamFailure {
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        device: Device,
        stream_id: u64,
        operation: Option<&'static str>,
        cause: FailureCause,
    ) -> Arc<Self> {
        Self::with_origin(device, stream_id, operation, cause, None)
    }

    fn with_origin(
        device: Device,
        stream_id: u64,
        operation: Option<&'static str>,
        cause: FailureCause,
        inherited_from: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let cause = match cause {
            FailureCause::Returned(error) => FailureCause::Returned(shorten_chain(error)),
            other => other,
        };
        let is_cancel = matches!(cause, FailureCause::StreamCancelled);
        Arc::new(Self {
            device,
            stream_id,
            operation,
            ticket: AtomicU64::new(0),
            skipped_count: AtomicU64::new(0),
            cause,
            inherited_from,
            // A cancel was asked for, so a report at exit would tell nothing new.
            report: AtomicU8::new(if is_cancel { RAISED } else { NEW }),
            counter: OnceLock::new(),
            is_ended: AtomicBool::new(false),
        })
    }

    /// Creates the failure of a stream that waited for an event of a stream with failure `from`.
    pub(crate) fn inherited(device: Device, stream_id: u64, from: &Arc<Self>) -> Arc<Self> {
        // Refers to the origin, not to `from`: the drop of a long chain would recurse deeply.
        let origin = Arc::clone(from.inherited_from.as_ref().unwrap_or(from));
        Self::with_origin(device, stream_id, Some("wait"), FailureCause::Inherited, Some(origin))
    }

    /// The device of the failed stream.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The id of the failed stream on its device.
    #[must_use]
    pub fn stream_id(&self) -> u64 {
        self.stream_id
    }

    /// The failed operation, by its name in verbose lines (`"copy"`, `"launch"`, …); `None` for a
    /// task of the runtime itself.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.operation
    }

    /// The failed task's ticket on its stream, from 1. Records, waits and synchronises also have
    /// tickets.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        // Relaxed, here and below: the stream's consumer writes before it retires the task, and
        // other threads read only after they have seen the task retired.
        self.ticket.load(Ordering::Relaxed)
    }

    /// The number of users' tasks that the stream skipped because of this error. Grows until a
    /// synchronise clears the error.
    #[must_use]
    pub fn skipped_count(&self) -> u64 {
        self.skipped_count.load(Ordering::Relaxed)
    }

    /// Sets the failed task's ticket. If the error fails its stream again, the first ticket stays.
    pub(crate) fn set_ticket(&self, ticket: u64) {
        let _ = self.ticket.compare_exchange(0, ticket, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Counts a task that the stream's consumer retired without running because of this error.
    pub(crate) fn count_skipped(&self) {
        self.skipped_count.fetch_add(1, Ordering::Relaxed);
    }

    /// The cause of the failure; [`FailureCause::Inherited`] when the failure came through an
    /// event. Not named `cause`, because behind an `Arc` this name means the deprecated method of
    /// `std::error::Error`.
    #[must_use]
    pub fn failure(&self) -> &FailureCause {
        &self.cause
    }

    /// The original failure, if the stream inherited it through an event.
    #[must_use]
    pub fn inherited_from(&self) -> Option<&Arc<StreamFailure>> {
        self.inherited_from.as_ref()
    }

    /// The other stream's failure that the root failure's task returned as its error, if any.
    fn returned(self: &Arc<Self>) -> Option<&Arc<Self>> {
        match &self.root().cause {
            FailureCause::Returned(error) => returned_stream_error(error),
            _ => None,
        }
    }

    /// True when the root's cause is a shutdown, not a failed task.
    #[doc(hidden)]
    pub fn is_cancellation(&self) -> bool {
        matches!(self.root().cause, FailureCause::Cancelled)
    }

    /// Marks this error and its root as raised, so that no report at exit repeats them.
    pub(crate) fn set_raised(&self) {
        for error in [self, self.root()] {
            // AcqRel: pairs with the exchange in `count_dropped`, which comes after the counter was
            // set.
            if error.report.swap(RAISED, Ordering::AcqRel) == COUNTED
                && let Some(counter) = error.counter.get()
            {
                counter.fetch_sub(1, Ordering::Relaxed); // Relaxed: counters order nothing
            }
        }
    }

    /// True when a call has raised this error or its root.
    pub(crate) fn is_raised(&self) -> bool {
        // Relaxed: the flag only decides which errors the runtime still reports.
        [self, self.root()].iter().any(|error| error.report.load(Ordering::Relaxed) == RAISED)
    }

    /// Adds one to `counter`, which counts errors that no report will show, until a call raises
    /// this one. Inherited errors and cancellations are not counted: the root's stream reports the
    /// root, and nothing reports a cancellation.
    pub(crate) fn count_dropped(&self, counter: &Arc<AtomicU64>) {
        if self.inherited_from.is_some() || self.is_cancellation() {
            return;
        }
        self.counter.get_or_init(|| Arc::clone(counter));
        counter.fetch_add(1, Ordering::Relaxed); // Relaxed, here and below: as in `set_raised`
        // Release: pairs with the exchange in `set_raised`.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        if self.report.compare_exchange(NEW, COUNTED, success, failure).is_err() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if a receipt through a handle ends this failure. Cancellations end only at a
    /// synchronise.
    pub(crate) fn is_ended_by_receipt(&self) -> bool {
        let cause = &self.root().cause;
        let is_cancelled = matches!(cause, FailureCause::StreamCancelled | FailureCause::Cancelled);
        !is_cancelled && !self.is_permanent()
    }

    /// True if the failed stream's device is lost. Nothing ends this failure. A stream of another
    /// device that inherited the failure can still be used after a synchronise.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(
            &self.root().cause,
            FailureCause::Backend(Error::Driver(DriverError::DeviceLost { device, .. }))
                if *device == self.device
        )
    }

    /// Marks this error as ended by a receipt. Called under the lock of the stream's errors, after
    /// the end was enqueued.
    pub(crate) fn end(&self) {
        // Relaxed: the lock orders the flag and the end in the queue. The stream's consumer reads
        // the flag without the lock, and finds the end in the queue later.
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// True after a receipt that ends this error, even before the stream has passed the end.
    pub(crate) fn is_ended(&self) -> bool {
        // Relaxed: as in `end`.
        self.is_ended.load(Ordering::Relaxed)
    }

    /// The original failure, or this failure if it is not inherited.
    #[must_use]
    pub fn root(&self) -> &StreamFailure {
        self.inherited_from.as_deref().unwrap_or(self)
    }
}

impl Drop for StreamFailure {
    /// Contains a panic in the drop of a user's error: most often the engine drops the failure, and
    /// its threads must not unwind.
    fn drop(&mut self) {
        let cause = std::mem::replace(&mut self.cause, FailureCause::Cancelled);
        contain(|| drop(cause));
    }
}

/// Replaces a returned stream failure by the first failure of its chain. If each task returned the
/// failure of the task before, the chain would grow, and its display and drop would recurse deeply.
fn shorten_chain(error: TaskError) -> TaskError {
    match returned_stream_error(&error).and_then(StreamFailure::returned) {
        Some(first) => Box::new(Error::Stream(StreamError::Failed(Arc::clone(first)))),
        None => error,
    }
}

/// Finds a stream failure in the error that a task returned: as an [`Error`], as a [`StreamError`]
/// or as the failure itself.
fn returned_stream_error(error: &TaskError) -> Option<&Arc<StreamFailure>> {
    let family = match error.downcast_ref::<Error>() {
        Some(Error::Stream(family)) => Some(family),
        _ => error.downcast_ref::<StreamError>(),
    };
    match family {
        Some(StreamError::Failed(error)) => Some(error),
        Some(StreamError::SeveralFailed { errors, .. }) => errors.first(),
        _ => error.downcast_ref::<Arc<StreamFailure>>(),
    }
}

impl fmt::Display for StreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {} on {} failed: ", self.stream_id, self.device)?;
        match &self.inherited_from {
            Some(from) => write!(f, "it waited for an event of a failed stream. {from}"),
            None => self.cause.fmt(f),
        }
    }
}

impl std::error::Error for StreamFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let inherited = self.inherited_from.as_deref().map(|from| from as _);
        self.cause.source().or(inherited)
    }
}

/// A failure of a stream's work, or an invalid use of a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum StreamError {
    /// One stream failed. A synchronise that waits for the failed task raises this error.
    #[error(transparent)]
    Failed(Arc<StreamFailure>),
    /// Several failures of the streams of one device, or of one stream.
    #[error("{}", message_of_several(errors, *num_forgotten))]
    SeveralFailed {
        /// One error per failure.
        errors: Arc<[Arc<StreamFailure>]>,
        /// The number of further failures without an entry in `errors`. The runtime retains only
        /// the newest errors of streams that were dropped before a synchronise raised them.
        num_forgotten: u64,
    },
    /// An id that this device never issued, or of a dedicated stream without handles and tasks.
    #[error(
        "Device {device} has no stream with id {stream_id}: ids are given out by this runtime and \
         never reused"
    )]
    NotFound { device: Device, stream_id: u64 },
    /// A task waits for its own stream, or for a stream of an outer task of the same thread.
    #[error(
        "A task cannot wait for its own stream ({device}, stream {stream_id}): the wait would \
         never end"
    )]
    WaitInsideTask { device: Device, stream_id: u64 },
}

fn message_of_several(errors: &[Arc<StreamFailure>], num_forgotten: u64) -> String {
    let (count, first) = (errors.len(), &errors[0]);
    // A stream of a pool fails several times when its handles are dropped in between.
    let streams: BTreeSet<_> =
        errors.iter().map(|error| (error.device(), error.stream_id())).collect();
    let failures = format!("{count} failure{}", if count == 1 { "" } else { "s" });
    let what = match (streams.len(), num_forgotten) {
        (num_streams, 0) if num_streams == count => format!("{count} streams failed"),
        (1, _) => format!("{failures} of one stream"),
        (num_streams, _) => format!("{failures} of {num_streams} streams"),
    };
    let more = match num_forgotten {
        0 => String::new(),
        count => format!(", and {count} more that were dropped, whose errors are not kept"),
    };
    format!("{what}{more}; the first: {first}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_ends_main_is_a_sentence() {
        let (name, allowed) = ("exit_timeout", "up to 86400000 ms");
        let error = ConfigError::InvalidSetting { name, value: "soon".to_owned(), allowed };
        let error = Error::from(error);
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("exit_timeout=\"soon\" is not valid"), "{error}");
    }
}

#[cfg(test)]
mod failure_tests {
    use super::*;

    #[test]
    fn several_failures_are_counted_by_stream() {
        let text = |ids: &[u64], num_forgotten| {
            let cause = || FailureCause::Panicked("at once".to_owned());
            let failure = |id: &u64| StreamFailure::new(Device::cpu(0), *id, None, cause());
            let errors: Arc<[_]> = ids.iter().map(failure).collect();
            let text = StreamError::SeveralFailed { errors, num_forgotten }.to_string();
            text.split_once("; the first: Stream ").expect("it names the first").0.to_owned()
        };
        assert_eq!(text(&[1, 2, 3], 0), "3 streams failed");
        assert_eq!(text(&[7; 17], 0), "17 failures of one stream");
        assert_eq!(text(&[7, 8, 7], 0), "3 failures of 2 streams");
        let more = |num| format!("and {num} more that were dropped, whose errors are not kept");
        assert_eq!(text(&[7], 2), format!("1 failure of one stream, {}", more(2)));
        assert_eq!(text(&[7, 8], 1), format!("2 failures of 2 streams, {}", more(1)));
    }
}
