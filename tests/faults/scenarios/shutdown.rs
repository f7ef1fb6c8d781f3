//! Shutdown: the end comes while tasks, marks, copies and frees are under way.

use accelrt::{Buffer, Event, Stream};

use crate::ledger::Owned;
use crate::world::World;

/// Everything that is queued can be finished.
pub(crate) fn run(world: &World) {
    let kept = begin(world);
    world.shut_down();
    after(world, kept);
}

/// A held stream, and others that wait for it: what is behind is cancelled.
pub(crate) fn run_held(world: &World) {
    let Some(stream) = world.stream(world.devices[0]) else { return };
    let held = world.hold(&stream);
    world.task(&stream);
    let kept = begin(world);
    if let Some(event) = world.note(stream.record_event()) {
        for (stream, ..) in &kept {
            world.note(stream.wait_event(&event));
            world.task(stream);
        }
    }
    world.shut_down();
    held.let_go(); // too late: nothing happens
    after(world, kept);
}

/// What is still there when the runtime ends.
type Kept = (Stream, Option<Buffer>, Option<Event>);

/// Work of every sort on every device, none of it waited for.
fn begin(world: &World) -> Vec<Kept> {
    let mut kept: Vec<Kept> = Vec::new();
    for device in &world.devices {
        for stream in world.streams(*device, 2) {
            world.task(&stream);
            let buffer = world.note(world.runtime.empty(100, *device));
            if let Some(buffer) = &buffer {
                world.transfer(buffer.fill(1, &stream));
                let bytes = Owned::new(&world.ledger, vec![0; 100]);
                world.transfer(buffer.copy_to_host(bytes, &stream));
            }
            let dropped = world.note(world.runtime.empty_pinned(100));
            dropped.map(|dropped| world.transfer(dropped.fill(1, &stream)));
            if let Some((.., Some(event))) = kept.last() {
                world.note(stream.wait_event(event));
            }
            world.task(&stream);
            let event = world.note(stream.record_event());
            kept.push((stream, buffer, event));
        }
    }
    kept
}

/// What is left answers, takes no work, and gives back what it has.
fn after(world: &World, kept: Vec<Kept>) {
    for (stream, buffer, event) in kept {
        world.task(&stream);
        if let Some(buffer) = &buffer {
            world.transfer(buffer.fill(1, &stream));
            world.note(buffer.wait_for_host());
        }
        if let Some(event) = &event {
            world.see(event);
        }
        world.note(stream.synchronize());
        world.note(world.runtime.empty(10, stream.device()));
    }
}
