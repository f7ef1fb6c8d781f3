//! The record of an event as a task, which stores its time stamp or failure in the event.
//!
//! A record needs no completion flag. On a host kind the stream's counter shows that the record is
//! done; on a driver kind a mark shows it.

use std::sync::Arc;

use crate::base::blocking::while_blocked;
use crate::base::error::Result;
use crate::engine::event::core::EventCore;
use crate::engine::event::shared::{PendingRecord, Shared};
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::direct::Direct;
use crate::engine::stream::enqueue::{Attempt, Enqueue};
use crate::engine::stream::marks::PlacedMark;
use crate::engine::stream::operation::{Details, OperationKind};
use crate::queue::{Class, Command, Pushed};

pub(super) struct RecordCommand(pub(super) PendingRecord);

impl Command<TaskContext> for RecordCommand {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Record;

    fn details(&self) -> Details {
        let core: *const EventCore = &raw const *self.0;
        Details { event: core.addr() as u64, ..Details::default() }
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        let Self(event) = self;
        run(&event, event.version, context);
    }
}

/// Enqueues a record. The recording thread takes the ticket under the event's lock, so versions and
/// tickets of one stream grow together.
pub(super) struct Recording<'a>(pub(super) &'a Shared);

impl Enqueue for Recording<'_> {
    type Command = RecordCommand;
    type Receipt = ();

    #[inline]
    fn run_directly(self, mut direct: Direct<'_>) -> Attempt<Self> {
        let (Self(event), core) = (&self, direct.core());
        let mut latest = match event.lock_for(core) {
            Ok(latest) => latest,
            Err(refusal) => return Attempt::Over(Err(refusal)),
        };
        let Some(ticket) = direct.take_ticket() else {
            drop(latest);
            return Attempt::Queue(self);
        };
        let version = event.begin_direct(&mut latest);
        let previous = latest.move_to(core, ticket);
        // Unlocks the event, because the drop of `direct` may run other threads' tasks.
        drop(latest);
        direct.run::<RecordCommand>(|context| run(event, version, context));
        drop(direct);
        drop(previous); // perhaps the last reference to a stream, whose drop waits for the device
        Attempt::Over(Ok(()))
    }

    #[inline(always)]
    fn queue(
        self,
        core: &Arc<StreamCore>,
        push: impl FnOnce(RecordCommand) -> Pushed,
    ) -> Result<(Pushed, ())> {
        let mut latest = self.0.lock_for(core)?;
        let pushed = push(RecordCommand(self.0.begin(&mut latest)));
        let previous = latest.move_to(core, pushed.ticket);
        drop(latest);
        drop(previous); // without the lock: perhaps the last reference to a stream
        Ok((pushed, ()))
    }
}

/// Runs the record `version` of the event, from the queue or past it.
#[inline]
pub(super) fn run(event: &EventCore, version: u64, context: &mut TaskContext) {
    context.is_marker = true;
    let is_plain = !event.finished.is_timed && context.failure().is_none();
    if context.on_host && is_plain {
        return;
    }
    if is_plain && let Some(mark) = context.bare_mark(false) {
        // The stream stores the mark of an untimed record, and waits find it there.
        context.effects().mark = Some(PlacedMark::Sole(mark));
        return;
    }
    finish(event, version, is_plain, context);
}

/// Stores a record's mark and failure in the event. After a refused mark, waits for the device.
#[inline(never)]
fn finish(event: &EventCore, version: u64, was_refused: bool, context: &mut TaskContext) {
    let mark = if was_refused { None } else { context.mark(event.finished.is_timed) };
    let is_refused = mark.is_none() && !context.on_host;
    if is_refused {
        // No mark will report this record, so the thread waits for the device before it completes
        // the version. It ignores the wait's error: the record has failed already.
        let _ = while_blocked(|| context.handle.synchronize());
    }
    event.finish(version, mark.clone(), context.failure().cloned());
    if is_refused {
        event.complete(version);
    } else if !context.on_host {
        context.effects().mark = mark.map(PlacedMark::Shared);
    }
}
