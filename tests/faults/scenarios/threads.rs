//! Threads: several at once over own and shared streams, with waits and memory between them.

use std::thread;

use accelrt::{Device, Stream};

use crate::world::World;

const THREADS: usize = 3;

/// Tasks that each thread enqueues in a row.
const TASKS: usize = 5;

pub(crate) fn run(world: &World) {
    let device = world.devices[0];
    let Some(shared) = world.stream(device) else { return };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, device) = (&shared, world.devices[thread % world.devices.len()]);
            scope.spawn(move || one(world, shared, device, thread));
        }
    });
    world.note(shared.synchronize());
}

fn one(world: &World, shared: &Stream, device: Device, thread: usize) {
    let Some(own) = world.stream(device) else { return };
    let buffer = world.note(world.runtime.empty(64, device));
    for _ in 0..TASKS {
        let before = world.task_of(&own, thread);
        let waits =
            world.note(own.record_event()).and_then(|event| world.note(shared.wait_event(&event)));
        let behind = world.task_of(shared, thread);
        // Where another thread's failure may have been ended in between, the task before may have
        // been skipped alone; in the order of the records it is behind all the same.
        if waits.is_some() {
            world.ledger.order_of_runs(before, behind);
        }
        if let Some(buffer) = &buffer {
            world.transfer(buffer.fill(1, &own));
        }
    }
    world.note(own.wait_stream(shared));
    if let Some(buffer) = buffer {
        world.note(buffer.wait_for_host());
    }
    world.note(own.synchronize());
    world.note(world.runtime.synchronize(device));
}
