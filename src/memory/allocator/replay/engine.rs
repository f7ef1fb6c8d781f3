//! Replays requests and frees on an allocator.

use std::collections::HashMap;
use std::time::Instant;

use crate::backend::registry::accounting_backend;
use crate::base::config::AllocatorConfig;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{ConfigError, Error, MemoryError, Result};
use crate::base::size::to_usize;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::replay::operation::{Operation, ReplayFigures};
use crate::memory::allocator::request::Request;

/// An allocator's settings and its device, which has numbers in place of memory.
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
        let backend = accounting_backend(*capacity_bytes, *granularity_bytes);
        CachingAllocator::new(backend, Device::new(DeviceKind::NULL, 0)?, config.clone())
    }
}

/// Replays events to the end, or to a request that runs out of memory, and frees what is in use
/// then. Resets the allocator's peaks first.
///
/// Fails when the events contradict themselves, and when the device fails otherwise.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt::allocator::replay::{Accounting, Operation, replay};
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
    let steps = resolve(events)?;
    let granularity_bytes = allocator.page_bytes();
    allocator.reset_peak_statistics();
    let before = allocator.statistics();
    let places = steps.iter().map(|step| step.place + 1).max().unwrap_or(0);
    let mut live: Vec<Allocated> = (0..places).map(|_| Allocated::default()).collect();
    let mut outcome = Ok(());
    let mut done = 0;
    let started = Instant::now();
    for step in &steps {
        let live = &mut live[step.place];
        match step.request.map(|request| allocator.allocate(request)) {
            Some(Ok(block)) => *live = block,
            Some(Err(refusal)) => {
                outcome = Err(refusal);
                break;
            }
            None => free(allocator, std::mem::take(live)),
        }
        done += 1;
    }
    let elapsed = started.elapsed();
    let statistics = allocator.statistics();
    for block in live {
        free(allocator, block);
    }
    let failed_at = match outcome {
        Ok(()) => None,
        Err(Error::Memory(MemoryError::OutOfMemory { .. })) => Some(done),
        Err(refusal) => return Err(refusal),
    };
    let mapped_bytes =
        statistics.reserved_bytes.all.allocated - before.reserved_bytes.all.allocated;
    let moved = statistics.num_pages_stolen - before.num_pages_stolen;
    #[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
    let ns_per_event = elapsed.as_nanos() as f64 / done.max(1) as f64;
    Ok(ReplayFigures {
        events: done,
        peak_live_bytes: peak_bytes_of(&steps[..done]),
        peak_reserved_bytes: to_usize(statistics.reserved_bytes.all.peak),
        page_operations: mapped_bytes.div_ceil(granularity_bytes as u64) + moved,
        ns_per_event,
        failed_at,
    })
}

#[inline(always)]
pub(super) fn free(allocator: &CachingAllocator, block: Allocated) {
    allocator.free(block).expect("it was asked of this allocator");
}

/// An event with the index of its block in place of the id, so that a replay looks nothing up.
#[derive(Clone, Copy, Debug)]
struct Step {
    place: usize,
    /// `None` for a free.
    request: Option<Request>,
}

fn resolve(events: &[Operation]) -> Result<Vec<Step>> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut vacant: Vec<usize> = Vec::new();
    let mut steps = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let contradiction =
            |id, expected| Err(Error::Memory(MemoryError::InvalidEvents { index, id, expected }));
        match *event {
            Operation::Allocate { id, bytes, stream } => {
                let place = vacant.pop().unwrap_or(places.len());
                if places.insert(id, place).is_some() {
                    return contradiction(id, "a number that is not in use");
                }
                steps.push(Step { place, request: Some(Request::new(bytes, stream)) });
            }
            Operation::Free { id } => {
                let Some(place) = places.remove(&id) else {
                    return contradiction(id, "a number that is in use");
                };
                vacant.push(place);
                steps.push(Step { place, request: None });
            }
        }
    }
    Ok(steps)
}

fn peak_bytes_of(steps: &[Step]) -> usize {
    let mut sizes: HashMap<usize, usize> = HashMap::new();
    let (mut live_bytes, mut peak_bytes) = (0, 0);
    for Step { place, request } in steps {
        if let Some(Request { bytes, .. }) = *request {
            sizes.insert(*place, bytes);
            live_bytes += bytes;
            peak_bytes = peak_bytes.max(live_bytes);
        } else {
            live_bytes -= sizes.remove(place).expect("resolved before");
        }
    }
    peak_bytes
}
