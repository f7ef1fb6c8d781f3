//! Virtual memory, through the backend: how pages move when nothing chooses which.
//!
//! What a refusal left is undone as an allocator would.

use accelrt::Device;
use accelrt::backend::contract::{Address, Backend, PhysicalHandle, VirtualMemory};

use crate::world::World;
use accelrt_testing::trusted::TrustedPages;

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        for _ in 0..2 {
            ranges(world, *device);
        }
    }
}

/// A range with two pages in it; one of them moves to the third place.
fn ranges(world: &World, device: Device) {
    let backend = world.backend();
    let Some(pages) = backend.virtual_memory(device.index()) else { return };
    let pages = TrustedPages(pages);
    let granule = pages.granularity_bytes();
    let before = free_bytes(world, device);
    if let Some(range) = world.note(pages.reserve(3 * granule)) {
        let physical: Vec<_> = (0..2).filter_map(|_| world.note(pages.create(granule))).collect();
        let place = |index: usize| range.offset(index * granule);
        for (index, page) in physical.iter().enumerate() {
            map_and_move(world, pages, *page, place(index), place(2));
        }
        for page in physical {
            world.note(pages.release(page));
        }
        world.note(pages.unreserve(range, 3 * granule));
    }
    assert_eq!(free_bytes(world, device), before, "all is back");
}

fn map_and_move(
    world: &World,
    pages: TrustedPages<&dyn VirtualMemory>,
    page: PhysicalHandle,
    to: Address,
    then: Address,
) {
    if world.note(pages.map(to, page)).is_some() {
        // A refused move leaves the page where it is; a refused unmapping was done.
        world.note(pages.relocate(page, then));
        world.note(pages.unmap(page));
    }
}

/// Asked past the fault layer: the scenario's own question.
fn free_bytes(world: &World, device: Device) -> usize {
    world.backend().inner().memory_info(device.index()).expect("it exists").free_bytes
}
