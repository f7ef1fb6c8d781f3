//! Copies: between buffers, devices and the host, waited for and not. Bytes that arrive are right.

use accelrt::{Buffer, Device, Stream};

use crate::ledger::Owned;
use crate::world::World;

const BYTES: usize = 700;

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        on_one_device(world, *device);
        across(world, *device);
    }
}

/// Every operation on two buffers of a device and one of the host.
fn on_one_device(world: &World, device: Device) {
    let made = [world.runtime.empty(BYTES, device), world.runtime.empty(BYTES, device)];
    let buffers: Vec<Buffer> = made.into_iter().filter_map(|made| world.note(made)).collect();
    let streams = world.streams(device, 2);
    for stream in &streams {
        if let [target, source, ..] = &buffers[..] {
            world.transfer(source.fill(1, stream));
            let copy = world.transfer(target.copy_from(source, stream));
            let waited = copy.and_then(|copy| world.note(copy.wait()));
            let _ = waited;
        }
        for buffer in &buffers {
            round_trip(world, buffer, stream);
            let copy = buffer.copy_from_host(Owned::new(&world.ledger, vec![9; BYTES]), stream);
            let copy = world.transfer(copy);
            let _ = copy.map(|copy| copy.is_done());
            let copy = buffer.copy_to_host(Owned::new(&world.ledger, vec![0; BYTES]), stream);
            if let Some(bytes) = world.transfer(copy).and_then(|copy| world.note(copy.wait())) {
                assert_bytes(world, bytes.as_ref(), 9);
            }
            let ignored = buffer.copy_to_host(Owned::new(&world.ledger, vec![0; BYTES]), stream);
            world.transfer(ignored);
        }
        world.note(stream.synchronize());
    }
}

/// Bytes of the caller's stack, there and back.
fn round_trip(world: &World, buffer: &Buffer, stream: &Stream) {
    let mut bytes = [0; BYTES];
    let there = world.transfer(buffer.copy_from_slice(&[7; BYTES], stream));
    let back = world.transfer(buffer.copy_to_slice(&mut bytes, stream));
    if there.is_some() && back.is_some() {
        assert_bytes(world, &bytes, 7);
    }
}

/// From a device to the next one, behind a record.
fn across(world: &World, device: Device) {
    let next = world.devices[(device.index() + 1) % world.devices.len()];
    let pairs = [device, next].map(|device| {
        let buffer = world.note(world.runtime.empty(BYTES, device))?;
        Some((buffer, world.stream(device)?))
    });
    let [Some((source, first)), Some((target, second))] = pairs else { return };
    let filled = world.transfer(source.fill(5, &first));
    world.note(second.wait_stream(&first));
    let copied = world.transfer(target.copy_from(&source, &second));
    drop(source); // freed behind the copy
    let mut bytes = [0; BYTES];
    let back = world.transfer(target.copy_to_slice(&mut bytes, &second));
    if filled.is_some() && copied.is_some() && back.is_some() {
        assert_bytes(world, &bytes, 5);
    }
}

/// A copy that succeeded has moved the bytes; where there are none there is nothing to see.
#[track_caller]
fn assert_bytes(world: &World, bytes: &[u8], expected: u8) {
    let is_right = !world.has_bytes() || bytes.iter().all(|byte| *byte == expected);
    assert!(is_right, "bytes that are not {expected} after a copy that succeeded");
}
