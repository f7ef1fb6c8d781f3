//! Settings of the null kind, and the figures it reports.

use crate::base::device::DeviceKind;
use crate::base::size::{GIB, MIB};

/// How late a device of the null kind completes submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    /// With the submission.
    AtOnce,
    /// When a thread waits for it or for something later on its stream, when a callback is
    /// requested for it, or at the poll after `polls` polls that answered no.
    WhenAsked {
        /// How many polls answer no.
        polls: u32,
    },
}

/// When an address that was given back is handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// When all others of its arena were, which shows uses after a release.
    Late,
    /// With the next request that fits, which shows what is remembered of an address after a
    /// release. The thread that gives it back lets other threads go first.
    AtOnce,
}

/// The properties of a [`NullBackend`](super::NullBackend)'s devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that a device may have")]
pub struct NullConfig {
    /// The kind that the backend reports, so that code which chooses among kinds is tested without
    /// their hardware.
    pub kind: DeviceKind,
    /// Whether the devices say that they are GPUs.
    pub is_gpu: bool,
    /// How many devices there are, 0 to 128.
    pub device_count: usize,
    /// Capacity of each device.
    pub capacity_bytes: usize,
    /// Page size of the virtual memory: a power of two of at least 64.
    pub granularity_bytes: usize,
    /// How late marks complete.
    pub completion: CompletionMode,
    /// How soon addresses are reused.
    pub reuse: Reuse,
    /// Whether the kind has a compiler.
    pub has_kernels: bool,
    /// Whether kernel sources see `cl_khr_fp64`.
    pub has_fp64: bool,
    /// Whether the devices have memory that they share with the host.
    pub has_shared_memory: bool,
}

impl Default for NullConfig {
    /// One device of 16 GiB with pages of 2 MiB, where everything is done at once.
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

/// Objects and memory that were given out and not given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Streams, wrapped ones included.
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

/// Bytes that tasks moved since the backend was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// By `copy`.
    pub copied_bytes: u64,
    /// By `fill`.
    pub filled_bytes: u64,
}
