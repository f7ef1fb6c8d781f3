//! Cached data for random fills of each device: the core count on host kinds, kernels on others.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use accelrt::backend::contract::Backend;
use accelrt::internal::{LockRank, Mutex, UseOrder};
use accelrt::{
    Buffer, Device, DriverError, Error, Kernel, Program, ProgramError, ProgramSource, Result,
    Stream,
};

use crate::normal::{COS_32, COS_64, LOG_32, LOG_64, SIN_32, SIN_64};
use crate::values::{BLOCK_BYTES, Values};

/// The number of work-items is a multiple of this number, so that the driver finds a group size
/// that divides it. Work-items after the last block do nothing.
const ITEMS_MULTIPLE: usize = 64;

#[derive(Debug)]
pub(crate) struct FillCaches {
    pub(crate) runtime: u64,
    of_devices: Mutex<BTreeMap<Device, Arc<FillCache>>>,
}

impl FillCaches {
    pub(crate) fn new(runtime: u64) -> Arc<Self> {
        let of_devices = Mutex::new(LockRank::Generators, BTreeMap::new());
        Arc::new(Self { runtime, of_devices })
    }

    pub(crate) fn of(&self, device: Device) -> Arc<FillCache> {
        Arc::clone(self.of_devices.lock().entry(device).or_default())
    }
}

#[derive(Debug, Default)]
pub(crate) struct FillCache {
    core_count: OnceLock<u16>,
    program: OnceLock<Program>,
    kernels: [OnceLock<Kernel>; 6],
}

impl FillCache {
    pub(crate) fn core_count(&self, stream: &Stream) -> Result<u16> {
        if let Some(count) = self.core_count.get() {
            return Ok(*count);
        }
        let properties = stream.core().backend.properties(stream.device().index())?;
        let count = u16::try_from(properties.core_count).unwrap_or(u16::MAX);
        Ok(*self.core_count.get_or_init(|| count))
    }

    /// The kernel that writes `values`. The first call on a device blocks while it compiles the
    /// program. Concurrent first calls may each compile; the cache retains one result.
    pub(crate) fn kernel(&self, values: Values, stream: &Stream) -> Result<&Kernel> {
        let (place, name) = (&self.kernels[values as usize], NAMES[values as usize]);
        if let Some(kernel) = place.get() {
            return Ok(kernel);
        }
        let (backend, device) = (&stream.core().backend, stream.device());
        let program = if let Some(program) = self.program.get() {
            program
        } else {
            let program = compile(backend, device)?;
            self.program.get_or_init(|| program)
        };
        let kernel = program.kernel(name).map_err(|error| match error {
            // The program omits the float64 kernels where the device does not support the type.
            Error::Program(ProgramError::NoSuchKernel { .. }) => {
                let capability = "random float64 numbers: this one has no double precision";
                Error::Driver(DriverError::Unsupported { kind: device.kind(), capability })
            }
            other => other,
        })?;
        Ok(place.get_or_init(|| kernel))
    }
}

fn compile(backend: &Arc<dyn Backend>, device: Device) -> Result<Program> {
    if backend.kernels().is_none() {
        let capability = "random numbers: they have neither tasks on the host nor programs";
        return Err(Error::Driver(DriverError::Unsupported { kind: device.kind(), capability }));
    }
    Program::compile(backend, device, ProgramSource::Text(&source()), "")
}

/// Kernel names, in the order of [`Values`].
const NAMES: [&str; 6] = [
    "raw_uint32",
    "raw_uint64",
    "uniform_float32",
    "uniform_float64",
    "normal_float32",
    "normal_float64",
];

/// Returns the program's OpenCL C text, with enough digits for coefficients to parse exactly.
fn source() -> String {
    let mut text = String::new();
    let mut define = |name, numbers: Vec<String>| {
        let _ = writeln!(text, "#define {name} {{{}}}", numbers.join(", "));
    };
    for (name, numbers) in [("LOG_32", &LOG_32[..]), ("SIN_32", &SIN_32), ("COS_32", &COS_32)] {
        define(name, numbers.iter().map(|it| format!("{it:e}f")).collect());
    }
    for (name, numbers) in [("LOG_64", &LOG_64[..]), ("SIN_64", &SIN_64), ("COS_64", &COS_64)] {
        define(name, numbers.iter().map(|it| format!("{it:e}")).collect());
    }
    let _ = writeln!(text, "#define LN_2_32 {:e}f", std::f32::consts::LN_2);
    let _ = writeln!(text, "#define LN_2_64 {:e}", std::f64::consts::LN_2);
    text + include_str!("fill.cl")
}

/// Enqueues the kernel that fills a whole buffer. The buffer must not be empty, and its size and
/// address must be multiples of `item_bytes`.
pub(crate) fn launch(
    kernel: &Kernel,
    (seed, first_block): (u64, u64),
    (buffer, item_bytes): (&Buffer, usize),
    stream: &Stream,
    order: UseOrder,
) -> Result<()> {
    let count = (buffer.nbytes() / item_bytes) as u64;
    let items = buffer.nbytes().div_ceil(BLOCK_BYTES).next_multiple_of(ITEMS_MULTIPLE);
    let arguments = [buffer.into(), seed.into(), first_block.into(), count.into()];
    let task = stream.kernel_task(kernel, &arguments, &[items], None)?;
    buffer.overwrite(stream, order, |_| task).map(drop)
}
