//! Random numbers: fills on several streams by one generator, which uses words for what it took on.

use std::sync::atomic::Ordering;

use accelrt::{Buffer, Device, DriverError, Error, ProgramError, Result, Stream};
use accelrt_random::{FloatType, Generator, RawType, RuntimeExt};

use accelrt_testing::fault::Method;

use crate::scenarios::Scenario;
use crate::world::World;

const SEED: u64 = 0x5eed;
const BYTES: usize = 1_000;

/// Words of the sequence that a fill of [`BYTES`] uses: whole blocks of 16 bytes have four.
const WORDS: u64 = 4 * BYTES.div_ceil(16) as u64;

/// The kernels of fills are kept until the end of the runtime.
pub(crate) const SCENARIOS: [Scenario; 1] = [Scenario {
    kept_until: &[Method::KernelsKernelRelease, Method::KernelsProgramRelease],
    ..Scenario::new("random fills", run)
}];

type Fill = fn(&Generator, &Buffer, &Stream) -> Result<()>;

fn run(world: &World) {
    for device in &world.devices {
        let Some(generator) = world.note(world.runtime.generator(*device)) else { continue };
        world.note(generator.manual_seed(SEED)).expect("a generator needs no backend");
        for stream in world.streams(*device, 2) {
            fills(world, &generator, &stream);
            world.note(stream.synchronize());
        }
        repeated(world, *device);
    }
}

/// One fill of each sort, none of which waits for the one before.
fn fills(world: &World, generator: &Generator, stream: &Stream) {
    let raw: Fill = |generator, buffer, stream| generator.fill_raw(buffer, RawType::Uint32, stream);
    let uniform: Fill =
        |generator, buffer, stream| generator.fill_uniform(buffer, FloatType::Float32, stream);
    let normal: Fill =
        |generator, buffer, stream| generator.fill_normal(buffer, FloatType::Float32, stream);
    for fill in [raw, uniform, normal] {
        let made = world.runtime.empty(BYTES, stream.device());
        if let Some(buffer) = world.note(made) {
            filled(world, generator, || fill(generator, &buffer, stream));
        } // the buffer goes while its fill may be queued
    }
}

/// A fill that was refused has used nothing, any other what it was to write.
fn filled(world: &World, generator: &Generator, fill: impl FnOnce() -> Result<()>) -> bool {
    let offset = || generator.offset().expect("a generator needs no backend");
    let before = offset();
    let is_taken = match fill() {
        Err(Error::Driver(DriverError::Unsupported { .. })) => false,
        Err(Error::Program(ProgramError::BuildFailed { .. })) => {
            world.machines[0].refused_programs.fetch_add(1, Ordering::Relaxed);
            false
        }
        outcome => world.transfer(outcome).is_some(),
    };
    assert_eq!(offset() - before, if is_taken { WORDS } else { 0 }, "words used by a fill");
    is_taken
}

/// The same seed makes the same numbers, whatever failed before.
fn repeated(world: &World, device: Device) {
    let Some(stream) = world.stream(device) else { return };
    let generators = [(); 2].map(|()| world.note(world.runtime.generator(device)));
    let [Some(first), Some(second)] = generators else { return };
    let made = [&first, &second].map(|generator| {
        world.note(generator.manual_seed(SEED))?;
        let buffer = world.note(world.runtime.empty(BYTES, device))?;
        let fill = || generator.fill_raw(&buffer, RawType::Uint64, &stream);
        if !filled(world, generator, fill) {
            return None;
        }
        let mut bytes = [0; BYTES];
        world.transfer(buffer.copy_to_slice(&mut bytes, &stream))?;
        Some(bytes)
    });
    if let [Some(first), Some(second)] = made {
        assert_eq!(first, second, "numbers of one seed");
        let is_written = !world.has_bytes() || first.iter().any(|byte| *byte != 0);
        assert!(is_written, "numbers that were never written");
    }
}
