//! Scopes: tasks that borrow from the caller, all done when the scope ends.
//!
//! Source of the shape: `std::thread::scope`.
#![expect(
    unsafe_code,
    reason = "the lifetime of a borrowing task is erased; the scope outlives it"
)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, TaskError};
use crate::stream::commands::TaskOutcome;
use crate::stream::handle::Stream;
use crate::sync::unmodelled::AtomicU64;
use crate::sync::{Ordering, park};

/// Between two looks at tasks that a synchronise did not wait for.
const PENDING_PERIOD: Duration = Duration::from_micros(200);

type Task<'scope> = Box<dyn FnOnce() -> Result<(), TaskError> + Send + 'scope>;

/// Enqueues tasks that borrow; see [`Stream::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    stream: &'scope Stream,
    /// Tasks that were enqueued here and not yet run or dropped; tasks may enqueue more.
    pending: Arc<AtomicU64>,
    invariant: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// As [`Stream::enqueue`], for a function that borrows from outside the scope. Allocates.
    pub fn enqueue<F, R>(&'scope self, function: F) -> Result<()>
    where
        F: FnOnce() -> R + Send + 'scope,
        R: TaskOutcome,
    {
        let pending = Pending::new(&self.pending);
        let task: Task<'scope> = Box::new(move || {
            // Dropped behind the function and everything it borrows, also when it panics.
            let _pending = pending;
            function().into_task_result()
        });
        // SAFETY: only the lifetime changes. The task must not outlive 'scope: `Stream::scope`
        // returns, also by a panic, only when no task enqueued here is pending.
        let task = unsafe { std::mem::transmute::<Task<'scope>, Task<'static>>(task) };
        self.stream.enqueue(task)
    }

    /// The stream that the tasks run on.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.stream
    }
}

impl Stream {
    /// Lets tasks borrow from the caller: everything enqueued through the scope is done when this
    /// returns. The end is a synchronise of the stream: it blocks, and raises and ends its error.
    ///
    /// Fails before `tasks` is called inside a task of this stream.
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
        let pending = Arc::new(AtomicU64::new(0));
        let scope = Scope {
            stream: self,
            pending: Arc::clone(&pending),
            invariant: PhantomData,
            env: PhantomData,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| tasks(&scope)));
        let synchronized = self.core().synchronize(&mut None);
        finish(&pending);
        match outcome {
            Ok(value) => synchronized.map(|()| value),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// One task of a scope that was not yet run or dropped.
struct Pending(Arc<AtomicU64>);

impl Pending {
    fn new(count: &Arc<AtomicU64>) -> Self {
        // Relaxed: raised by the scope's thread or inside a pending task, so never from zero while
        // somebody could leave the scope.
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Release: the task's borrows ended; pairs with `finish`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Blocks until no task is pending, whatever a synchronise said: tasks may have enqueued more, and
/// after a shutdown it is refused. In a forked child nothing will ever run.
fn finish(pending: &AtomicU64) {
    // Acquire: pairs with the release of each task's end.
    while pending.load(Ordering::Acquire) > 0 && !crate::fork::is_child() {
        park(Some(PENDING_PERIOD));
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stream", &self.stream).finish_non_exhaustive()
    }
}
