//! The record as a task: completes its version, with a time stamp or a failure where there is one.

use crate::backend::blocking::while_blocked;
use crate::event::shared::Pending;
use crate::queue::{Class, Command};
use crate::stream::context::TaskContext;

pub(super) struct RecordCommand(pub(super) Pending);

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Own;

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self(event) = self;
        let version = event.version;
        context.is_marker = true;
        if context.on_host && !event.finished.is_timed && context.failure().is_none() {
            return event.complete(version);
        }
        let mark = context.mark(event.finished.is_timed);
        if mark.is_none() && !context.on_host {
            // Refused: the record is failed, and still not complete before the device is there.
            let _ = while_blocked(|| context.backend.stream_synchronize(context.handle));
        }
        let failure = context.failure().cloned();
        let is_done = context.on_host || mark.is_none();
        event.finish(version, mark.clone(), failure);
        if is_done {
            event.complete(version);
        } else {
            context.effects().mark = mark;
        }
    }
}
