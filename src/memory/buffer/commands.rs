//! Copies, fills and FFI calls as tasks, which hold no buffer: its free follows its tasks.
#![expect(unsafe_code, reason = "addresses that `transfer.rs` has checked, or a binding's caller")]

pub use crate::backend::contract::Address;
use crate::base::error::{FailureCause, Result};
use crate::engine::stream::commands::{Details, MemoryAccess, OperationKind};
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::order_watch::NextUses;
use crate::engine::stream::{Stream, order_watch};
use crate::ffi::FfiCall;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::order::follow_earlier_life;
use crate::memory::buffer::uses::Task;
use crate::queue::{Class, Command};

/// Two ranges of equal size that do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// The first byte of the destination.
    pub to: Address,
    /// The first byte of the source.
    pub from: Address,
    /// The size of each range in bytes.
    pub bytes: usize,
}

/// Copies one range to another.
#[derive(Debug)]
pub struct Copy(pub Ranges);

impl Command<TaskContext> for Copy {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Copy;

    fn details(&self) -> Details {
        let Ranges { to, from, bytes } = self.0;
        let accesses = vec![MemoryAccess::read(from, bytes), MemoryAccess::write(to, bytes)];
        Details { bytes, accesses, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        // A host access may wait for this copy, so the retirement of the copy must wake waiters.
        context.is_marker = true;
        let Ranges { to, from, bytes } = self.0;
        // SAFETY: both ranges must be live and ordered against other accesses. `transfer.rs` checks
        // the ranges and records the use of the buffers, whose free follows this task; it also owns
        // or borrows the host's range until the task is done. Streams order all tasks that use the
        // ranges. Other creators of this task, in bindings, have their callers uphold both.
        if let Err(refusal) = unsafe { context.handle.copy(to, from, bytes) } {
            context.fail(FailureCause::Backend(refusal));
        }
    }
}

/// A copy on a host kind, between a buffer and host bytes, which the task owns.
pub(super) struct OwningCopy<O> {
    pub(super) copy: Copy,
    pub(super) owner: O,
}

impl<O: Send + 'static> Command<TaskContext> for OwningCopy<O> {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Copy;

    fn details(&self) -> Details {
        self.copy.details()
    }

    fn run(self, context: &mut TaskContext) {
        self.copy.run(context);
        crate::engine::stream::commands::drop_quietly(|| drop(self.owner));
    }
}

/// Fills a range with one byte value.
#[derive(Debug)]
pub struct Fill {
    /// The first byte of the range.
    pub to: Address,
    /// The size of the range in bytes.
    pub bytes: usize,
    /// The value of each byte.
    pub byte: u8,
}

impl Command<TaskContext> for Fill {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Fill;

    fn details(&self) -> Details {
        let accesses = vec![MemoryAccess::write(self.to, self.bytes)];
        Details { bytes: self.bytes, accesses, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        let Self { to, bytes, byte } = self;
        // SAFETY: the range must be live. `transfer.rs` records the use of the buffer, whose free
        // follows this task. The callers of bindings, the other creators, keep it live.
        if let Err(refusal) = unsafe { context.handle.fill(to, byte, bytes) } {
            context.fail(FailureCause::Backend(refusal));
        }
    }
}

impl Stream {
    /// As [`Stream::launch`], and records a use of each buffer. A buffer may be dropped right after
    /// the call, and a host access to a buffer waits for the function.
    ///
    /// Fails as [`Stream::launch`], and when a buffer is released or belongs to another runtime. A
    /// call that fails enqueues nothing.
    ///
    /// ```
    /// use accelrt::FfiCall;
    /// extern "C" fn count_up(bytes: *mut u8, count: usize) {
    ///     let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, count) };
    ///     bytes.iter_mut().for_each(|byte| *byte += 1);
    /// }
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let (stream, buffer) = (runtime.current_stream()?, runtime.zeros(3, device)?);
    /// let arguments = [buffer.address()?.into(), buffer.nbytes().into()];
    /// let call = FfiCall::new(count_up as *const _, &arguments)?;
    /// // SAFETY: the types are those of `count_up`, and the buffer has as many bytes.
    /// unsafe { stream.launch_with_buffers(call, &[&buffer])? };
    /// assert_eq!(buffer.read_to_vec()?, [1; 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Stream::launch`], except that the recorded uses keep the buffers' memory allocated.
    pub unsafe fn launch_with_buffers(&self, call: FfiCall, buffers: &[&Buffer]) -> Result<u64> {
        let uses: Vec<_> = buffers.iter().map(|buffer| (*buffer, None)).collect();
        // SAFETY: the caller upholds `launch`'s contract; with `None`, no accesses are stated.
        unsafe { self.launch_with_uses(call, &uses) }
    }

    /// As [`Stream::launch_with_buffers`]. `Some(writes)` states that the function uses only the
    /// bytes of the buffer's view, and whether the function writes them.
    ///
    /// # Safety
    /// As [`Stream::launch_with_buffers`], and the stated accesses are complete.
    #[doc(hidden)]
    pub unsafe fn launch_with_uses(
        &self,
        call: FfiCall,
        uses: &[(&Buffer, Option<bool>)],
    ) -> Result<u64> {
        // SAFETY: the caller upholds `launch`'s contract. The buffers stay allocated until their
        // uses are recorded.
        self.enqueue_using(uses, || unsafe { self.launch_marker(call) })
    }

    /// Enqueues a task, which is a marker, by `enqueue`, and records its uses. On another stream
    /// than a buffer's home, the task runs behind what the home still does with the memory for an
    /// earlier buffer.
    #[doc(hidden)]
    pub fn enqueue_using(
        &self,
        uses: &[(&Buffer, Option<bool>)],
        enqueue: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let core = self.core();
        for (buffer, _) in uses {
            core.lifecycle.check_same_runtime("a buffer", buffer.runtime())?;
        }
        let accesses: Vec<_> = uses.iter().map(|(it, _)| it.access()).collect::<Result<_>>()?;
        for (buffer, _) in uses {
            follow_earlier_life(core, buffer);
        }
        if order_watch::is_on() {
            let told = uses.iter().map(|(buffer, writes)| buffer.used_bytes(*writes));
            let uses = told.collect();
            order_watch::declare(Some(NextUses { uses, ..NextUses::NONE }));
        }
        let ticket = enqueue().inspect_err(|_| order_watch::declare(None))?;
        for (access, (buffer, writes)) in accesses.into_iter().zip(uses) {
            access.record_use(core, Task::marker(ticket), buffer, *writes);
        }
        Ok(ticket)
    }
}
