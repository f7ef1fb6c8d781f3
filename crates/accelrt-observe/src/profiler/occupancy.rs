//! How busy streams and devices were, and how much the streams of a device overlapped.

use std::collections::BTreeMap;

use accelrt::Device;

use crate::profiler::timeline::{ProfiledTask, Timeline};

/// The time of one stream in a profile.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamUse {
    /// The stream's device.
    pub device: Device,
    /// The stream's id on its device.
    pub stream_id: u64,
    /// The number of tasks that ran; waits for other streams are not among them.
    pub num_tasks: u64,
    /// How long the stream executed tasks.
    pub busy_ms: f64,
    /// How long the stream waited for other streams.
    pub waited_ms: f64,
}

/// The time of one device in a profile.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceUse {
    /// The device.
    pub device: Device,
    /// How long at least one of its streams executed a task.
    pub busy_ms: f64,
    /// How long its streams executed tasks, all added.
    pub stream_ms: f64,
    /// The part of `busy_ms` in percent in which at least two of its streams executed tasks.
    pub overlap_percent: f64,
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub(super) fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

pub(super) fn streams(timeline: &Timeline) -> Vec<StreamUse> {
    let of = |tasks: &[ProfiledTask]| {
        let sum = |is_wait| -> i64 {
            let tasks = tasks.iter().filter(|task| task.is_wait() == is_wait);
            tasks.map(|task| task.end - task.start).sum()
        };
        StreamUse {
            device: tasks[0].device,
            stream_id: tasks[0].stream_id,
            num_tasks: tasks.iter().filter(|task| !task.is_wait()).count() as u64,
            busy_ms: ms(sum(false)),
            waited_ms: ms(sum(true)),
        }
    };
    timeline.by_stream().map(of).collect()
}

pub(super) fn devices(timeline: &Timeline) -> Vec<DeviceUse> {
    // Each task begins at one moment and ends at another; the sum of these steps is how many are
    // busy at once. Tasks of one stream do not overlap.
    let mut steps: BTreeMap<Device, Vec<(i64, i64)>> = BTreeMap::new();
    for task in timeline.tasks.iter().filter(|task| !task.is_wait() && task.end > task.start) {
        steps.entry(task.device).or_default().extend([(task.start, 1), (task.end, -1)]);
    }
    steps.into_iter().map(|(device, steps)| device_use(device, steps)).collect()
}

fn device_use(device: Device, mut steps: Vec<(i64, i64)>) -> DeviceUse {
    steps.sort_unstable();
    let (mut busy, mut overlap, mut sum, mut count) = (0, 0, 0, 0);
    let mut last = steps[0].0;
    for (time, step) in steps {
        let span = time - last;
        sum += count * span;
        busy += if count > 0 { span } else { 0 };
        overlap += if count > 1 { span } else { 0 };
        count += step;
        last = time;
    }
    let overlap_percent = ms(overlap) / ms(busy) * 100.0;
    DeviceUse { device, busy_ms: ms(busy), stream_ms: ms(sum), overlap_percent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_busy_once_where_its_streams_overlap() {
        // Two streams: 0 to 10 and 4 to 8, then a gap, then 20 to 22.
        let steps = vec![(0, 1), (10, -1), (4, 1), (8, -1), (20, 1), (22, -1)];
        let used = device_use(Device::cpu(0), steps);
        assert_eq!((used.busy_ms, used.stream_ms), (ms(12), ms(16)));
        assert!((used.overlap_percent - 100.0 / 3.0).abs() < 1e-9);
    }
}
