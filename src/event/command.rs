//! The record as a task: leaves its time stamp or its failure with the event, where there is one.
//!
//! That it is done needs no word of its own: the stream's counter says so.

use crate::backend::blocking::while_blocked;
use crate::event::shared::Pending;
use crate::queue::{Class, Command};
use crate::stream::context::TaskContext;

pub(super) struct RecordCommand(pub(super) Pending);

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Own;

    fn description(&self) -> Option<(&'static str, usize)> {
        Some(("record", 0))
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self(event) = self;
        let version = event.version;
        context.is_marker = true;
        if context.on_host && !event.finished.is_timed && context.failure().is_none() {
            return;
        }
        let mark = context.mark(event.finished.is_timed);
        let is_refused = mark.is_none() && !context.on_host;
        if is_refused {
            // The record is failed, and still not complete before the device is there.
            let _ = while_blocked(|| context.backend.stream_synchronize(context.handle));
        }
        event.finish(version, mark.clone(), context.failure().cloned());
        if is_refused {
            event.complete(version);
        } else if !context.on_host {
            context.effects().mark = mark;
        }
    }
}
