//! The record as a task: stores its time stamp or its failure, if any, in the event.
//!
//! A record needs no flag for its completion: the stream's counter tells, and on a driver's stream
//! the mark that the record leaves there.

use crate::base::blocking::while_blocked;
use crate::engine::event::core::EventCore;
use crate::engine::event::shared::Pending;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::marks::PlacedMark;
use crate::queue::{Class, Command};

pub(super) struct RecordCommand(pub(super) Pending);

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Own;

    fn description(&self) -> Option<(&'static str, usize)> {
        Some(("record", 0))
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self(event) = self;
        run(&event, event.version, context);
    }
}

/// The record of this version, queued or not.
#[inline]
pub(super) fn run(event: &EventCore, version: u64, context: &mut TaskContext) {
    context.is_marker = true;
    let is_plain = !event.finished.is_timed && context.failure().is_none();
    if context.on_host && is_plain {
        return;
    }
    if is_plain && let Some(mark) = context.place(false) {
        // An event's own mark serves elapsed times only: a wait uses the stream's mark.
        context.effects().mark = Some(PlacedMark::Alone(mark));
        return;
    }
    finish(event, version, is_plain, context);
}

/// Stores what is asked of a record later: its time, or its failure.
#[inline(never)]
fn finish(event: &EventCore, version: u64, was_refused: bool, context: &mut TaskContext) {
    let mark = if was_refused { None } else { context.mark(event.finished.is_timed) };
    let is_refused = mark.is_none() && !context.on_host;
    if is_refused {
        // The record has failed, and is still not complete before the device has reached it.
        let _ = while_blocked(|| context.handle.synchronize());
    }
    event.finish(version, mark.clone(), context.failure().cloned());
    if is_refused {
        event.complete(version);
    } else if !context.on_host {
        context.effects().mark = mark.map(PlacedMark::Shared);
    }
}
