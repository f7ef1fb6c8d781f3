//! What the tests share: machines of every kind, gates, watched drops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, Device, DeviceKind, Error, Runtime, Stream, StreamError, StreamFailure};
use accelrt_testing::fault::FaultBackend;
use accelrt_testing::null::{CompletionMode, Launched, NullBackend, NullConfig, ResourceCounts};

use crate::scheduled::scheduled;
use crate::watchdog::finishes_within;

pub(crate) const CPU: Device = Device::cpu(0);

/// Capacity of every device: enough for all tests but those that look for the limit.
pub(crate) const CAPACITY: usize = 64 << 20;

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(120);

/// A runtime whose backend fails on demand, and whose free memory is known from the start.
pub(crate) struct Machine {
    pub(crate) runtime: Runtime,
    pub(crate) backend: Arc<FaultBackend>,
    pub(crate) devices: Vec<Device>,
    null: Option<Arc<NullBackend>>,
    free_bytes: Vec<usize>,
}

impl Machine {
    pub(crate) fn cpu(cpu_devices: usize) -> Self {
        Self::cpu_with(&Config::builder().cpu_devices(cpu_devices).build().unwrap())
    }

    pub(crate) fn cpu_with(config: &Config) -> Self {
        let cpu_memory_bytes = config.cpu_memory_bytes.unwrap_or(CAPACITY);
        let config =
            config.clone().into_builder().cpu_memory_bytes(cpu_memory_bytes).build().unwrap();
        let backend = CpuBackend::new(&config).unwrap();
        Self::new(config, backend, None)
    }

    pub(crate) fn null(completion: CompletionMode) -> Self {
        Self::null_of(CAPACITY, completion, "")
    }

    /// With as much memory on each device, and settings of the allocator.
    pub(crate) fn null_of(
        capacity_bytes: usize,
        completion: CompletionMode,
        settings: &str,
    ) -> Self {
        let device_count = 2;
        let config =
            NullConfig { completion, device_count, capacity_bytes, ..NullConfig::default() };
        let null = NullBackend::new(config);
        let config =
            Config::builder().allocator_settings(settings).accelerator(DeviceKind::NULL).build();
        let config = config.unwrap();
        Self::new(config, Arc::<NullBackend>::clone(&null), Some(null))
    }

    fn new(config: Config, backend: Arc<dyn Backend>, null: Option<Arc<NullBackend>>) -> Self {
        let backend = FaultBackend::new(backend);
        let count = backend.device_count().unwrap();
        let devices: Vec<_> =
            (0..count).map(|index| Device::new(backend.kind(), index).unwrap()).collect();
        let wrapped: [Arc<dyn Backend>; 1] = [Arc::<FaultBackend>::clone(&backend)];
        let runtime = Runtime::with_backends(config, wrapped).unwrap();
        let runtime = if null.is_some() { runtime } else { scheduled(runtime) };
        let free_bytes = (0..count).map(|index| free_bytes(&backend, index)).collect();
        Self { runtime, backend, devices, null, free_bytes }
    }

    /// cpu with one and three devices, and with the policy `torch`; null with both completions.
    pub(crate) fn each() -> [Self; 5] {
        let torch = Config::builder().allocator_settings("policy:torch").build().unwrap();
        [
            Self::cpu_with(&torch),
            Self::cpu(1),
            Self::cpu(3),
            Self::null(CompletionMode::AtOnce),
            Self::null(CompletionMode::WhenAsked { polls: 2 }),
        ]
    }

    pub(crate) fn runs_on_host(&self) -> bool {
        self.null.is_none()
    }

    pub(crate) fn device(&self) -> Device {
        self.devices[0]
    }

    /// A stream that nobody else has.
    pub(crate) fn stream(&self) -> Stream {
        self.stream_on(self.device())
    }

    pub(crate) fn stream_on(&self, device: Device) -> Stream {
        self.runtime.stream(device).unwrap()
    }

    /// The stream that buffers of this thread have for their home.
    pub(crate) fn home(&self) -> Stream {
        self.runtime.default_stream(self.device()).unwrap()
    }

    /// Bytes of a device that buffers have, or that streams use after their free.
    pub(crate) fn taken_on(&self, device: Device) -> usize {
        let statistics = self.runtime.allocator(device).unwrap().statistics();
        usize::try_from(statistics.requested_bytes.all.current).unwrap()
    }

    /// Bytes of the first device that are not free after what nobody uses went back to it.
    pub(crate) fn kept(&self) -> usize {
        self.runtime.allocator(self.device()).unwrap().trim();
        self.reserved_on(self.device())
    }

    pub(crate) fn empty_pinned_cache(&self) {
        self.runtime.pinned_allocator(self.device()).unwrap().empty_cache();
    }

    /// Bytes of a device that are not free: what buffers have, and what is kept for others.
    pub(crate) fn reserved_on(&self, device: Device) -> usize {
        self.free_bytes[device.index()] - free_bytes(&self.backend, device.index())
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken_on(self.device())
    }

    /// Waits for every device; whoever fails is forgiven.
    pub(crate) fn settle(&self) {
        for device in &self.devices {
            // Failures are what some tests are about.
            let _ = self.runtime.synchronize(*device);
        }
    }

    /// Asserts that all memory is back, after everything was dropped.
    #[track_caller]
    pub(crate) fn assert_nothing_taken(&self) {
        self.settle();
        for device in &self.devices {
            let allocator = self.runtime.allocator(*device).unwrap();
            assert_eq!(self.taken_on(*device), 0, "bytes of {device}");
            allocator.check_all();
            allocator.empty_cache();
            self.runtime.shared_allocator(*device).unwrap().empty_cache();
            assert_eq!(self.reserved_on(*device), 0, "bytes kept of {device}");
        }
        self.empty_pinned_cache();
        if let Some(null) = &self.null {
            assert_eq!(null.resource_counts().host_bytes, 0, "pinned bytes");
        }
    }

    /// The launches of kernels that reached a null kind.
    pub(crate) fn launched(&self) -> Vec<Launched> {
        self.null.as_ref().map(|null| null.launched()).unwrap_or_default()
    }

    /// What a null kind gave out and did not get back.
    pub(crate) fn resource_counts(&self) -> ResourceCounts {
        self.null.as_ref().map(|null| null.resource_counts()).unwrap_or_default()
    }
}

fn free_bytes(backend: &FaultBackend, device_index: usize) -> usize {
    backend.inner().memory_info(device_index).unwrap().free_bytes
}

/// Runs a test that would hang if it failed; a hang is a failure then.
pub(crate) fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

/// Bytes of the host that count their drop.
pub(crate) struct Watched {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

/// How often something was dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub(crate) fn watch(&self, bytes: Vec<u8>) -> Watched {
        Watched { bytes, drops: Arc::clone(&self.0) }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Watched {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// Enqueues a task that fails.
pub(crate) fn enqueue_failure(stream: &Stream) {
    stream.enqueue(|| Err::<(), _>("planned")).unwrap();
}

/// The error of one stream inside a result.
#[track_caller]
pub(crate) fn stream_error<T: std::fmt::Debug>(result: accelrt::Result<T>) -> Arc<StreamFailure> {
    match result {
        Err(Error::Stream(StreamError::Failed(error))) => error,
        other => panic!("expected the error of one stream, got {other:?}"),
    }
}

/// A value that a task drops later: the last view of a buffer, say.
pub(crate) fn kept<T>(value: T) -> Arc<Mutex<Option<T>>> {
    Arc::new(Mutex::new(Some(value)))
}
