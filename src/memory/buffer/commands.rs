//! Copies and fills as tasks, which hold no buffer: the free of a buffer follows its tasks.
#![expect(unsafe_code, reason = "addresses that `transfer.rs` has checked, or a binding's caller")]

pub use crate::backend::contract::Address;
use crate::base::error::FailureCause;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::operation::{Details, MemoryAccess, OperationKind};
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
