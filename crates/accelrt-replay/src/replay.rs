//! Replays of requests and frees on an allocator.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use accelrt::allocator::{Allocated, AllocatorConfig, CachingAllocator, Request, Statistics};
use accelrt::internal::Mixer;
use accelrt::size::to_usize;
use accelrt::{ConfigError, Device, DeviceKind, Error, MemoryError, Result};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::events::{Events, Operation, TraceError};

/// An allocator's settings and its device, which has numbers in place of memory.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt::allocator::Request;
/// use accelrt_replay::Accounting;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let allocator = accounting.allocator()?;
/// let block = allocator.allocate(Request::new(3 << 20, 0))?; // no memory is used
/// assert_eq!(allocator.statistics().reserved_bytes.all.current, 4 << 20);
/// allocator.free(block).expect("it is the allocator's own");
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Accounting {
    /// The allocator's settings.
    pub config: AllocatorConfig,
    /// Capacity of the device.
    pub capacity_bytes: usize,
    /// Size of the device's pages: a power of two of at least 64.
    pub granularity_bytes: usize,
}

impl Accounting {
    /// Creates the allocator. Fails when the granularity is no power of two of at least 64.
    pub fn allocator(&self) -> Result<CachingAllocator> {
        let Self { config, capacity_bytes, granularity_bytes } = self;
        if !granularity_bytes.is_power_of_two() || *granularity_bytes < 64 {
            let value = granularity_bytes.to_string();
            let (name, allowed) = ("granularity", "a power of two from 64 bytes on");
            return Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }));
        }
        let backend = NullBackend::new(NullConfig {
            capacity_bytes: *capacity_bytes,
            granularity_bytes: *granularity_bytes,
            ..NullConfig::default()
        });
        CachingAllocator::new(backend, Device::new(DeviceKind::NULL, 0)?, config.clone())
    }
}

/// The figures of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayFigures {
    /// The number of events replayed: all, or those before the one that failed.
    pub events: usize,
    /// The peak of the requested bytes in use.
    pub peak_live_bytes: usize,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: usize,
    /// The number of maps and moves of pages.
    pub page_operations: u64,
    /// The mean time of an event, in nanoseconds.
    pub ns_per_event: f64,
    /// The index of the event whose request ran out of memory.
    pub failed_at: Option<usize>,
}

/// Replays events to the end, or to a request that runs out of memory, and frees what is in use
/// then. Resets the allocator's peaks first.
///
/// Fails when the events contradict themselves, and when the device fails otherwise.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt_replay::{Accounting, Operation, replay};
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events =
///     [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }, Operation::Free { id: 7 }];
/// let figures = replay(&accounting.allocator()?, &events)?;
/// assert_eq!((figures.peak_live_bytes, figures.peak_reserved_bytes), (3 << 20, 4 << 20));
/// # Ok::<(), accelrt::Error>(())
/// ```
pub fn replay(allocator: &CachingAllocator, events: &[Operation]) -> Result<ReplayFigures> {
    let mut replay = Replay::new(allocator);
    replay.run(events)?;
    Ok(replay.finish())
}

/// Replays a trace to its end, or to a request that runs out of memory. The events behind that are
/// checked if `checks_all`, and not visited otherwise.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt_replay::{Accounting, Operation};
/// use accelrt_replay::replay_all;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let figures = replay_all(&accounting.allocator()?, &events[..], true)?;
/// assert_eq!((figures.events, figures.peak_reserved_bytes), (1, 4 << 20));
/// # Ok::<(), accelrt_replay::TraceError>(())
/// ```
pub fn replay_all(
    allocator: &CachingAllocator,
    events: &(impl Events + ?Sized),
    checks_all: bool,
) -> Result<ReplayFigures, TraceError> {
    let mut replay = Replay::new(allocator);
    events.visit(&mut |batch| {
        let goes_on = replay.run(batch)? || checks_all;
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(replay.finish())
}

/// A replay in progress, which takes its events in batches and keeps none: its memory grows with
/// the most blocks that are in use at once. Blocks that are in use at its end are freed.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt_replay::{Accounting, Operation, Replay};
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let allocator = accounting.allocator()?;
/// let mut replay = Replay::new(&allocator);
/// for id in 0..1000 {
///     let bytes = 3 << 20;
///     replay.run(&[Operation::Allocate { id, bytes, stream: 0 }, Operation::Free { id }])?;
/// }
/// assert_eq!(replay.finish().peak_live_bytes, 3 << 20);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay<'a> {
    allocator: &'a CachingAllocator,
    before: Statistics,
    places: Places,
    /// The blocks in use, by their places.
    live: Vec<Allocated>,
    /// The events of one batch: kept for its memory.
    steps: Vec<Step>,
    bytes_in_use: usize,
    elapsed: Duration,
    /// What is known of them so far.
    figures: ReplayFigures,
}

impl<'a> Replay<'a> {
    /// Begins a replay; resets the allocator's peaks.
    #[must_use]
    pub fn new(allocator: &'a CachingAllocator) -> Self {
        allocator.reset_peak_statistics();
        Self {
            allocator,
            before: allocator.statistics(),
            places: Places::default(),
            live: Vec::new(),
            steps: Vec::new(),
            bytes_in_use: 0,
            elapsed: Duration::ZERO,
            figures: ReplayFigures::default(),
        }
    }

    /// Replays further events. Returns false when a request has run out of memory: the events
    /// behind it are only checked, in this batch and in later ones.
    ///
    /// Fails when the events contradict themselves, and when the device fails otherwise.
    pub fn run(&mut self, events: &[Operation]) -> Result<bool> {
        self.steps.clear();
        for event in events {
            self.steps.push(self.places.take(event)?);
        }
        if self.figures.failed_at.is_none() {
            self.execute()?;
        }
        Ok(self.figures.failed_at.is_none())
    }

    /// Does the steps of one batch, up to a request that fails.
    fn execute(&mut self) -> Result<()> {
        self.live.resize_with(self.places.count(), Allocated::default);
        let (mut outcome, mut done) = (Ok(()), 0);
        let started = Instant::now();
        for step in &self.steps {
            let live = &mut self.live[step.place];
            if let Some(stream) = step.stream {
                match self.allocator.allocate(Request::new(step.bytes, stream)) {
                    Ok(block) => *live = block,
                    Err(refusal) => {
                        outcome = Err(refusal);
                        break;
                    }
                }
            } else {
                free(self.allocator, std::mem::take(live));
            }
            done += 1;
        }
        self.elapsed += started.elapsed();
        let figures = &mut self.figures;
        figures.events += done;
        for step in &self.steps[..done] {
            if step.stream.is_some() {
                self.bytes_in_use += step.bytes;
                figures.peak_live_bytes = figures.peak_live_bytes.max(self.bytes_in_use);
            } else {
                self.bytes_in_use -= step.bytes;
            }
        }
        if matches!(outcome, Err(Error::Memory(MemoryError::OutOfMemory { .. }))) {
            figures.failed_at = Some(figures.events);
            return Ok(());
        }
        outcome
    }

    /// The requested bytes of the blocks in use.
    #[must_use]
    pub fn bytes_in_use(&self) -> usize {
        self.bytes_in_use
    }

    /// Ends the replay and returns its figures. Page operations lack what a reset of the
    /// accumulated statistics has forgotten meanwhile.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
    pub fn finish(self) -> ReplayFigures {
        let (statistics, before) = (self.allocator.statistics(), &self.before);
        let [now, then] = [&statistics, before].map(|of| of.reserved_bytes.all.allocated);
        let mapped_bytes = now.saturating_sub(then);
        let moved = statistics.num_pages_stolen.saturating_sub(before.num_pages_stolen);
        ReplayFigures {
            peak_reserved_bytes: to_usize(statistics.reserved_bytes.all.peak),
            page_operations: mapped_bytes.div_ceil(self.allocator.page_bytes() as u64) + moved,
            ns_per_event: self.elapsed.as_nanos() as f64 / self.figures.events.max(1) as f64,
            ..self.figures.clone()
        }
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        for block in self.live.drain(..) {
            free(self.allocator, block);
        }
    }
}

#[inline(always)]
pub(crate) fn free(allocator: &CachingAllocator, block: Allocated) {
    allocator.free(block).expect("it was asked of this allocator");
}

/// An event with the place of its block in place of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The place of the block.
    pub place: usize,
    /// The size of the request, of a free too.
    pub bytes: usize,
    /// The stream of the request; `None` for a free.
    pub stream: Option<u64>,
}

/// A place and a size for each id in use. Places of freed blocks are used again, so the memory of
/// this map grows with the most blocks that were in use at once, not with the number of events.
#[derive(Debug)]
pub struct Places {
    /// Place and size, by the scrambled id.
    by_id: HashMap<u64, (usize, usize), BuildHasherDefault<Mixer>>,
    vacant: Vec<usize>,
    events: usize,
    /// A random odd number: files cannot choose ids that collide. `RandomState`'s own hashes would
    /// take as long as a cached request.
    key: u64,
}

impl Default for Places {
    fn default() -> Self {
        let key = RandomState::new().hash_one(0) | 1;
        Self { by_id: HashMap::default(), vacant: Vec::new(), events: 0, key }
    }
}

impl Places {
    /// Takes the next event.
    ///
    /// Fails when a request has an id that is in use, and when a free has one that is not. Such an
    /// event counts as well, and nothing is to be taken behind it.
    #[inline]
    pub fn take(&mut self, event: &Operation) -> Result<Step> {
        self.events += 1;
        let (Operation::Allocate { id, .. } | Operation::Free { id }) = *event;
        // The odd factor and the turn lose nothing: other ids become other numbers.
        let scrambled = (id ^ self.key).wrapping_mul(self.key).rotate_left(32);
        if let Operation::Allocate { bytes, stream, .. } = *event {
            let place = self.vacant.pop().unwrap_or(self.by_id.len());
            if self.by_id.insert(scrambled, (place, bytes)).is_some() {
                return Err(self.contradiction(id, "a number that is not in use"));
            }
            return Ok(Step { place, bytes, stream: Some(stream) });
        }
        let Some((place, bytes)) = self.by_id.remove(&scrambled) else {
            return Err(self.contradiction(id, "a number that is in use"));
        };
        self.vacant.push(place);
        Ok(Step { place, bytes, stream: None })
    }

    /// The number of places: every place is below it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_id.len() + self.vacant.len()
    }

    #[cold]
    fn contradiction(&self, id: u64, expected: &'static str) -> Error {
        Error::Memory(MemoryError::InvalidEvents { index: self.events - 1, id, expected })
    }
}
