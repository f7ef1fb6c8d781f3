//! Settings and counters of the null kind.

use accelrt::DeviceKind;
use accelrt::size::{GIB, MIB};

/// The moment at which a device of the null kind completes a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    /// When the device receives the submission.
    AtOnce,
    /// At the first wait for the submission, at the first callback for its mark, or at the poll
    /// after `polls` negative polls. Then all earlier submissions of the stream complete too.
    WhenAsked {
        /// How many polls are negative before one completes the submission.
        polls: u32,
    },
}

/// When an arena reuses a released address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// As late as possible: after the arena's other free addresses. Exposes uses after a release.
    Late,
    /// At the next request that fits. Exposes stale records of a released address. The releasing
    /// thread yields after the release, so that another thread can get the address.
    AtOnce,
}

/// Settings of a [`NullBackend`](super::NullBackend): its kind, devices and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent capabilities")]
pub struct NullConfig {
    /// The kind that the backend reports, even if the machine has no hardware of this kind.
    pub kind: DeviceKind,
    /// Whether the devices report that they are GPUs.
    pub is_gpu: bool,
    /// The number of devices, 0 to 128.
    pub device_count: usize,
    /// The memory of each device, shared by allocations and physical memory.
    pub capacity_bytes: usize,
    /// Page size of the virtual memory: a power of two of at least 64.
    pub granularity_bytes: usize,
    /// When the devices complete submissions.
    pub completion: CompletionMode,
    /// When the arenas reuse released addresses.
    pub reuse: Reuse,
    /// Whether the kind has a compiler and launches kernels.
    pub has_kernels: bool,
    /// Whether the compiler defines the macro `cl_khr_fp64`, which announces double precision.
    pub has_fp64: bool,
    /// Whether the devices have shared memory; without it, `allocate_shared` is unsupported.
    pub has_shared_memory: bool,
}

impl Default for NullConfig {
    /// One device of 16 GiB with pages of 2 MiB. It completes each submission at once.
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

/// The objects and bytes of a backend that are live now: all 0 after a program without a leak.
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

/// Bytes that tasks have moved since the backend's creation, in total over all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Bytes that `copy` has copied.
    pub copied_bytes: u64,
    /// Bytes that `fill` has written.
    pub filled_bytes: u64,
}
