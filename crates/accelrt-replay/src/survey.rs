//! What a trace needs: its sizes, its peak, and live and reserved bytes over time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use accelrt::CachingAllocator;
use accelrt::size::{MIB, to_usize};

use crate::events::{Events, Operation, TraceError};
use crate::replay::{Places, Replay, ReplayFigures, Step};

/// Sizes are counted in MiB up to this number of them; larger ones count there.
const MOST_MIB: usize = 1 << 16;

/// What the events of a trace need, whatever serves them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The number of events.
    pub events: usize,
    /// How many of them are requests.
    pub requests: usize,
    /// The peak of the requested bytes in use.
    pub peak_live_bytes: usize,
    /// The largest request.
    pub largest_bytes: usize,
    /// How many requests there are of each size above 1 MiB, in whole MiB, rounded up.
    pub requests_by_mib: BTreeMap<usize, usize>,
}

/// Visits a trace once.
///
/// ```
/// use accelrt_replay::Operation;
/// use accelrt_replay::survey;
///
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let found = survey(&events[..])?;
/// assert_eq!((found.events, found.requests, found.largest_bytes), (1, 1, 3 << 20));
/// assert_eq!((found.peak_live_bytes, found.requests_by_mib[&3]), (3 << 20, 1));
/// # Ok::<(), accelrt_replay::TraceError>(())
/// ```
pub fn survey(events: &(impl Events + ?Sized)) -> Result<Survey, TraceError> {
    let (mut places, mut found) = (Places::default(), Survey::default());
    // Sizes of a table are any numbers: their sum may be none of a word.
    let (mut live_bytes, mut peak_bytes) = (0_u128, 0);
    events.visit(&mut |batch| {
        found.events += batch.len();
        for event in batch {
            let Step { bytes, stream, .. } = places.take(event)?;
            if stream.is_none() {
                live_bytes -= bytes as u128;
                continue;
            }
            live_bytes += bytes as u128;
            peak_bytes = peak_bytes.max(live_bytes);
            found.requests += 1;
            found.largest_bytes = found.largest_bytes.max(bytes);
            if bytes > MIB {
                let mib = bytes.div_ceil(MIB).min(MOST_MIB);
                *found.requests_by_mib.entry(mib).or_default() += 1;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.peak_live_bytes = usize::try_from(peak_bytes).unwrap_or(usize::MAX);
    Ok(found)
}

/// The peaks in a run of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelinePoint {
    /// The index of the run's first event.
    pub event: usize,
    /// The peak of the requested bytes in use.
    pub live_bytes: usize,
    /// The peak of the bytes reserved from the device.
    pub reserved_bytes: usize,
}

/// Live and reserved bytes over a replay.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// Runs of equally many events, except for the last one; together they are the whole replay.
    pub points: Vec<TimelinePoint>,
    /// The replay's figures. Its times are those of single events.
    pub figures: ReplayFigures,
}

/// Replays a trace, and keeps the peaks in at most `points` runs of events; of one at least.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt_replay::{Accounting, Operation};
/// use accelrt_replay::timeline;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events =
///     [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }, Operation::Free { id: 7 }];
/// let points = timeline(&accounting.allocator()?, &events[..], 100)?.points;
/// assert_eq!((points[0].live_bytes, points[0].reserved_bytes), (3 << 20, 4 << 20));
/// assert_eq!((points[1].live_bytes, points[1].reserved_bytes), (0, 4 << 20));
/// # Ok::<(), accelrt_replay::TraceError>(())
/// ```
pub fn timeline(
    allocator: &CachingAllocator,
    events: &(impl Events + ?Sized),
    points: usize,
) -> Result<Timeline, TraceError> {
    let reserved_bytes = || to_usize(allocator.reserved_bytes_so_far());
    let mut replay = Replay::new(allocator);
    let mut reserved = reserved_bytes();
    let (mut runs, mut index) = (Runs::new(points), 0);
    events.visit(&mut |batch| {
        for event in batch {
            if !replay.run(std::slice::from_ref(event))? {
                return Ok(ControlFlow::Break(()));
            }
            // Only requests change what is reserved.
            if matches!(event, Operation::Allocate { .. }) {
                reserved = reserved_bytes();
            }
            runs.add(index, replay.bytes_in_use(), reserved);
            index += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Timeline { points: runs.points, figures: replay.finish() })
}

/// Runs of events, as long as they have to be: when there are too many, neighbours become one.
struct Runs {
    points: Vec<TimelinePoint>,
    most: usize,
    /// How many events a run has.
    length: usize,
}

impl Runs {
    fn new(points: usize) -> Self {
        Self { points: Vec::new(), most: points.max(1), length: 1 }
    }

    fn add(&mut self, event: usize, live_bytes: usize, reserved_bytes: usize) {
        let point = TimelinePoint { event, live_bytes, reserved_bytes };
        if event.is_multiple_of(self.length) {
            while self.points.len() == self.most && event.is_multiple_of(self.length) {
                self.halve();
            }
            if event.is_multiple_of(self.length) {
                self.points.push(point);
                return;
            }
        }
        let last = self.points.last_mut().expect("event 0 begins a run");
        *last = joined(*last, point);
    }

    fn halve(&mut self) {
        let pairs = self.points.chunks(2);
        self.points = pairs.map(|pair| pair.iter().copied().reduce(joined).expect("one")).collect();
        self.length *= 2;
    }
}

fn joined(first: TimelinePoint, second: TimelinePoint) -> TimelinePoint {
    TimelinePoint {
        event: first.event,
        live_bytes: first.live_bytes.max(second.live_bytes),
        reserved_bytes: first.reserved_bytes.max(second.reserved_bytes),
    }
}
