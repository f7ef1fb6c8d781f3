//! Generators of random numbers: seeds, offsets, fills of buffers.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::mem::MaybeUninit;

use accelrt_random::{FloatType, Generator, RawType, RuntimeExt};

use crate::arguments::place;
use crate::buffer::{CBuffer, buffer_of};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::last_error::guard;
use crate::runtime::{kind_of, runtime};
use crate::status::{Outcome, Refused, Status};
use crate::stream::{CStream, stream_of};

/// A generator of random numbers. A handle is a number in a pointer's clothes.
pub struct CGenerator {
    _private: [u8; 0],
}

static GENERATORS: Slots<Generator> = Slots::new(7, "generator", None);

fn generator_of(handle: *mut CGenerator) -> Outcome<&'static Generator> {
    GENERATORS.get(of_pointer(handle))
}

/// Integers of 32 bits, each of them random.
pub const RANDOM_UINT32: i32 = 0;
/// Integers of 64 bits, each of them random.
pub const RANDOM_UINT64: i32 = 1;
/// `float`s from 0 on and below 1.
pub const RANDOM_UNIFORM_FLOAT: i32 = 2;
/// `double`s from 0 on and below 1.
pub const RANDOM_UNIFORM_DOUBLE: i32 = 3;
/// `float`s of mean 0 and variance 1.
pub const RANDOM_NORMAL_FLOAT: i32 = 4;
/// `double`s of mean 0 and variance 1.
pub const RANDOM_NORMAL_DOUBLE: i32 = 5;

/// Creates a generator for buffers of a device's kind: Philox 4x32-10, whose numbers are the same
/// bits on every kind, with the seed 67280421310721. Initialises no device.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_create(
    device: CDevice,
    generator: Option<&mut MaybeUninit<*mut CGenerator>>,
) -> Status {
    guard(|| {
        let to = place(generator, "generator")?;
        let created = runtime()?.generator(device.device()?)?;
        to.write(to_pointer(GENERATORS.insert(created)?));
        Ok(())
    })
}

/// Returns a handle of the device's default generator, which all threads and languages share.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_get_default(
    device: CDevice,
    generator: Option<&mut MaybeUninit<*mut CGenerator>>,
) -> Status {
    guard(|| {
        let to = place(generator, "generator")?;
        let shared = runtime()?.default_generator(device.device()?)?;
        to.write(to_pointer(GENERATORS.insert(shared)?));
        Ok(())
    })
}

/// Returns a generator with the same seed and offset, which goes on for itself.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_clone(
    generator: *mut CGenerator,
    clone: Option<&mut MaybeUninit<*mut CGenerator>>,
) -> Status {
    guard(|| {
        let to = place(clone, "clone")?;
        let made = generator_of(generator)?.clone_state()?;
        to.write(to_pointer(GENERATORS.insert(made)?));
        Ok(())
    })
}

/// Makes the handle stale. Fills that were enqueued stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_destroy(generator: *mut CGenerator) -> Status {
    guard(|| GENERATORS.remove(of_pointer(generator)).map(drop))
}

/// Sets the seed, and the offset to 0.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_set_seed(generator: *mut CGenerator, seed: u64) -> Status {
    guard(|| Ok(generator_of(generator)?.manual_seed(seed)?))
}

/// Writes the seed that was set last.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_get_seed(
    generator: *mut CGenerator,
    seed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(seed, "seed")?;
        to.write(generator_of(generator)?.initial_seed()?);
        Ok(())
    })
}

/// Sets an unpredictable seed, and the offset to 0. Writes the seed unless `seed` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_seed_randomly(
    generator: *mut CGenerator,
    seed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let chosen = generator_of(generator)?.seed()?;
        if let Some(to) = seed {
            to.write(chosen);
        }
        Ok(())
    })
}

/// Sets how many words of 32 bits of the sequence are used.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a number that is no multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_set_offset(generator: *mut CGenerator, offset: u64) -> Status {
    guard(|| Ok(generator_of(generator)?.set_offset(offset)?))
}

/// Writes how many words of 32 bits of the sequence are used, a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_get_offset(
    generator: *mut CGenerator,
    offset: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(offset, "offset")?;
        to.write(generator_of(generator)?.offset()?);
        Ok(())
    })
}

/// Reserves `words` words of 32 bits of the sequence, rounded up to a multiple of 4, for kernels or
/// functions that make numbers themselves: writes the seed and the offset of the first word, each
/// unless its place is NULL. No other fill gets these words, and a seed that is set later does not
/// change what was reserved.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT`, without a change, when the offset would exceed
/// 2^64 - 4.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_reserve(
    generator: *mut CGenerator,
    words: u64,
    seed: Option<&mut MaybeUninit<u64>>,
    offset: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let (known, first) = generator_of(generator)?.take(words.div_ceil(4))?;
        if let Some(to) = seed {
            to.write(known);
        }
        if let Some(to) = offset {
            to.write(first * 4); // at most the offset
        }
        Ok(())
    })
}

/// Sets the seed of the default generators of all devices of a kind, also of those that are used
/// later. Initialises no device.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_set_seed_of_all(kind: i32, seed: u64) -> Status {
    guard(|| Ok(runtime()?.manual_seed_all(kind_of(kind)?, seed)?))
}

/// Fills a buffer with random numbers, on `stream`: `numbers` is one of `ACCELRT_RANDOM_UINT32` to
/// `ACCELRT_RANDOM_NORMAL_DOUBLE`. Takes 4 words of the sequence for every 16 bytes at the call. Is
/// ordered and blocks as `accelrt_buffer_fill`; the first fill on a device of a driver compiles a
/// program.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when generator, buffer and stream do not fit, or
/// size and address of the buffer are no multiples of a number's size, or the offset would exceed
/// 2^64 - 4, and with `ACCELRT_STATUS_UNSUPPORTED` on a device without such numbers.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_generator_fill(
    generator: *mut CGenerator,
    buffer: *mut CBuffer,
    numbers: i32,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (generator, buffer) = (generator_of(generator)?.clone(), buffer_of(buffer)?.clone());
        let (buffer, stream) = (&buffer, &stream_of(stream)?.clone());
        match numbers {
            RANDOM_UINT32 => generator.fill_raw(buffer, RawType::Uint32, stream)?,
            RANDOM_UINT64 => generator.fill_raw(buffer, RawType::Uint64, stream)?,
            RANDOM_UNIFORM_FLOAT => generator.fill_uniform(buffer, FloatType::Float32, stream)?,
            RANDOM_UNIFORM_DOUBLE => generator.fill_uniform(buffer, FloatType::Float64, stream)?,
            RANDOM_NORMAL_FLOAT => generator.fill_normal(buffer, FloatType::Float32, stream)?,
            RANDOM_NORMAL_DOUBLE => generator.fill_normal(buffer, FloatType::Float64, stream)?,
            other => return Err(Refused::argument(format!("There are no numbers {other}"))),
        }
        Ok(())
    })
}
