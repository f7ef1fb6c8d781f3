//! Histories and statistics against models.
//!
//! Goal: a history has the newest events since its begin or its last `clear` and counts the others,
//! and statistics are the sums of the events. Method: random requests and frees on a device of
//! numbers, and a history of everything beside those with limits.

use std::thread;

use accelrt::allocator::snapshot::{PoolClass, TraceAction};
use accelrt::allocator::{PooledStat, Stat, Statistics};
use accelrt::size::MIB;
use accelrt::{Buffer, Config, Device, DeviceKind, Runtime};
use accelrt_testing::null::{NullBackend, NullConfig};
use proptest::prelude::*;

use super::{MemoryEvent, MemoryHistory};

const SETTINGS: [&str; 5] = [
    "policy:native",
    "policy:torch",
    "policy:torch,expandable_segments:True",
    "policy:torch,max_split_size_mb:20",
    "policy:torch,max_split_size_mb:20,garbage_collection_threshold:0.5",
];

#[derive(Clone, Debug)]
enum Step {
    /// A request, also by a thread of its own.
    Allocate(usize, bool),
    Free(usize),
    Trim,
    /// Begins a history in place of another one.
    Start(usize, usize),
    Clear(usize),
    Check(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let around = (0..6_usize, 0..3_usize).prop_map(|(at, by)| {
        [1, 512, MIB, 2 * MIB, 10 * MIB, 20 * MIB][at].saturating_add(by).saturating_sub(1).max(1)
    });
    let bytes = prop_oneof![around, 1..64 * MIB, 1..MIB];
    let step = prop_oneof![
        6 => (bytes, any::<bool>()).prop_map(|(bytes, other)| Step::Allocate(bytes, other)),
        5 => (0..64_usize).prop_map(Step::Free),
        1 => Just(Step::Trim),
        1 => (0..3_usize, prop_oneof![1..8_usize, Just(usize::MAX)])
            .prop_map(|(index, most)| Step::Start(index, most)),
        1 => (0..3_usize).prop_map(Step::Clear),
        2 => (0..3_usize).prop_map(Step::Check),
    ];
    proptest::collection::vec(step, 1..80)
}

struct Limited {
    history: MemoryHistory,
    most: usize,
    /// The events before its begin or its last `clear`.
    num_before: usize,
}

type Told = (TraceAction, u64, usize, usize, u64);

fn told(event: &MemoryEvent) -> Told {
    let MemoryEvent { event, block_bytes, .. } = event;
    (event.action, event.address, event.bytes, *block_bytes, event.stream)
}

struct World {
    runtime: Runtime,
    device: Device,
    all: MemoryHistory,
    limited: [Option<Limited>; 3],
    buffers: Vec<Buffer>,
}

impl World {
    fn new(settings: &str) -> Self {
        let config = NullConfig { capacity_bytes: 256 * MIB, ..NullConfig::default() };
        let backend = NullBackend::new(config);
        let runtime = Runtime::with_backends(Config::default(), [backend as _]).unwrap();
        runtime.set_allocator_settings(settings).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let all = MemoryHistory::start(&runtime, usize::MAX);
        Self { runtime, device, all, limited: [None, None, None], buffers: Vec::new() }
    }

    fn check(&self, limited: &Limited) -> Result<(), TestCaseError> {
        let Limited { history, most, num_before } = limited;
        let all: Vec<Told> = self.all.events(self.device).iter().map(told).collect();
        let since = &all[*num_before..];
        let beyond = since.len().saturating_sub(*most);
        let found: Vec<Told> = history.events(self.device).iter().map(told).collect();
        prop_assert_eq!(&found, &since[beyond..]);
        prop_assert_eq!(history.num_dropped_events(), beyond as u64);
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Allocate(bytes, by_other) => {
                let Self { runtime, device, .. } = self;
                let request = || runtime.empty(bytes, *device);
                let buffer = if by_other {
                    thread::scope(|scope| scope.spawn(request).join().unwrap())
                } else {
                    request()
                };
                self.buffers.extend(buffer.ok());
            }
            Step::Free(index) if !self.buffers.is_empty() => {
                drop(self.buffers.swap_remove(index % self.buffers.len()));
            }
            Step::Free(_) => {}
            Step::Trim => self.runtime.allocator(self.device).unwrap().trim(),
            Step::Start(index, most) => {
                self.limited[index] = None;
                let history = MemoryHistory::start(&self.runtime, most);
                let num_before = self.all.events(self.device).len();
                self.limited[index] = Some(Limited { history, most, num_before });
            }
            Step::Clear(index) => {
                let num_events = self.all.events(self.device).len();
                if let Some(limited) = &mut self.limited[index] {
                    limited.history.clear();
                    limited.num_before = num_events;
                }
            }
            Step::Check(index) => {
                if let Some(limited) = &self.limited[index] {
                    self.check(limited)?;
                }
            }
        }
        Ok(())
    }

    /// Compares the statistics with sums over all events.
    fn check_statistics(&self, max_split: Option<usize>) -> Result<(), TestCaseError> {
        let allocator = self.runtime.allocator(self.device).unwrap();
        let statistics = allocator.statistics();
        let events = self.all.events(self.device);
        let class = |bytes: usize| if bytes > MIB { PoolClass::Large } else { PoolClass::Small };
        let sums = |up: TraceAction, down: TraceAction, value: fn(&MemoryEvent) -> usize| {
            let mut stat = PooledStat::default();
            for event in &events {
                let part = match class(event.block_bytes) {
                    PoolClass::Small => &mut stat.small_pool,
                    _ => &mut stat.large_pool,
                };
                for part in [part, &mut stat.all] {
                    add(part, event, (up, down), value(event));
                }
            }
            stat
        };
        let (up, freed, over) =
            (TraceAction::Alloc, TraceAction::FreeRequested, TraceAction::FreeCompleted);
        let one: fn(&MemoryEvent) -> usize = |_| 1;
        let block: fn(&MemoryEvent) -> usize = |event| event.block_bytes;
        for (name, found, expected) in [
            ("allocation", &statistics.allocation, sums(up, freed, one)),
            ("allocated_bytes", &statistics.allocated_bytes, sums(up, freed, block)),
            ("active", &statistics.active, sums(up, over, one)),
            ("active_bytes", &statistics.active_bytes, sums(up, over, block)),
            ("requested_bytes", &statistics.requested_bytes, sums(up, over, |it| it.event.bytes)),
        ] {
            for (found, expected) in [
                (found.all, expected.all),
                (found.small_pool, expected.small_pool),
                (found.large_pool, expected.large_pool),
            ] {
                let sums = |stat: Stat| (stat.current, stat.allocated, stat.freed);
                prop_assert_eq!(sums(found), sums(expected), "{}", name);
                // Threads count by themselves: their peaks add up to an upper bound.
                prop_assert!(found.peak >= expected.peak, "{}: {:?} {:?}", name, found, expected);
            }
        }
        self.check_sums_of_segments(&statistics, &events, max_split)?;
        allocator.check_all();
        Ok(())
    }

    fn check_sums_of_segments(
        &self,
        statistics: &Statistics,
        events: &[MemoryEvent],
        max_split: Option<usize>,
    ) -> Result<(), TestCaseError> {
        let mut reserved = Stat::default();
        for event in events {
            for pair in [
                (TraceAction::SegmentAlloc, TraceAction::SegmentFree),
                (TraceAction::SegmentMap, TraceAction::SegmentUnmap),
            ] {
                add(&mut reserved, event, pair, event.block_bytes);
            }
        }
        let page_bytes = self.runtime.allocator(self.device).unwrap().page_bytes();
        let moved = statistics.num_pages_stolen * page_bytes as u64;
        let found = statistics.reserved_bytes.all;
        prop_assert_eq!(
            (found.current, found.allocated, found.freed),
            (reserved.current, reserved.allocated - moved, reserved.freed - moved)
        );
        let pair = (TraceAction::SegmentAlloc, TraceAction::SegmentFree);
        let mut segments = Stat::default();
        for event in events {
            add(&mut segments, event, pair, 1);
        }
        let found = statistics.segment.all;
        prop_assert_eq!(
            (found.current, found.allocated, found.freed),
            (segments.current, segments.allocated, segments.freed)
        );
        let ooms = events.iter().filter(|it| it.event.action == TraceAction::OutOfMemory).count();
        prop_assert_eq!(statistics.num_ooms, ooms as u64);
        let (mut blocks, mut segments) = (Stat::default(), Stat::default());
        let is_oversize =
            |it: &&MemoryEvent| max_split.is_some_and(|least| it.block_bytes >= least);
        for event in events.iter().filter(is_oversize) {
            let of_blocks = (TraceAction::Alloc, TraceAction::FreeRequested);
            add(&mut blocks, event, of_blocks, 1);
            add(&mut segments, event, pair, 1);
        }
        prop_assert_eq!(statistics.oversize_allocations, blocks);
        prop_assert_eq!(statistics.oversize_segments, segments);
        Ok(())
    }
}

fn add(stat: &mut Stat, event: &MemoryEvent, (up, down): (TraceAction, TraceAction), by: usize) {
    let by = by as u64;
    if event.event.action == up {
        stat.current += by;
        stat.allocated += by;
        stat.peak = stat.peak.max(stat.current);
    } else if event.event.action == down {
        stat.current -= by;
        stat.freed += by;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn histories_and_statistics_follow_events(setting in 0..SETTINGS.len(), steps in steps()) {
        let settings = SETTINGS[setting];
        let mut world = World::new(settings);
        for step in &steps {
            world.run(step)?;
        }
        for limited in world.limited.iter().flatten() {
            world.check(limited)?;
        }
        world.check_statistics(settings.contains("max_split").then_some(20 * MIB))?;
        world.buffers.clear();
        world.check_statistics(settings.contains("max_split").then_some(20 * MIB))?;
    }
}
