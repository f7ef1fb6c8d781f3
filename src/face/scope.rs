//! Tasks over slices of buffers, and scopes: tasks that borrow from a caller that waits for them.
//!
//! The API follows `std::thread::scope`.
//!
//! # Tasks over views
//!
//! The task's command stores addresses, as copies do. What makes them slices of live memory that
//! nothing else uses meanwhile:
//!
//! * the uses are recorded, under the locks of the memory, in the step that enqueues the task: its
//!   stream waits for conflicting uses before, later conflicting uses and the free wait for it
//! * views of one task that overlap are refused, unless the task only reads them
//! * exported memory is refused: accesses through exports have no order. An export that begins
//!   later waits for the task before it looks at the bytes, as every host access does
//! * the slices' lifetime is the call's: the closure works for every lifetime, so it can return or
//!   store none of them
#![expect(
    unsafe_code,
    reason = "erases the lifetime of a borrowing task, and makes slices of its addresses"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::error::{DriverError, Error, Result, TaskError};
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::base::sync::{Ordering, park};
use crate::engine::event::Event;
use crate::engine::stream::core::{RetainingStream, TaskContext};
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::lifecycle::TaskWatch;
use crate::engine::stream::synchronize::raise;
use crate::engine::stream::task::OperationKind;
use crate::engine::stream::{Stream, TaskOutcome};
use crate::face::typed::{TypedBuffer, Uses};
use crate::memory::buffer::{Buffer, HostTransfer, Transfer};
use crate::queue::{Class, Command};

/// The polling period at a scope's end while a task is counted but not yet enqueued.
const PENDING_PERIOD: Duration = Duration::from_micros(200);

type Task<'scope> = Box<dyn FnOnce() -> Result<(), TaskError> + Send + 'scope>;

/// Enqueues tasks that borrow from the caller of [`Stream::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    stream: &'scope Stream,
    tasks: Arc<Tasks>,
    invariant: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// As [`Stream::enqueue`], for a function that may borrow from the scope's caller. Allocates.
    pub fn enqueue<F, R>(&'scope self, function: F) -> Result<()>
    where
        F: FnOnce() -> R + Send + 'scope,
        R: TaskOutcome,
    {
        let borrowing = Borrowing { function, pending: PendingTask::new(&self.tasks) };
        let task: Task<'scope> = Box::new(move || borrowing.run());
        // SAFETY: only the lifetime changes. The task must not outlive 'scope: `Stream::scope`
        // returns, also by a panic, only when no task enqueued here is pending, and `Borrowing`
        // drops its `PendingTask` after everything that borrows.
        let task = unsafe { std::mem::transmute::<Task<'scope>, Task<'static>>(task) };
        self.stream.enqueue(task)
    }

    /// The stream that executes the scope's tasks.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.stream
    }
}

impl Stream {
    /// Lets tasks borrow from the caller: this call returns when the scope's tasks are all done.
    ///
    /// After `tasks`, the call synchronises the stream: it blocks, and raises and clears the
    /// stream's error. If another synchronise has already cleared the error of a task of the scope,
    /// the call raises that error too: `Ok` means that every task ran. Inside a task of this stream
    /// the call fails without calling `tasks`.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// let mut squares = vec![0; 4];
    /// stream.scope(|scope| {
    ///     for (number, square) in squares.iter_mut().enumerate() {
    ///         scope.enqueue(move || *square = number * number)?;
    ///     }
    ///     Ok::<_, accelrt::Error>(())
    /// })??;
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn scope<'env, F, T>(&self, tasks: F) -> Result<T>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        self.core().check_wait()?;
        let stream = RetainingStream::new(self.core()); // retains errors that other threads clear
        let pushed_before = stream.pushed();
        let counted = Arc::new(Tasks::default());
        let end = End { stream: self, tasks: &counted };
        let scope = Scope {
            stream: self,
            tasks: Arc::clone(&counted),
            invariant: PhantomData,
            env: PhantomData,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| tasks(&scope)));
        let synchronized = self.synchronize_within(&mut Interrupt::default());
        drop(end);
        match outcome {
            Ok(value) => {
                synchronized.and_then(|()| check(&stream, pushed_before, &counted)).map(|()| value)
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

#[derive(Default)]
struct Tasks {
    /// The number of tasks that have neither run nor been dropped. A task may enqueue more tasks.
    pending: AtomicU64,
    /// True when a task failed or was dropped without running.
    is_any_lost: AtomicBool,
}

/// If a task failed or never ran, raises the first error that covers a task after `pushed_before`.
fn check(stream: &RetainingStream, pushed_before: u64, tasks: &Tasks) -> Result<()> {
    // Relaxed: the acquire load in `End::is_reached` comes before.
    if !tasks.is_any_lost.load(Ordering::Relaxed) {
        return Ok(());
    }
    raise(stream.failures.within(pushed_before, stream.pushed()))
}

/// A task of a scope. `function` drops before `pending`, so the task counts as pending until its
/// borrows have ended, even if it never runs.
struct Borrowing<F> {
    function: F,
    pending: PendingTask,
}

impl<F: FnOnce() -> R, R: TaskOutcome> Borrowing<F> {
    fn run(self) -> Result<(), TaskError> {
        // The function's captures drop before `pending`, also when the function panics.
        let Self { function, mut pending } = self;
        let result = function().into_task_result();
        pending.is_done = result.is_ok();
        result
    }
}

/// Counts one task in [`Tasks::pending`], from the creation of this value to its drop.
struct PendingTask {
    tasks: Arc<Tasks>,
    is_done: bool,
}

impl PendingTask {
    fn new(tasks: &Arc<Tasks>) -> Self {
        // Relaxed: each increment is ordered before the scope's end, or is made by a task that is
        // itself pending. So the end reads no zero while a task is pending.
        tasks.pending.fetch_add(1, Ordering::Relaxed);
        Self { tasks: Arc::clone(tasks), is_done: false }
    }
}

impl Drop for PendingTask {
    fn drop(&mut self) {
        if !self.is_done {
            // Relaxed: published by the release below.
            self.tasks.is_any_lost.store(true, Ordering::Relaxed);
        }
        // Release: publishes the end of the task's borrows; pairs with `End`. No model: after a
        // synchronise that is not refused, the stream's counter already gives this order.
        self.tasks.pending.fetch_sub(1, Ordering::Release);
    }
}

/// A guard whose drop blocks until no task is pending, even after a refused synchronise or a panic.
/// Tasks may also have enqueued more tasks behind the synchronise.
struct End<'a> {
    stream: &'a Stream,
    tasks: &'a Tasks,
}

impl End<'_> {
    fn is_reached(&self) -> bool {
        // Acquire: pairs with the release in `PendingTask::drop`. No model: for the reason given
        // there. A forked child runs and drops no task, so the child must not wait.
        self.tasks.pending.load(Ordering::Acquire) == 0 || crate::base::fork::is_child()
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        while !self.is_reached() {
            let core = self.stream.core();
            // The wait executes tasks or blocks. While it blocks a worker, the pool may start a
            // substitute. The result is ignored: the loop checks the count of pending tasks.
            let _ = core.wait_ticket(core.pushed(), false, &mut Interrupt::default());
            if !self.is_reached() {
                park(Some(PENDING_PERIOD)); // a task is counted but not yet enqueued
            }
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Stream {
    /// Enqueues a function that has buffers' elements as slices: `&[T]` for what it
    /// [reads](crate::TypedBuffer::reads), `&mut [T]` for what it
    /// [writes](crate::TypedBuffer::writes). Blocks and treats the function's outcome as
    /// [`Stream::enqueue`]; the result's `wait` waits for this task alone.
    ///
    /// The task runs behind every conflicting use of the bytes on any stream, and later conflicting
    /// uses wait for it, as for [`Buffer::copy_from`]. The buffers may be dropped right after the
    /// call. A task whose views have no bytes runs too.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = runtime.current_device()?;
    /// let (fill, add) = (runtime.stream(device)?, runtime.stream(device)?);
    /// let x = runtime.zeros(4 * 1000, device)?.typed::<f32>()?;
    /// let y = runtime.zeros(4 * 1000, device)?.typed::<f32>()?;
    /// fill.enqueue_with(x.writes(), |x| x.fill(1.5))?;
    /// add.enqueue_with((x.reads(), y.writes()), |(x, y)| {
    ///     for (y, x) in y.iter_mut().zip(x) {
    ///         *y += 2.0 * x; // behind the fill on the other stream: no event is needed
    ///     }
    /// })?;
    /// assert_eq!(y.read_to_vec()?, [3.0; 1000]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// Fails when views overlap of which one is written, when memory is exported, released, of
    /// another runtime or not accessible to the host, on kinds whose streams do not run on the host
    /// (there a [`Program`](crate::Program) has the work), after a shutdown and in a forked child.
    ///
    /// A slice lives as long as the call of the function, so it cannot be kept:
    ///
    /// ```compile_fail
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default()).unwrap();
    /// let x = runtime.zeros(8, accelrt::Device::cpu(0)).unwrap().typed::<u64>().unwrap();
    /// let (sender, receiver) = std::sync::mpsc::channel::<&mut [u64]>();
    /// let stream = runtime.current_stream().unwrap();
    /// stream.enqueue_with(x.writes(), move |x| sender.send(x).is_ok().then_some(())).unwrap();
    /// ```
    pub fn enqueue_with<U, F, R>(&self, uses: U, function: F) -> Result<Transfer>
    where
        U: Uses,
        F: for<'view> FnOnce(U::Slices<'view>) -> R + Send + 'static,
        R: TaskOutcome + 'static,
    {
        if !self.core().on_host {
            let (kind, capability) = (self.device().kind(), FUNCTIONS);
            return Err(Error::Driver(DriverError::Unsupported { kind, capability }));
        }
        uses.enqueue(self, function)
    }
}

const FUNCTIONS: &str = "functions of the host as tasks: compile a Program, and launch its kernels";

/// The type of an expression that never has a value, which the language has no stable name for: the
/// result of a function that does not return.
type Never = <fn() -> ! as Returned>::Value;

trait Returned {
    type Value;
}

impl<T> Returned for fn() -> T {
    type Value = T;
}

/// Implements [`TaskOutcome`] for values that are dropped.
macro_rules! dropped {
    ($($value:ty)*) => { $(impl TaskOutcome for $value {})* };
}

dropped! { Never Infallible bool char String Duration Instant std::cmp::Ordering }
dropped! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }
dropped! { Event Stream Buffer Transfer }

/// The same for containers of anything.
macro_rules! dropped_containers {
    ($([$($parameter:ident)*] $container:ty),* $(,)?) => {
        $(impl<$($parameter),*> TaskOutcome for $container {})*
    };
}

dropped_containers! {
    [T] Option<T>, [T] Vec<T>, [T] VecDeque<T>, [T] BTreeSet<T>, [T S] HashSet<T, S>,
    [K V] BTreeMap<K, V>, [K V S] HashMap<K, V, S>, [T] JoinHandle<T>,
    [T] HostTransfer<T>, [T] TypedBuffer<T>,
    [A] (A,), [A B] (A, B), [A B C] (A, B, C), [A B C D] (A, B, C, D),
}

impl<T: ?Sized> TaskOutcome for Box<T> {}
impl<T: ?Sized> TaskOutcome for Arc<T> {}
impl<T: ?Sized> TaskOutcome for Rc<T> {}
impl<T: ?Sized> TaskOutcome for &T {}
impl<T, const N: usize> TaskOutcome for [T; N] {}

impl Stream {
    /// Retires every task that is queued and has not begun, without running it. Does not block.
    ///
    /// The stream fails at the first of these tasks with
    /// [`StreamCancelled`](crate::FailureCause::StreamCancelled), and goes on as behind a task that
    /// failed: the next synchronise raises the failure, which
    /// [counts](crate::StreamFailure::skipped_count) the tasks that did not run, and ends it; what
    /// is enqueued before that is skipped too. A stream without such tasks stays as it is.
    ///
    /// What has begun goes on: a running function, a deferred task that was started, work that a
    /// driver has. The runtime's own tasks are never cancelled. Events that were recorded behind
    /// are done and failed, and dropped buffers are freed. A wait for another stream remains, so a
    /// stream that is parked retires its tasks when the wait is over: the order that other streams
    /// and memory rely on holds. To end the wait as well, cancel the stream that it waits for.
    ///
    /// A task that another thread enqueues during the call may be cancelled or not. A report at the
    /// end of the process does not repeat the failure. Fails after a shutdown, which cancels by
    /// itself, and in a forked child.
    ///
    /// ```
    /// use accelrt::{Error, FailureCause, StreamError};
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// let (open, opened) = std::sync::mpsc::channel::<()>();
    /// let (enter, entered) = std::sync::mpsc::channel();
    /// stream.enqueue(move || enter.send(()).map(|()| opened.recv()))?;
    /// stream.enqueue(|| println!("never printed"))?;
    /// entered.recv().expect("the first task begins");
    /// stream.cancel()?;
    /// open.send(()).expect("the first task goes on");
    /// let Err(Error::Stream(StreamError::Failed(failure))) = stream.synchronize() else {
    ///     panic!("a task was cancelled")
    /// };
    /// assert!(matches!(failure.failure(), FailureCause::StreamCancelled));
    /// assert_eq!(failure.skipped_count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) -> Result<()> {
        let core = self.core();
        core.lifecycle.check()?;
        // While tasks are watched, the consumer looks at the ticket; else no task pays for that.
        let watch = core.lifecycle.watch(None);
        // Relaxed: a task that races with this call may be cancelled or not.
        core.cancelled_until.fetch_max(core.pushed(), Ordering::Relaxed);
        core.enqueue(EndOfCancel(watch), Always);
        Ok(())
    }
}

/// Stands behind the last task that a cancel covers, and ends its watch.
struct EndOfCancel(TaskWatch);

impl Command<TaskContext> for EndOfCancel {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {
        drop(self.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use crate::base::config::Config;
    use crate::base::device::Device;
    use crate::runtime::Runtime;

    #[test]
    fn a_cancel_watches_the_tasks_until_the_last_one_that_it_covers() {
        // Goal: tasks behind a cancel cost what they cost before it. Method: a gate holds the
        // cancelled ones.
        let runtime = Runtime::new(Config::default()).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let is_watched = || stream.core().lifecycle.is_watched();
        let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
        stream.enqueue(move || enter.send(()).map(|()| opened.recv())).unwrap();
        entered.recv().unwrap();
        stream.enqueue(|| ()).unwrap();
        stream.cancel().unwrap();
        stream.cancel().unwrap();
        assert!(is_watched());
        open.send(()).unwrap();
        stream.synchronize().unwrap_err();
        assert!(!is_watched());
    }
}
