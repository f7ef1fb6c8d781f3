//! Memory over the time of a profile: the sums of what its records say.

use std::collections::BTreeMap;

use accelrt::internal::{MemoryAction, MemoryRecord};
use accelrt::{CachingAllocator, Device, Runtime};

/// The bytes of one device from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySample {
    pub(super) device: Device,
    /// Nanoseconds since the profile began.
    pub(super) time: i64,
    pub(super) bytes: MemoryBytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryBytes {
    /// Of blocks that are in use.
    pub(super) allocated: i64,
    /// Taken from the device.
    pub(super) reserved: i64,
}

/// The bytes of each device when a profile begins. What other threads do at that moment may be
/// missing, or counted twice.
pub(super) fn at_begin(runtime: &Runtime) -> BTreeMap<Device, MemoryBytes> {
    let bytes = |allocator: &CachingAllocator| {
        let statistics = allocator.statistics();
        MemoryBytes {
            allocated: statistics.allocated_bytes.all.current.cast_signed(),
            reserved: statistics.reserved_bytes.all.current.cast_signed(),
        }
    };
    let allocators = runtime.allocators_of_devices();
    allocators.into_iter().map(|it| (it.device(), bytes(&it))).collect()
}

/// The samples of each device, in the order of time.
pub(super) fn samples(
    mut begin: BTreeMap<Device, MemoryBytes>,
    mut records: Vec<MemoryRecord>,
) -> Vec<MemorySample> {
    records.sort_by_key(|record| (record.device, record.time.cast_signed()));
    let sample = |(device, bytes): (&Device, &MemoryBytes)| MemorySample {
        device: *device,
        time: 0,
        bytes: *bytes,
    };
    let mut samples: Vec<MemorySample> = begin.iter().map(sample).collect();
    for MemoryRecord { action, device, bytes, time, .. } in records {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let sums = begin.entry(device).or_default();
        match action {
            MemoryAction::Hit | MemoryAction::Miss => sums.allocated += bytes,
            MemoryAction::FreeRequested | MemoryAction::Freed => sums.allocated -= bytes,
            MemoryAction::SegmentAllocated | MemoryAction::PagesMapped => sums.reserved += bytes,
            MemoryAction::SegmentFreed | MemoryAction::PagesUnmapped => sums.reserved -= bytes,
            _ => continue,
        }
        samples.push(MemorySample { device, time: time.cast_signed(), bytes: *sums });
    }
    // Stable: the samples at the begin come first.
    samples.sort_by_key(|sample| sample.device);
    samples
}

#[cfg(test)]
mod tests {
    use accelrt::internal::AllocationContext;

    use super::*;

    #[test]
    fn samples_are_sums_in_the_order_of_time_of_each_device() {
        let record = |action, bytes, time: i64| MemoryRecord {
            action,
            device: Device::cpu(0),
            runtime: 1,
            stream_id: 0,
            pool: 0,
            address: 0,
            requested_bytes: 1,
            bytes,
            context: AllocationContext::NONE,
            time: time.cast_unsigned(),
        };
        let other = Device::cpu(1);
        let begin = BTreeMap::from([
            (Device::cpu(0), MemoryBytes { allocated: 10, reserved: 100 }),
            (other, MemoryBytes { allocated: 1, reserved: 2 }),
        ]);
        let samples = samples(
            begin,
            vec![
                record(MemoryAction::FreeCompleted, 10, 6),
                record(MemoryAction::FreeRequested, 10, 5),
                record(MemoryAction::Miss, 30, 4),
                record(MemoryAction::PagesMapped, 200, 3),
                record(MemoryAction::PagesMovedHere, 200, 7),
                record(MemoryAction::SegmentFreed, 300, 8),
            ],
        );
        let of = |device| {
            let of_device = samples.iter().filter(move |it| it.device == device);
            of_device.map(|it| (it.time, it.bytes.allocated, it.bytes.reserved)).collect::<Vec<_>>()
        };
        let expected = [(0, 10, 100), (3, 10, 300), (4, 40, 300), (5, 30, 300), (8, 30, 0)];
        assert_eq!(of(Device::cpu(0)), expected);
        assert_eq!(of(other), [(0, 1, 2)]);
    }
}
