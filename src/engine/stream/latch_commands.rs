//! Opens and abandons the latches of streams, and waits for a latch as a command.

use std::sync::Arc;

use crate::engine::stream::context::{Blocker, TaskContext};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::latch::{Latch, Outcome};
use crate::engine::stream::operation::OperationKind;
use crate::queue::{Class, Command};

/// The task's reference to its latch; abandons the latch on drop.
pub(super) struct LatchWaiter(pub(super) Arc<Latch<StreamCore>>);

impl Drop for LatchWaiter {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Opens a latch, and resumes the stream that is parked on it.
pub(crate) fn open(latch: &Latch<StreamCore>, outcome: Outcome) {
    if let Some((stream, parking)) = latch.open(outcome) {
        stream.unpark(parking);
    }
}

/// A command that waits until a latch is open, whatever the outcome.
pub(crate) struct WaitForLatch(LatchWaiter);

impl WaitForLatch {
    /// The command's drop abandons the latch, so no other command may wait for the same latch.
    pub(crate) fn new(latch: Arc<Latch<StreamCore>>) -> Self {
        Self(LatchWaiter(latch))
    }
}

impl Command<TaskContext> for WaitForLatch {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let Self(LatchWaiter(latch)) = self;
        if latch.is_open() {
            return true;
        }
        context.effects().blocked_on = Some(Blocker::Latch(Arc::clone(latch)));
        false
    }

    fn run(self, _context: &mut TaskContext) {}
}
