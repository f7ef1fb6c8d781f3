//! Calls of C functions as tasks of a stream.
#![expect(unsafe_code, reason = "calls functions on the promise of their launch's caller")]

use crate::backend::contract::Address;
use crate::base::error::{DriverError, Error, FailureCause, Result};
use crate::base::sync::assert_no_lock_held;
use crate::base::thread::while_blocked;
use crate::engine::stream::Stream;
use crate::engine::stream::core::TaskContext;
use crate::engine::stream::enqueue::Checked;
use crate::engine::stream::task::{Details, OperationKind};
use crate::ffi::{
    self, Argument, CallFrame, FfiCall, Frame, Function, PlacedArguments, ShortFrame,
};
use crate::queue::{Class, Command, INLINE_BYTES, Pushed};

/// The capability that streams without host functions lack.
pub const NATIVE_CALLS: &str =
    "native functions as tasks: they run on the host, and kernels of programs on the device";

/// A call of a C function. With `CHECKED` the function's result is a status. With `MARKER` the
/// task's retirement wakes waiters.
struct Launch<A, const CHECKED: bool, const MARKER: bool> {
    function: Function,
    arguments: A,
}

impl<A: CallFrame, const CHECKED: bool, const MARKER: bool> Command<TaskContext>
    for Launch<A, CHECKED, MARKER>
{
    const CLASS: Class = Class::Ffi;
    const OPERATION: OperationKind = OperationKind::Launch;

    fn details(&self) -> Details {
        let function = self.function as usize;
        Details { function, words: self.arguments.possible_pointers(), ..Details::default() }
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        if MARKER {
            context.is_marker = true;
        }
        // SAFETY: the function takes these arguments and may be called when the stream runs this
        // task. The callers of `Stream::launch` and `Stream::launch_marker` guarantee this; only
        // these two functions create the command.
        let status = unsafe { self.arguments.call(self.function) };
        if CHECKED && status != 0 {
            let function = self.function as usize;
            context.fail(FailureCause::Status { function, status });
        }
    }
}

/// A call of a C function that blocks its thread.
struct BlockingLaunch<A> {
    function: Function,
    arguments: A,
    is_checked: bool,
    is_marker: bool,
}

impl<A: CallFrame> Command<TaskContext> for BlockingLaunch<A> {
    const CLASS: Class = Class::Blocking;
    const OPERATION: OperationKind = OperationKind::Launch;

    fn details(&self) -> Details {
        let function = self.function as usize;
        Details { function, words: self.arguments.possible_pointers(), ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        context.is_marker |= self.is_marker;
        // SAFETY: as for `Launch`, whose creators create this command too.
        let status = while_blocked(|| unsafe { self.arguments.call(self.function) });
        if self.is_checked && status != 0 {
            context.fail(FailureCause::Status { function: self.function as usize, status });
        }
    }
}

const _: () = assert!(size_of::<Launch<ShortFrame, true, true>>() <= INLINE_BYTES);

impl Stream {
    /// Enqueues a call of a C function. The call runs once, on some thread, after everything
    /// enqueued before. If the stream has failed by then, it drops the call without running it.
    /// Returns the task's ticket.
    ///
    /// A status other than 0 fails the stream when the call is [checked](FfiCall::checked).
    /// Up to 4 arguments need no memory of their own. Until a task of the stream was timed, waiting
    /// threads leave the call to a worker. A thread with less stack left than a worker has (8 MiB,
    /// with a tolerance of 1 MiB) always leaves the call to a worker. A call that blocks its thread
    /// is announced by [`FfiCall::blocking`]: a worker more serves the other streams meanwhile.
    ///
    /// Fails on kinds whose streams do not run on the host, on processors whose calling convention
    /// is unknown (those of x86-64 and aarch64 on Unix are known), after a shutdown, and in a
    /// forked child.
    ///
    /// # Safety
    /// The address must be that of a function of the C convention that takes exactly these
    /// arguments and does not unwind. It must return `void`, or an integer or float in a register.
    /// A checked call must return an `int`. The function and the memory behind its arguments must
    /// stay usable from any thread until the task has run or the stream has passed it, which a
    /// synchronise confirms. The function's other requirements must hold when the stream runs it.
    ///
    /// See [`FfiCall`] for an example.
    #[inline(always)]
    pub unsafe fn launch(&self, call: FfiCall) -> Result<u64> {
        self.push_call::<false>(call)
    }

    /// As [`Stream::launch`], but as a marker, for callers that wait for this task.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    #[inline(never)]
    pub(crate) unsafe fn launch_marker(&self, call: FfiCall) -> Result<u64> {
        self.push_call::<true>(call)
    }

    /// Called only by `launch` and `launch_marker`, whose callers guarantee that the call may run.
    #[inline(always)]
    fn push_call<const MARKER: bool>(&self, call: FfiCall) -> Result<u64> {
        let core = self.core();
        if !core.on_host || !ffi::IS_KNOWN {
            return Err(self.no_ffi_calls());
        }
        if call.is_blocking() {
            return self.push_blocking(call, MARKER);
        }
        let is_checked = call.is_checked();
        let pushed = match call.into_parts() {
            (function, PlacedArguments::Short(arguments)) => {
                self.push_placed::<_, MARKER>(function, arguments, is_checked)
            }
            (function, PlacedArguments::Long(arguments)) => {
                self.push_long::<MARKER>(function, arguments, is_checked)
            }
        };
        Ok(pushed?.ticket)
    }

    #[cold]
    #[inline(never)]
    fn push_blocking(&self, call: FfiCall, is_marker: bool) -> Result<u64> {
        let is_checked = call.is_checked();
        let (function, arguments) = call.into_parts();
        let pushed = match arguments {
            PlacedArguments::Short(arguments) => self
                .core()
                .enqueue(BlockingLaunch { function, arguments, is_checked, is_marker }, Checked),
            PlacedArguments::Long(arguments) => self
                .core()
                .enqueue(BlockingLaunch { function, arguments, is_checked, is_marker }, Checked),
        };
        Ok(pushed?.ticket)
    }

    #[cold]
    #[inline(never)]
    fn push_long<const MARKER: bool>(
        &self,
        function: Function,
        arguments: Box<Frame>,
        is_checked: bool,
    ) -> Result<Pushed> {
        self.push_placed::<_, MARKER>(function, arguments, is_checked)
    }

    #[inline(always)]
    fn push_placed<A: CallFrame, const MARKER: bool>(
        &self,
        function: Function,
        arguments: A,
        is_checked: bool,
    ) -> Result<Pushed> {
        if is_checked {
            self.core().enqueue(Launch::<_, true, MARKER> { function, arguments }, Checked)
        } else {
            self.core().enqueue(Launch::<_, false, MARKER> { function, arguments }, Checked)
        }
    }

    #[cold]
    fn no_ffi_calls(&self) -> Error {
        let capability = if ffi::IS_KNOWN {
            NATIVE_CALLS
        } else {
            "native functions on this processor: its calling convention is unknown"
        };
        Error::Driver(DriverError::Unsupported { kind: self.device().kind(), capability })
    }
}

impl From<Address> for Argument {
    /// A device address, passed as a pointer.
    #[inline]
    fn from(address: Address) -> Self {
        Self::U64(address.0)
    }
}
