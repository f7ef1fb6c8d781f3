//! Programs and kernels: compiled, launched and dropped while their launches are queued.
#![expect(unsafe_code, reason = "launches kernels")]

use accelrt::{Device, DriverError, Error, Kernel, Program, ProgramSource, Stream};

use crate::world::World;

const TEXT: &str = "
kernel void scale(global float* values, float by) { values[get_global_id(0)] *= by; }
kernel void clear(global float* values) { values[get_global_id(0)] = 0; }
";

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        let Some(program) = compile(world, *device) else { continue };
        let names = world.note(program.kernel_names());
        assert!(names.is_none_or(|names| names == ["scale", "clear"]));
        let kernels = ["scale", "clear"].map(|name| world.note(program.kernel(name)));
        drop(program); // the kernels keep it
        for stream in world.streams(*device, 2) {
            if let [Some(scale), Some(clear)] = &kernels {
                launches(world, &stream, scale, clear);
            }
            world.note(stream.synchronize());
        }
        if let ([Some(scale), _], Some(stream)) = (kernels, world.stream(*device)) {
            launch(world, &stream, &scale);
        } // the kernel goes while its launch may be queued
    }
}

/// A kind without a compiler says so, unless something fails first.
fn compile(world: &World, device: Device) -> Option<Program> {
    match world.runtime.compile(device, ProgramSource::Text(TEXT), "") {
        Err(Error::Driver(DriverError::Unsupported { .. })) => None,
        outcome => world.note(outcome),
    }
}

fn launches(world: &World, stream: &Stream, scale: &Kernel, clear: &Kernel) {
    world.task(stream);
    launch(world, stream, scale);
    if let Some(buffer) = world.note(world.runtime.empty(64, stream.device())) {
        // SAFETY: 16 floats are what the buffer has.
        let launched = unsafe { stream.launch_kernel(clear, &[(&buffer).into()], &[16], None) };
        world.transfer(launched);
    }
    world.task(stream);
}

fn launch(world: &World, stream: &Stream, scale: &Kernel) {
    let Some(buffer) = world.note(world.runtime.empty(64, stream.device())) else { return };
    let arguments = [(&buffer).into(), 2.0_f32.into()];
    // SAFETY: 16 floats are what the buffer has.
    let launched = unsafe { stream.launch_kernel(scale, &arguments, &[16], Some(&[4])) };
    world.transfer(launched);
}
