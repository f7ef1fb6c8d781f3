//! Scopes: the tasks of a scope borrow from its caller, which waits for all of them.
//!
//! The API follows `std::thread::scope`.
#![expect(
    unsafe_code,
    reason = "the lifetime of a borrowing task is erased; the scope outlives it"
)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Result, TaskError};
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::base::sync::{Ordering, park};
use crate::engine::stream::failures::RetainingStream;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::synchronize::raise;
use crate::engine::stream::{Stream, TaskOutcome};

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
