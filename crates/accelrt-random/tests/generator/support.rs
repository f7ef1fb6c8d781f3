//! What the tests share: a cpu of several cores, every kind of numbers, and their bytes.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Buffer, Config, Device, Result, Runtime, Stream};
use accelrt_random::{FloatType, Generator, RawType, RuntimeExt};
use accelrt_testing::fault::FaultBackend;

pub(crate) const CPU: Device = Device::cpu(0);

/// One of the fills.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Raw(RawType),
    Uniform(FloatType),
    Normal(FloatType),
}

impl Fill {
    pub(crate) const ALL: [Self; 6] = [
        Self::Raw(RawType::Uint32),
        Self::Raw(RawType::Uint64),
        Self::Uniform(FloatType::Float32),
        Self::Uniform(FloatType::Float64),
        Self::Normal(FloatType::Float32),
        Self::Normal(FloatType::Float64),
    ];

    pub(crate) fn item_bytes(self) -> usize {
        match self {
            Self::Raw(RawType::Uint32)
            | Self::Uniform(FloatType::Float32)
            | Self::Normal(FloatType::Float32) => 4,
            _ => 8,
        }
    }

    pub(crate) fn into(
        self,
        generator: &Generator,
        buffer: &Buffer,
        stream: &Stream,
    ) -> Result<()> {
        match self {
            Self::Raw(dtype) => generator.fill_raw(buffer, dtype, stream),
            Self::Uniform(dtype) => generator.fill_uniform(buffer, dtype, stream),
            Self::Normal(dtype) => generator.fill_normal(buffer, dtype, stream),
        }
    }
}

/// A runtime of one kind, whose backend counts calls.
pub(crate) struct Machine {
    pub(crate) runtime: Runtime,
    pub(crate) backend: Arc<FaultBackend>,
    pub(crate) device: Device,
}

impl Machine {
    pub(crate) fn new(config: Config, backend: Arc<dyn Backend>) -> Self {
        let backend = FaultBackend::new(backend);
        let device = Device::new(backend.kind(), 0).unwrap();
        let wrapped: [Arc<dyn Backend>; 1] = [Arc::<FaultBackend>::clone(&backend)];
        Self { runtime: Runtime::with_backends(config, wrapped).unwrap(), backend, device }
    }

    /// The cpu, with as many workers.
    pub(crate) fn cpu(workers: usize) -> Self {
        let config = Config::builder().cpu_threads(workers).build().unwrap();
        let backend = accelrt::backend::cpu::CpuBackend::new(&config).unwrap();
        Self::new(config, backend)
    }

    pub(crate) fn stream(&self) -> Stream {
        self.runtime.default_stream(self.device).unwrap()
    }

    /// A generator that is somewhere in a sequence.
    pub(crate) fn generator(&self, seed: u64, offset: u64) -> Generator {
        let generator = self.runtime.generator(self.device).unwrap();
        generator.manual_seed(seed).unwrap();
        generator.set_offset(offset).unwrap();
        generator
    }

    /// The bytes of a fill of so many.
    pub(crate) fn filled(&self, fill: Fill, generator: &Generator, bytes: usize) -> Vec<u8> {
        let (stream, buffer) = (self.stream(), self.runtime.empty(bytes, self.device).unwrap());
        fill.into(generator, &buffer, &stream).unwrap();
        let mut read = vec![0; bytes];
        buffer.copy_to_slice(&mut read, &stream).unwrap();
        read
    }
}
