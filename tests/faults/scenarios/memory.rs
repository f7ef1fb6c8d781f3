//! Memory: buffers that are used, released and dropped while streams still use them; shortage.

use accelrt::backend::contract::{Address, Backend};
use accelrt::{Buffer, Device, Error, MemoryError};

use crate::world::{CAPACITY_BYTES, World};

/// More than half of a device: the next of this size has to wait for the one before.
const LARGE_BYTES: usize = CAPACITY_BYTES / 4 * 3;

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        used(world, *device);
        shared(world, *device);
        short(world, *device);
    }
    pinned(world);
    for device in &world.devices {
        world.note(world.runtime.synchronize(*device));
    }
}

/// Buffers with uses on their home stream and on others.
fn used(world: &World, device: Device) {
    let streams = world.streams(device, 2);
    for bytes in [1, 700, 0] {
        let Some(buffer) = world.note(world.runtime.empty(bytes, device)) else { continue };
        for stream in &streams {
            world.transfer(buffer.fill(1, stream));
            world.task(stream);
            world.note(buffer.record_use(stream));
        }
        owner(world, &buffer);
        let export = world.note(buffer.export());
        world.note(buffer.wait_for_host());
        drop(export);
        let Some(view) = world.note(buffer.slice(..bytes / 2)) else { continue };
        match streams.first() {
            Some(stream) if bytes > 1 => drop(world.transfer(view.fill(2, stream))),
            _ => world.note(buffer.release()).unwrap_or_default(),
        }
    }
    let zeros = world.note(world.runtime.zeros(100, device));
    world.transfer(Ok(())); // the fill of it, if it was made
    zeros.and_then(|zeros| world.note(zeros.wait_for_host()));
}

/// Asks the backend whose memory it is, which nothing above it does yet.
fn owner(world: &World, buffer: &Buffer) {
    let address = world.note(buffer.address()).filter(|address| *address != 0);
    let Some(address) = address else { return };
    if let Some(owner) = world.note(world.backend().pointer_owner(Address(address))) {
        let owner = owner.expect("the memory is the backend's");
        let (base, end) = (owner.base.0, owner.base.0 + owner.bytes as u64);
        let inside = base <= address && address + buffer.nbytes() as u64 <= end;
        assert!(inside, "{address:#x} in {owner:?}");
    }
}

/// Takes most of a device again and again: what other streams still use is waited for.
fn short(world: &World, device: Device) {
    let streams = world.streams(device, 1);
    for _ in 0..3 {
        let Some(buffer) = world.note(world.runtime.empty(LARGE_BYTES, device)) else { continue };
        let Some(slice) = world.note(buffer.slice(..64)) else { continue };
        for stream in &streams {
            world.transfer(slice.fill(3, stream));
        }
    }
    match world.runtime.empty(2 * CAPACITY_BYTES, device) {
        Err(Error::Memory(MemoryError::OutOfMemory { .. })) => {}
        outcome => assert!(world.note(outcome).is_none(), "more than there is"),
    }
}

/// Memory that the host reaches as well: used by streams, read where there are addresses to follow,
/// and given back when the device is short of it.
fn shared(world: &World, device: Device) {
    for bytes in [700, LARGE_BYTES] {
        let made = world.note(world.runtime.empty_shared(bytes, device));
        let Some(buffer) = made else { continue };
        let Some(part) = world.note(buffer.slice(..700)) else { continue };
        world.transfer(part.fill(6, &buffer.stream()));
        owner(world, &buffer);
        if buffer.is_host_accessible() {
            let found = world.note(part.read_to_vec());
            assert!(found.is_none_or(|found| found == [6; 700]), "what the device wrote");
        }
    }
    drop(world.note(world.runtime.empty(LARGE_BYTES, device)));
}

/// Host memory that a device reaches.
fn pinned(world: &World) {
    let Some(home) = world.note(world.runtime.current_stream()) else { return };
    for bytes in [700, 64] {
        let Some(buffer) = world.note(world.runtime.empty_pinned(bytes)) else { continue };
        world.transfer(buffer.fill(4, &home));
        owner(world, &buffer);
        world.note(buffer.wait_for_host());
        world.transfer(buffer.fill(5, &home));
    }
    // What nobody uses goes back to the driver here, where that may fail.
    world.note(home.synchronize());
    if let Some(allocator) = world.note(world.runtime.pinned_allocator(home.device())) {
        allocator.empty_cache();
    }
}
