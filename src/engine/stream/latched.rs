//! Streams parked on gates: abandoning a gate, a command that waits for one, and opening one.

use std::sync::Arc;

use crate::engine::stream::context::{Blocker, TaskContext};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::gate::{Gate, Outcome};
use crate::engine::stream::operation::OperationKind;
use crate::queue::{Class, Command};

/// The task's reference to its gate; abandons the gate on drop.
pub(super) struct Entrance(pub(super) Arc<Gate<StreamCore>>);

impl Drop for Entrance {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Opens a gate, and resumes the stream that is parked on it.
pub(crate) fn open(gate: &Gate<StreamCore>, outcome: Outcome) {
    if let Some((stream, parking)) = gate.open(outcome) {
        stream.unpark(parking);
    }
}

/// Waits until a gate is open, whatever the outcome.
pub(crate) struct UntilOpen(Entrance);

impl UntilOpen {
    /// For the only command that looks at the gate.
    pub(crate) fn new(gate: Arc<Gate<StreamCore>>) -> Self {
        Self(Entrance(gate))
    }
}

impl Command<TaskContext> for UntilOpen {
    const CLASS: Class = Class::Own;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let Self(Entrance(gate)) = self;
        if gate.is_open() {
            return true;
        }
        context.effects().blocked_on = Some(Blocker::Gate(Arc::clone(gate)));
        false
    }

    fn run(self, _context: &mut TaskContext) {}
}
