//! Random programs against a model that knows every byte.
//!
//! Goal: no order of requests, frees, settings, limits, pools and refusals breaks a law. Method: a
//! model is a list of who has which bytes; each step is drawn from a seed, and after each one all
//! laws are checked and the statistics are compared with the model. On cpu every byte of a block is
//! written when it is handed out and looked at when it is freed.
#![expect(unsafe_code, reason = "writes and reads the memory that was handed out")]

use std::collections::BTreeMap;
use std::sync::Arc;

use accelrt::allocator::snapshot::SegmentInfo;
use accelrt::allocator::{Allocated, CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::backend::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt::backend::null::{LiveCounts, NullBackend, NullConfig};
use accelrt::{Config, Device, DeviceKind};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{KIB, MIB};

const STEPS: usize = 800;

const SETTINGS: [&str; 7] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:24",
    "expandable_segments:True,max_split_size_mb:20,max_non_split_rounding_mb:22",
    "roundup_power2_divisions:[1:4,8:2,>:1],large_segment_size_mb:12",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.8",
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.7,expandable_segments:True",
];

/// What a device can refuse an allocator.
const REFUSED: [(Method, FaultError); 10] = [
    (Method::Allocate, FaultError::OutOfMemory),
    (Method::Allocate, FaultError::Driver),
    (Method::Release, FaultError::Driver),
    (Method::MemoryInfo, FaultError::Driver),
    (Method::VmReserve, FaultError::Driver),
    (Method::VmCreate, FaultError::OutOfMemory),
    (Method::VmMap, FaultError::Driver),
    (Method::VmUnmap, FaultError::Driver),
    (Method::VmRelease, FaultError::Driver),
    (Method::VmUnreserve, FaultError::Driver),
];

/// Who has bytes.
struct Live {
    block: Allocated,
    requested_bytes: usize,
    pool: PoolId,
    mark: u8,
}

struct Program {
    allocator: CachingAllocator,
    backend: Arc<FaultBackend>,
    numbers: Numbers,
    live: BTreeMap<u64, Live>,
    /// Private pools with users.
    pools: Vec<PoolId>,
    pools_made: u64,
    /// True when the memory is there to be written.
    has_memory: bool,
    most_bytes: usize,
}

impl Program {
    fn new(inner: Arc<dyn Backend>, device: Device, most_bytes: usize, seed: u64) -> Self {
        let backend = FaultBackend::new(inner);
        let wrapped: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&backend);
        let has_memory = backend.runs_on_host();
        let allocator = CachingAllocator::new(wrapped, device, "".parse().unwrap()).unwrap();
        let (numbers, live, pools) = (Numbers::new(seed), BTreeMap::new(), Vec::new());
        let pools_made = 0;
        Self { allocator, backend, numbers, live, pools, pools_made, has_memory, most_bytes }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.step();
            self.allocator.check_all();
            self.compare();
        }
        self.backend.clear();
        while !self.live.is_empty() {
            self.free();
        }
        for pool in std::mem::take(&mut self.pools) {
            self.allocator.release_pool(pool);
        }
        self.allocator.empty_cache();
        self.allocator.check_all();
        let info = self.backend.memory_info(0).unwrap();
        assert_eq!(info.free_bytes, info.total_bytes, "everything is back");
        assert_eq!(self.allocator.statistics().reserved_bytes.all.current, 0);
    }

    fn step(&mut self) {
        match self.numbers.below(100) {
            0..52 => self.allocate(),
            52..90 => self.free(),
            90..92 => self.allocator.empty_cache(),
            92..94 => {
                let settings = SETTINGS[self.numbers.below(SETTINGS.len())];
                self.allocator.set_config(settings.parse().unwrap());
            }
            94 => {
                let fraction = [0.5, 0.9, 1.0][self.numbers.below(3)];
                self.allocator.set_memory_fraction(fraction).unwrap();
            }
            95 => self.make_pool(),
            96 => self.leave_pool(),
            97 => self.backend.clear(),
            _ => {
                let (method, error) = REFUSED[self.numbers.below(REFUSED.len())];
                let call = 1 + self.numbers.below(3) as u64;
                self.backend.plan(Fault::nth(method, call, error));
            }
        }
    }

    fn request(&mut self) -> Request {
        let unit = [1, 100, KIB, 64 * KIB, MIB][self.numbers.below(5)];
        let bytes = (unit * self.numbers.below(40)).min(self.most_bytes);
        let request = Request::new(bytes, self.numbers.below(3) as u64);
        let request = match self.numbers.below(12) {
            0 => request.aligned_to(1 << (6 + self.numbers.below(16))),
            _ => request,
        };
        match self.numbers.below(5) {
            0 if !self.pools.is_empty() => {
                request.from_pool(self.pools[self.numbers.below(self.pools.len())])
            }
            _ => request,
        }
    }

    fn allocate(&mut self) {
        let request = self.request();
        let Ok(block) = self.allocator.allocate(request) else { return };
        if request.bytes == 0 {
            return assert_eq!(block.bytes(), 0);
        }
        let end = block.address() + block.bytes() as u64;
        assert!(block.bytes() >= request.bytes);
        assert!(block.address().is_multiple_of(request.align_bytes as u64));
        let before = self.live.range(..end).next_back().map(|(_, live)| live.block);
        let is_apart =
            |before: Allocated| before.address() + before.bytes() as u64 <= block.address();
        assert!(before.is_none_or(is_apart), "{block:?} is where {before:?} is");
        let mark = u8::try_from(self.numbers.below(256)).unwrap();
        if self.has_memory {
            // SAFETY: the block was handed out, to us alone: it is writable memory of this size.
            unsafe { at(block).write_bytes(mark, block.bytes()) };
        }
        let (requested_bytes, pool) = (request.bytes, request.pool);
        self.live.insert(block.address(), Live { block, requested_bytes, pool, mark });
    }

    fn free(&mut self) {
        let place = self.numbers.below(self.live.len().max(1));
        let Some(address) = self.live.keys().nth(place).copied() else { return };
        let Live { block, mark, .. } = self.live.remove(&address).unwrap();
        let inside = address + self.numbers.below(block.bytes()) as u64;
        assert_eq!(self.allocator.block_at(inside).map(|found| found.address()), Some(address));
        if self.has_memory {
            // SAFETY: the block is ours until the next line, and was written as a whole.
            let bytes = unsafe { std::slice::from_raw_parts(at(block), block.bytes()) };
            assert!(bytes.iter().all(|byte| *byte == mark), "others wrote to {block:?}");
        }
        self.allocator.free(block);
    }

    fn make_pool(&mut self) {
        self.pools_made += 1;
        let pool = PoolId(0, self.pools_made);
        let (use_on_oom, no_split) = (self.numbers.below(2) == 0, self.numbers.below(4) == 0);
        self.allocator.retain_pool(pool, PoolOptions { use_on_oom, no_split });
        self.pools.push(pool);
    }

    fn leave_pool(&mut self) {
        if !self.pools.is_empty() {
            let pool = self.pools.swap_remove(self.numbers.below(self.pools.len()));
            self.allocator.release_pool(pool);
        }
    }

    /// The statistics are the model's sums.
    fn compare(&self) {
        let statistics = self.allocator.statistics();
        let sum = |bytes: fn(&Live) -> usize| self.live.values().map(bytes).sum::<usize>() as u64;
        assert_eq!(statistics.allocation.all.current, self.live.len() as u64);
        assert_eq!(statistics.requested_bytes.all.current, sum(|live| live.requested_bytes));
        assert_eq!(statistics.allocated_bytes.all.current, sum(|live| live.block.bytes()));
        let info = self.backend.inner().memory_info(0).unwrap();
        let taken_bytes = (info.total_bytes - info.free_bytes) as u64;
        assert_eq!(statistics.reserved_bytes.all.current, taken_bytes, "the device's account");
        let segments = self.allocator.snapshot().segments;
        for live in self.live.values().filter(|live| live.pool != PoolId::DEFAULT) {
            let begins = |segment: &&SegmentInfo| segment.address <= live.block.address();
            let segment = segments.iter().rfind(begins);
            assert_eq!(segment.map(|segment| segment.pool), Some(live.pool), "{:?}", live.block);
        }
    }
}

fn at(block: Allocated) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(block.address()).unwrap())
}

#[test]
fn random_programs_keep_the_laws_on_a_device_of_numbers() {
    let seed = seed();
    for run in 0..4 {
        let null =
            NullBackend::new(NullConfig { capacity_bytes: 256 * MIB, ..NullConfig::default() });
        let device = Device::new(DeviceKind::Null, 0).unwrap();
        let inner: Arc<dyn Backend> = Arc::<NullBackend>::clone(&null);
        Program::new(inner, device, 40 * MIB, seed.wrapping_add(run)).run();
        assert_eq!(null.live(), LiveCounts::default());
    }
}

#[test]
fn random_programs_keep_the_laws_and_the_contents_on_cpu() {
    let config = Config { cpu_memory_bytes: Some(160 * MIB), ..Config::default() };
    let cpu = CpuBackend::new(&config).unwrap();
    Program::new(cpu, Device::cpu(0), 3 * MIB, seed()).run();
}
