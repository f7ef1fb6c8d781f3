//! Random numbers and kernels: generators, programs and their launches.
#![expect(unsafe_code, reason = "exports functions by name, and launches what the caller compiled")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use accelrt::{Argument, Buffer, Kernel, KernelArgument, ParameterClass, Program, ProgramSource};
use accelrt_random::{FloatType, Generator, RawType, RuntimeExt};

use crate::arguments::{array, place, text, write_text};
use crate::buffer::{CBuffer, buffer_of};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::launch::writes_of;
use crate::runtime::{kind_of, runtime};
use crate::status::{Outcome, Refused, Status, guard};
use crate::stream::{CStream, stream_of};

// Generators of random numbers: seeds, offsets, fills of buffers.

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

// Programs: kernels that a device's compiler makes, and their launches.

/// Kernels compiled for a device. A handle is a number in a pointer's clothes.
pub struct CProgram {
    _private: [u8; 0],
}

/// One function of a program. A handle is a number in a pointer's clothes.
pub struct CKernel {
    _private: [u8; 0],
}

static PROGRAMS: Slots<Program> = Slots::new(8, "program", None);
static KERNELS: Slots<Kernel> = Slots::new(9, "kernel", None);

/// An argument is a buffer, `buffer`.
pub const ARGUMENT_BUFFER: i32 = 0;
/// An argument is a number or a struct, of `bytes` bytes at `value`, or an address on the device.
pub const ARGUMENT_VALUE: i32 = 1;
/// An argument is local memory: `bytes` bytes of each work-group.
pub const ARGUMENT_LOCAL: i32 = 2;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CKernelArgument {
    /// `ACCELRT_ARGUMENT_BUFFER`, `ACCELRT_ARGUMENT_VALUE` or `ACCELRT_ARGUMENT_LOCAL`.
    pub kind: i32,
    /// How the kernel uses the buffer: `ACCELRT_READS`, `ACCELRT_WRITES`, or 0 when that is not
    /// known.
    pub access: u32,
    /// The buffer, which the launch records as used; else NULL.
    pub buffer: *mut CBuffer,
    /// The value, which the launch copies; else NULL.
    pub value: *const c_void,
    /// The bytes of the value, or of local memory.
    pub bytes: usize,
}

/// Compiles a program for a device: `source` has `bytes` bytes, of text in the language of the
/// kind's compiler (OpenCL C on xpu), or with `is_binary` of its intermediate language (SPIR-V).
/// `options` are the compiler's; NULL for none. Blocks, and initialises the device.
///
/// Fails with `ACCELRT_STATUS_BUILD_FAILED`, whose text has the compiler's log, and with
/// `ACCELRT_STATUS_UNSUPPORTED` on kinds without a compiler, as cpu.
///
/// # Safety
/// `source` has `bytes` bytes, and `options` is NULL or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_program_compile(
    device: CDevice,
    source: *const c_void,
    bytes: usize,
    is_binary: i32,
    options: *const c_char,
    program: Option<&mut MaybeUninit<*mut CProgram>>,
) -> Status {
    guard(|| {
        let to = place(program, "program")?;
        // SAFETY: the caller passes as many bytes.
        let source = unsafe { array(source.cast::<u8>(), bytes, "source") }?;
        let options = if options.is_null() {
            ""
        } else {
            // SAFETY: the caller passes a text that ends with a zero.
            unsafe { text(options, "options") }?
        };
        let source = if is_binary == 0 {
            let text = std::str::from_utf8(source);
            ProgramSource::Text(text.map_err(|_| Refused::argument("The source is not UTF-8"))?)
        } else {
            ProgramSource::Binary(source)
        };
        let compiled = runtime()?.compile(device.device()?, source, options)?;
        to.write(to_pointer(PROGRAMS.insert(compiled)?));
        Ok(())
    })
}

/// Makes the handle stale. Its kernels stay.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_program_destroy(program: *mut CProgram) -> Status {
    guard(|| PROGRAMS.remove(of_pointer(program)).map(drop))
}

/// Writes the names of a program's kernels, with commas between them. `text`, `capacity` and
/// `length` are as in `accelrt_device_get_name`.
///
/// # Safety
/// `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_program_get_names(
    program: *mut CProgram,
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let names = PROGRAMS.get(of_pointer(program))?.kernel_names()?.join(",");
        // SAFETY: the caller passes room for `capacity` bytes.
        unsafe { write_text(&names, text, capacity, length) }
    })
}

/// Returns a kernel of a program by its name.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `name` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_program_get_kernel(
    program: *mut CProgram,
    name: *const c_char,
    kernel: Option<&mut MaybeUninit<*mut CKernel>>,
) -> Status {
    guard(|| {
        let to = place(kernel, "kernel")?;
        let program = PROGRAMS.get(of_pointer(program))?;
        // SAFETY: the caller passes a text that ends with a zero.
        let found = program.kernel(unsafe { text(name, "name") }?)?;
        to.write(to_pointer(KERNELS.insert(found)?));
        Ok(())
    })
}

/// Makes the handle stale. Launches that were enqueued stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_kernel_destroy(kernel: *mut CKernel) -> Status {
    guard(|| KERNELS.remove(of_pointer(kernel)).map(drop))
}

/// Writes how many arguments a kernel takes.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_kernel_get_argument_count(
    kernel: *mut CKernel,
    count: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let to = place(count, "count")?;
        to.write(KERNELS.get(of_pointer(kernel))?.parameters().len());
        Ok(())
    })
}

/// Enqueues a kernel of `global[0]` times … `global[dimensions - 1]` work-items, in work-groups of
/// the sizes `local`, or with NULL of those that the driver chooses. There are 1 to 3 dimensions.
/// The buffers among the `argument_count` arguments may be destroyed at once. Ordered by the stream
/// alone; blocks only as `accelrt_stream_launch`.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when an argument does not fit the kernel's
/// parameter, a size is not allowed or the kernel is of another device. A launch that the driver
/// refuses fails the stream.
///
/// # Safety
/// With so many work-items the kernel accesses only the memory of its buffers and of addresses
/// among its values, which stay and are ordered. `arguments`, `global` and `local` have as many
/// elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_launch_kernel(
    stream: *mut CStream,
    kernel: *mut CKernel,
    arguments: *const CKernelArgument,
    argument_count: usize,
    dimensions: usize,
    global: *const usize,
    local: *const usize,
) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (stream, kernel) =
            (stream_of(stream)?.clone(), KERNELS.get(of_pointer(kernel))?.clone());
        // SAFETY: the caller passes as many arguments.
        let given = unsafe { array(arguments, argument_count, "arguments") }?;
        if dimensions > 3 {
            return Err(Refused::argument(format!("There are no {dimensions} dimensions")));
        }
        // SAFETY: the caller passes a size for each dimension.
        let global = unsafe { array(global, dimensions, "global") }?;
        let local = if local.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { array(local, dimensions, "local") }?)
        };
        let classes = kernel.parameters().iter().map(|parameter| parameter.class);
        let classes = classes.chain(std::iter::repeat(ParameterClass::Unknown));
        let mut converted = Vec::with_capacity(given.len());
        let mut writes = Vec::with_capacity(given.len());
        let buffers: Vec<Option<Buffer>> =
            given.iter().map(CKernelArgument::buffer).collect::<Outcome<_>>()?;
        for ((argument, buffer), class) in given.iter().zip(&buffers).zip(classes) {
            // SAFETY: the caller passes values of as many bytes as it says.
            converted.push(unsafe { argument.convert(class, buffer.as_ref()) }?);
            writes.push(writes_of(argument.access)?);
        }
        // SAFETY: the caller says that the kernel's accesses are sound, and how it uses buffers.
        unsafe {
            stream.launch_kernel_with_uses(&kernel, &converted, (global, local), &writes)?;
        }
        Ok(())
    })
}

impl CKernelArgument {
    fn buffer(&self) -> Outcome<Option<Buffer>> {
        let is_buffer = self.kind == ARGUMENT_BUFFER;
        is_buffer.then(|| Ok(buffer_of(self.buffer)?.clone())).transpose()
    }

    /// # Safety
    /// The value has as many bytes as the argument says, which do not change meanwhile.
    unsafe fn convert<'a>(
        &self,
        class: ParameterClass,
        buffer: Option<&'a Buffer>,
    ) -> Outcome<KernelArgument<'a>> {
        if let Some(buffer) = buffer {
            return Ok(KernelArgument::Buffer(buffer));
        }
        match self.kind {
            ARGUMENT_LOCAL => Ok(KernelArgument::Local(self.bytes)),
            ARGUMENT_VALUE => {
                // SAFETY: the caller promises as many bytes.
                let bytes = unsafe { array(self.value.cast::<u8>(), self.bytes, "value") }?;
                Ok(number(class, bytes).map_or(KernelArgument::Bytes(bytes), KernelArgument::Value))
            }
            other => Err(Refused::argument(format!("There is no argument of kind {other}"))),
        }
    }
}

/// The bytes of a value as a number of the parameter's class; `None` where they are none.
fn number(class: ParameterClass, bytes: &[u8]) -> Option<Argument> {
    use ParameterClass::{Float, Pointer, Signed, Unsigned};
    macro_rules! read {
        ($type:ty, $variant:ident) => {
            bytes.try_into().ok().map(<$type>::from_ne_bytes).map(Argument::$variant)
        };
    }
    match class {
        Signed(1) => read!(i8, I8),
        Signed(2) => read!(i16, I16),
        Signed(4) => read!(i32, I32),
        Signed(8) => read!(i64, I64),
        Unsigned(1) => read!(u8, U8),
        Unsigned(2) => read!(u16, U16),
        Unsigned(4) => read!(u32, U32),
        Unsigned(8) => read!(u64, U64),
        Float(4) => read!(f32, F32),
        Float(8) => read!(f64, F64),
        Pointer => {
            let address = bytes.try_into().ok().map(usize::from_ne_bytes)?;
            Some(Argument::Pointer(std::ptr::with_exposed_provenance_mut(address)))
        }
        _ => None,
    }
}
