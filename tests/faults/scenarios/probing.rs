//! Probing: what exists, what is current, how much is free; before and after the first use.

use accelrt::DeviceGuard;

use crate::world::World;

pub(crate) fn run(world: &World) {
    for _ in 0..2 {
        let runtime = &world.runtime;
        let Some(kind) = world.note(runtime.accelerator()) else { continue };
        let count = world.note(runtime.device_count(kind));
        assert!(count.is_none_or(|count| count == world.devices.len()), "{count:?} devices");
        for device in &world.devices {
            world.note(runtime.properties(*device));
            world.note(runtime.memory_info(*device));
            world.note(runtime.priority_range(*device));
            let guard = world.note(DeviceGuard::new(runtime, *device));
            let current = world.note(runtime.current_device());
            assert!(guard.is_none() || current == Some(*device), "{current:?} is current");
            world.note(runtime.current_stream());
        }
        let current = world.note(runtime.current_device());
        assert!(current.is_none_or(|device| device.index() == 0), "the guards are gone");
    }
}
