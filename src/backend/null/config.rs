//! Settings and counters of the null kind.

use crate::base::device::DeviceKind;
use crate::base::size::{GIB, MIB};

/// The moment at which a device of the null kind completes a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    /// At the submission.
    AtOnce,
    /// When a thread waits for this or a later submission of the stream, when a callback for it is
    /// registered, or at the next poll after `polls` negative polls.
    WhenAsked {
        /// The number of negative polls.
        polls: u32,
    },
}

/// The moment at which a released address is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// After all other addresses of the arena. Detects uses after a release.
    Late,
    /// At the next request that fits. Detects stale records about an address. The releasing thread
    /// yields to other threads after the release.
    AtOnce,
}

/// The properties of a [`NullBackend`](super::NullBackend)'s devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent capabilities")]
pub struct NullConfig {
    /// The reported kind, to test the choice among kinds without their hardware.
    pub kind: DeviceKind,
    /// Whether the devices report that they are GPUs.
    pub is_gpu: bool,
    /// The number of devices, 0 to 128.
    pub device_count: usize,
    /// Capacity of each device.
    pub capacity_bytes: usize,
    /// Page size of the virtual memory: a power of two of at least 64.
    pub granularity_bytes: usize,
    /// When marks complete.
    pub completion: CompletionMode,
    /// When addresses are reused.
    pub reuse: Reuse,
    /// Whether the kind has a compiler.
    pub has_kernels: bool,
    /// Whether kernel sources have `cl_khr_fp64` defined.
    pub has_fp64: bool,
    /// Whether the devices share memory with the host.
    pub has_shared_memory: bool,
}

impl Default for NullConfig {
    /// One device of 16 GiB with pages of 2 MiB, which completes everything at once.
    fn default() -> Self {
        Self {
            kind: DeviceKind::NULL,
            is_gpu: false,
            device_count: 1,
            capacity_bytes: 16 * GIB,
            granularity_bytes: 2 * MIB,
            completion: CompletionMode::AtOnce,
            reuse: Reuse::Late,
            has_kernels: true,
            has_fp64: true,
            has_shared_memory: true,
        }
    }
}

/// Live objects and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Streams, including wrapped ones.
    pub streams: usize,
    /// Marks, done or not.
    pub marks: usize,
    /// Device memory from `allocate` and `allocate_shared`.
    pub device_bytes: usize,
    /// Memory from `allocate_host`.
    pub host_bytes: usize,
    /// Address ranges from `VirtualMemory::reserve`.
    pub reserved_bytes: usize,
    /// Memory from `VirtualMemory::create`.
    pub physical_bytes: usize,
    /// Programs from `Kernels::compile`.
    pub programs: usize,
    /// Kernels from `Kernels::kernel`.
    pub kernels: usize,
}

/// Bytes that tasks have moved since the backend's creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// By `copy`.
    pub copied_bytes: u64,
    /// By `fill`.
    pub filled_bytes: u64,
}
