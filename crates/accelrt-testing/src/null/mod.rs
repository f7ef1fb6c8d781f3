//! The null kind: addresses without memory. It checks how callers use the contract.
//!
//! The null kind behaves like a driver: tasks run on the enqueuing thread, marks report the
//! device's progress, and the host cannot dereference addresses. It stores no bytes. It counts all
//! live objects, so [`NullBackend::resource_counts`] shows leaks. No call blocks: a wait completes
//! the awaited work at once. Misuse, such as a double release, panics with an explanation.
#![cfg_attr(
    test,
    allow(dead_code, unreachable_pub, reason = "unit tests of accelrt use some of it")
)]

mod backend;
mod device;
mod memory;
mod program;
#[cfg(test)]
mod tests;
mod timeline;

use std::sync::Arc;

use accelrt::backend::contract::{Address, StreamHandle};
use accelrt::backend::driver::ResumeThreads;
use accelrt::internal::{LockRank, Mutex};
use accelrt::{Device, DeviceError, DeviceKind, Error, MAX_DEVICE_INDEX, Result};
use device::NullDevice;
pub use device::{NullConfig, ResourceCounts};
pub use memory::Reuse;
use memory::{HostMemory, LEAST_ALIGN_BYTES, Place};
pub use program::Launched;
use program::Programs;
pub use timeline::{CompletionMode, MovedBytes};
use timeline::{Marks, Streams, Timeline};

/// The backend of the null kind. The [module](self) describes its behaviour.
///
/// ```
/// use accelrt::backend::contract::Backend;
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// let null = NullBackend::new(NullConfig::default());
/// let address = null.allocate(0, 1000, 64)?;
/// assert_eq!(null.resource_counts().device_bytes, 1000);
/// // SAFETY: it was just allocated there, and no task uses it.
/// unsafe { null.release(0, address) }?;
/// assert_eq!(null.resource_counts().device_bytes, 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct NullBackend {
    kind: DeviceKind,
    reuse: Reuse,
    devices: Vec<NullDevice>,
    host: Mutex<HostMemory>,
    timeline: Mutex<Timeline>,
    programs: Mutex<Programs>,
    has_kernels: bool,
    resume_threads: ResumeThreads,
}

impl NullBackend {
    /// Creates the backend. Starts no thread.
    ///
    /// # Panics
    /// When `device_count` or `granularity_bytes` is out of its field's range.
    #[must_use]
    pub fn new(config: NullConfig) -> Arc<Self> {
        let NullConfig { device_count, granularity_bytes, .. } = config;
        assert!(device_count <= usize::from(MAX_DEVICE_INDEX) + 1, "{device_count} devices");
        let right = granularity_bytes.is_power_of_two() && granularity_bytes >= LEAST_ALIGN_BYTES;
        assert!(right, "a granularity of {granularity_bytes} bytes");
        let device = |index| {
            let device = Device::new(config.kind, index).expect("the count was checked");
            NullDevice::new(device, &config)
        };
        let timeline = Timeline {
            streams: Streams::new(config.completion, device_count),
            marks: Marks::default(),
            moved: MovedBytes::default(),
            is_shut_down: false,
        };
        Arc::new(Self {
            kind: config.kind,
            reuse: config.reuse,
            devices: (0..device_count).map(device).collect(),
            host: Mutex::new(LockRank::Backend, HostMemory::new(config.reuse)),
            timeline: Mutex::new(LockRank::Backend, timeline),
            programs: Mutex::new(LockRank::Backend, Programs::new(config.has_fp64)),
            has_kernels: config.has_kernels,
            resume_threads: ResumeThreads::new(config.kind, "accelrt-null"),
        })
    }

    /// Counts the live objects and bytes. Exact when no other thread is inside a call.
    #[must_use]
    pub fn resource_counts(&self) -> ResourceCounts {
        let timeline = self.timeline.lock();
        let (streams, marks) =
            (timeline.streams.resource_counts(), timeline.marks.resource_counts());
        drop(timeline);
        let host_bytes = self.host.lock().allocations.allocated_bytes();
        let (programs, kernels) = self.programs.lock().resource_counts();
        let mut counts = ResourceCounts {
            streams,
            marks,
            host_bytes,
            programs,
            kernels,
            ..ResourceCounts::default()
        };
        self.devices.iter().for_each(|device| device.count_resources(&mut counts));
        counts
    }

    /// Bytes that tasks have moved since the backend's creation.
    #[must_use]
    pub fn moved(&self) -> MovedBytes {
        self.timeline.lock().moved
    }

    /// All launches of kernels since the backend's creation, in order.
    #[must_use]
    pub fn launched(&self) -> Vec<Launched> {
        self.programs.lock().launched.clone()
    }

    fn device(&self, index: usize) -> Result<&NullDevice> {
        let Some(device) = self.devices.get(index) else {
            let device = Device::new(self.kind, index)?;
            return Err(Error::Device(DeviceError::NotFound { device, count: self.devices.len() }));
        };
        Ok(device)
    }

    /// Counts one submission. False after a shutdown: the caller then drops the work.
    fn count_work(&self, stream: StreamHandle) -> bool {
        let mut timeline = self.timeline.lock();
        if !timeline.is_shut_down {
            timeline.streams.submit(stream);
        }
        !timeline.is_shut_down
    }

    /// Panics unless the whole range is live. Outside the arenas, accepts every address but 0.
    fn check_range(&self, range: Address, bytes: usize) {
        let is_live = match Place::of(range, self.devices.len()) {
            Place::Device(index) => self.devices[index].covers(range, bytes),
            Place::Host => {
                let found = self.host.lock().allocations.containing(range);
                found.is_some_and(|(base, all)| range.0 - base + bytes as u64 <= all as u64)
            }
            Place::Elsewhere => range.0 != 0,
        };
        assert!(is_live, "{bytes} bytes at {range:x?} are not inside live memory");
    }
}
