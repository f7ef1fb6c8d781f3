//! A runtime over the kind under test, for the tests that drive the engine instead of the contract.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Buffer, Config, Device, Runtime, Stream};

use crate::conformance::support::Subject;

/// Streams of each program.
const STREAMS: usize = 4;

/// A runtime with the kind, its devices, and streams over them.
pub(crate) struct Machine {
    pub(crate) runtime: Runtime,
    pub(crate) devices: Vec<Device>,
    pub(crate) streams: Vec<Stream>,
    /// False where copies move no bytes.
    pub(crate) has_bytes: bool,
}

impl Machine {
    pub(crate) fn new(subject: &Subject) -> Self {
        Self::over(Arc::clone(&subject.backend().0), subject.host_bytes().is_some())
    }

    /// Over this backend, which may be one around the subject's.
    pub(crate) fn over(backend: Arc<dyn Backend>, has_bytes: bool) -> Self {
        let kind = backend.kind();
        let config = Config::builder().accelerator(kind).build().unwrap();
        let runtime = Runtime::with_backends(config, [backend]).unwrap();
        let count = runtime.device_count(kind).unwrap();
        let devices: Vec<Device> =
            (0..count).map(|index| Device::new(kind, index).unwrap()).collect();
        let stream = |number: usize| runtime.stream(devices[number % count]).unwrap();
        let streams = (0..STREAMS).map(stream).collect();
        Self { runtime, devices, streams, has_bytes }
    }

    /// Brings a buffer's bytes to the host, behind what uses it, and compares them.
    pub(crate) fn assert_holds(&self, buffer: &Buffer, expected: &[u8], what: &str) {
        let stream = self.streams.iter().find(|stream| stream.device() == buffer.device());
        let default = || self.runtime.default_stream(buffer.device()).unwrap();
        let stream = stream.cloned().unwrap_or_else(default);
        let found = buffer.copy_to_host(vec![0; buffer.nbytes()], &stream).unwrap().wait().unwrap();
        if self.has_bytes && found != expected {
            let place = found.iter().zip(expected).position(|(found, expected)| found != expected);
            panic!("{what}: the first other byte is at {place:?} of {}", expected.len());
        }
    }

    /// Ends the runtime, which leaves nothing undone, and gives back what it has.
    pub(crate) fn end(self) {
        let Self { runtime, streams, .. } = self;
        drop(streams);
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Choices of a program, from a seed: `SplitMix64`, by Steele, Lea and Flood.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of `0..end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("below a usize")
    }

    /// A byte.
    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }
}
