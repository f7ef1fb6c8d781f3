//! Tasks over views: a closure that has the bytes of buffers as slices while it runs.
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
#![expect(unsafe_code, reason = "makes slices of the addresses that a task stores")]

use std::any::type_name;
use std::marker::PhantomData;

use crate::backend::contract::Address;
use crate::base::error::{DriverError, Error, FailureCause, Result};
use crate::base::sync::assert_no_lock_held;
use crate::engine::log::names::NameId;
use crate::engine::stream::commands::{catch_panic, panic_cause};
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::operation::{Details, MemoryAccess, OperationKind};
use crate::engine::stream::{Stream, TaskOutcome};
use crate::face::views::{RawView, Uses, check_apart};
use crate::memory::buffer::order::{Order, enqueue_task, tracked_use};
use crate::memory::buffer::{Buffer, Transfer};
use crate::queue::{Class, Command};

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

/// Checks the views and enqueues the task.
pub(super) fn enqueue<U, F, R, const N: usize>(
    stream: &Stream,
    buffers: [&Buffer; N],
    raw: [RawView; N],
    function: F,
) -> Result<Transfer>
where
    U: Uses,
    F: for<'view> FnOnce(U::Slices<'view>) -> R + Send + 'static,
    R: TaskOutcome + 'static,
{
    let lifecycle = &stream.core().lifecycle;
    for buffer in buffers {
        lifecycle.check_same_runtime("a buffer", buffer.runtime())?;
        if !buffer.is_host_accessible() {
            let (kind, capability) = (buffer.device().kind(), "access to their memory by the host");
            return Err(Error::Driver(DriverError::Unsupported { kind, capability }));
        }
    }
    check_apart(&raw)?;
    let mut writes = raw.iter().map(|view| view.writes);
    let used = buffers.map(|buffer| tracked_use(buffer, writes.next() == Some(true)));
    let task = ViewTask { function, raw, views: PhantomData::<fn() -> U> };
    enqueue_task(stream, used, Order::BehindConflicts, task)
}

/// A function over views as a command.
struct ViewTask<U, F, const N: usize> {
    function: F,
    raw: [RawView; N],
    views: PhantomData<fn() -> U>,
}

impl<U, F, R, const N: usize> Command<TaskContext> for ViewTask<U, F, N>
where
    U: Uses,
    F: for<'view> FnOnce(U::Slices<'view>) -> R + Send + 'static,
    R: TaskOutcome + 'static,
{
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Call;

    fn details(&self) -> Details {
        let access = |view: &RawView| MemoryAccess {
            address: Address(view.address),
            bytes: Some(view.bytes),
            writes: Some(view.writes),
        };
        Details {
            bytes: self.raw.iter().map(|view| view.bytes).sum(),
            accesses: self.raw.iter().map(access).collect(),
            name: NameId::of_static(type_name::<F>()),
            ..Details::default()
        }
    }

    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        context.is_marker = true; // host accesses and other streams wait for the task
        let Self { function, raw, .. } = self;
        let call = || {
            // SAFETY: the memory must be live, and only this task may access what it writes; the
            // head of this file says why. `enqueue`, the only creator of this task, did that.
            let slices = unsafe { U::slices(&raw) };
            function(slices).into_task_result()
        };
        match catch_panic(call) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => context.fail(FailureCause::Returned(error)),
            Err(panic) => context.fail(panic_cause(panic)),
        }
    }
}
