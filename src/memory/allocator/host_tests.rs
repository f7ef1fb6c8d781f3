//! Tests of pinned host memory.
//!
//! Goal: it is cut and joined without waste, handed out again only when every stream has passed
//! its use, and counted as PyTorch counts. Method: hand-made requests over the backend `null`;
//! random ones over `null` and `cpu` beside a naive model, which on `cpu` writes every block full
//! and reads it back before the free.
#![expect(unsafe_code, reason = "writes and reads the blocks that were handed out")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use crate::backend::contract::Backend;
use crate::memory::allocator::host::{DurationStat, HOST_BUCKETS, HostStatistics};
use crate::memory::allocator::pending::UsePoint;
use crate::memory::allocator::{Allocated, CachingAllocator, Request};

use crate::backend::cpu::CpuBackend;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::size::MIB;
use crate::engine::stream::Stream;
use crate::fault::{Fault, FaultBackend, FaultError, Method};
use crate::null::{NullBackend, NullConfig};
use crate::numbers::Numbers;
use crate::runtime::Runtime;
use crate::seed::seed;

/// An allocator of pinned memory, whose blocks are for all streams.
struct Host(CachingAllocator);

impl Host {
    fn over(backend: Arc<dyn Backend>, settings: &str) -> Self {
        let device = Device::new(backend.kind(), 0).unwrap();
        Self(CachingAllocator::pinned(backend, device, settings.parse().unwrap()))
    }

    fn null(settings: &str) -> Self {
        Self::over(NullBackend::new(NullConfig::default()), settings)
    }

    fn take(&self, bytes: usize) -> Allocated {
        self.0.allocate(Request::new(bytes, 0)).unwrap()
    }

    /// Frees a block: where it was. Here and below.
    fn free(&self, block: Allocated) -> u64 {
        let address = block.address();
        self.0.free(block).unwrap();
        address
    }

    fn free_behind(&self, block: Allocated, uses: &[UsePoint]) -> u64 {
        let address = block.address();
        self.0.free_behind(block, None, uses);
        address
    }

    fn statistics(&self) -> HostStatistics {
        self.0.host_statistics().unwrap()
    }
}

/// Streams of a cpu device whose first tasks wait until the test lets them go.
struct Gated {
    stream: Stream,
    open: Sender<()>,
}

impl Gated {
    fn new(runtime: &Runtime) -> Self {
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let (open, gate) = channel();
        stream.enqueue(move || _ = gate.recv()).unwrap();
        Self { stream, open }
    }

    /// The task that waits, as a use of memory.
    fn point(&self) -> UsePoint {
        let stream = Arc::clone(self.stream.core());
        let ticket = stream.pushed();
        UsePoint { stream, ticket }
    }

    fn pass(self) {
        self.open.send(()).unwrap();
        self.stream.synchronize().unwrap();
    }
}

#[test]
fn blocks_are_cut_from_a_segment_and_joined_again() {
    let host = Host::null("");
    let [a, b, c] = [1000, 2000, 3000].map(|bytes| host.take(bytes));
    assert_eq!([&a, &b, &c].map(Allocated::bytes), [1024, 2048, 3072]);
    assert_eq!([&b, &c].map(|block| block.address() - a.address()), [1024, 3072]);
    let start = a.address();
    assert_eq!(host.statistics().allocated_bytes.current, 2 << 20);
    for block in [a, c, b] {
        host.free(block);
        host.0.check_all();
    }
    let whole = host.take(2 * MIB);
    assert_eq!(whole.address(), start, "what was cut is one block again");
    assert_eq!(host.statistics().allocations.allocated, 1);
    host.free(whole);
}

#[test]
fn the_smallest_block_that_is_large_enough_serves_a_request() {
    let host = Host::null("");
    let mut blocks = [4096, 512, 1024, 512, 2048, 512].map(|bytes| host.take(bytes));
    let freed = [0, 2, 4].map(|index: usize| host.free(std::mem::take(&mut blocks[index])));
    let found = [2000, 600, 4096].map(|bytes| host.take(bytes));
    assert_eq!(found.each_ref().map(Allocated::address), [freed[2], freed[1], freed[0]]);
    host.0.check_all();
    for block in blocks.into_iter().chain(found) {
        host.free(block);
    }
}

#[test]
fn no_power_of_two_is_wasted() {
    let host = Host::null("");
    let large = host.take(65 * MIB + 1);
    assert_eq!(large.bytes(), 65 * MIB + 512);
    let statistics = host.statistics();
    assert_eq!(statistics.allocated_bytes.current, (65 << 20) + 4096);
    assert_eq!(statistics.active_bytes.current, (65 << 20) + 512);
    assert_eq!(statistics.bucket_allocation[27], 1);
    host.free(large);
}

#[test]
fn an_address_inside_of_a_block_names_it() {
    let host = Host::null("");
    let [a, b] = [512, 512].map(|bytes| host.take(bytes));
    let (first, second) = (a.address(), b.address());
    for (address, base) in [(first + 511, first), (second, second), (second + 1, second)] {
        assert_eq!(host.0.block_at(address).map(|block| block.address), Some(base));
    }
    host.free(b);
    assert_eq!(host.0.block_at(second), None);
    assert_eq!(host.0.block_at(7), None);
    host.free(a);
}

#[test]
fn a_stream_that_is_late_holds_back_only_what_it_used() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let host = Host::null("pinned_reserve_segment_size_mb:1");
    let (late, early) = (Gated::new(&runtime), Gated::new(&runtime));
    let [a, b] = [MIB, MIB].map(|bytes| host.take(bytes));
    let a = host.free_behind(a, &[late.point()]);
    let b = host.free_behind(b, &[early.point()]);
    let other = host.take(MIB);
    assert_ne!(other.address(), a);
    assert_ne!(other.address(), b);
    early.pass();
    assert_eq!(host.statistics().active_requests.current, 2, "the late one and the new one");
    let again = host.take(MIB);
    assert_eq!(again.address(), b, "the first in line is not done, the second is");
    late.pass();
    assert_eq!(host.statistics().active_requests.current, 2);
    for block in [other, again] {
        host.free(block);
    }
    host.0.check_all();
}

#[test]
fn a_block_waits_for_every_stream_that_used_it() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let host = Host::null("");
    let (first, second) = (Gated::new(&runtime), Gated::new(&runtime));
    let block = host.take(2 * MIB);
    let freed = host.free_behind(block, &[first.point(), second.point()]);
    first.pass();
    let other = host.take(2 * MIB);
    assert_ne!(other.address(), freed);
    second.pass();
    let again = host.take(2 * MIB);
    assert_eq!(again.address(), freed);
    for block in [other, again] {
        host.free(block);
    }
}

#[test]
fn what_is_too_large_to_be_kept_goes_back_when_no_stream_uses_it_any_more() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let host = Host::null("pinned_max_cached_size_mb:1,pinned_reserve_segment_size_mb:1");
    for is_home in [true, false] {
        let gated = Gated::new(&runtime);
        let point = gated.point();
        let request = Request::new(5 * MIB, point.stream.key());
        let block = host.0.allocate(request).unwrap();
        let freed = host.statistics().allocations.freed;
        if is_home {
            host.0.free_behind(block, Some(&point), &[]);
        } else {
            host.free_behind(block, &[point]);
        }
        let small = host.take(512);
        assert_eq!(host.statistics().allocations.freed, freed, "a queued task may use it");
        gated.pass();
        host.free(small);
        let small = host.take(512); // any request looks
        assert_eq!(host.statistics().allocations.freed, freed + 1, "home: {is_home}");
        host.free(small);
        host.0.check_all();
    }
}

#[test]
fn an_empty_cache_waits_for_what_is_in_use_and_keeps_what_is_handed_out() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let host = Host::null("");
    let gated = Gated::new(&runtime);
    let [a, b] = [2 * MIB, 2 * MIB].map(|bytes| host.take(bytes));
    host.free_behind(a, &[gated.point()]);
    std::thread::scope(|scope| {
        scope.spawn(|| host.0.empty_cache());
        gated.pass();
    });
    let statistics = host.statistics();
    assert_eq!((statistics.allocations.current, statistics.allocations.freed), (1, 1));
    assert_eq!(statistics.host_free_time.count, 1);
    host.free(b);
}

#[test]
fn a_driver_without_memory_gets_the_cache_back_and_is_asked_again() {
    let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
    let host = Host::over(Arc::clone(&backend) as Arc<dyn Backend>, "");
    let (kept, cached) = (host.take(2 * MIB), host.take(4 * MIB));
    host.free(cached);
    backend.plan(Fault::nth(Method::AllocateHost, 1, FaultError::OutOfMemory));
    let large = host.take(16 * MIB);
    let statistics = host.statistics();
    assert_eq!((statistics.allocations.allocated, statistics.allocations.freed), (3, 1));
    backend.clear();
    backend.plan(Fault::always(Method::AllocateHost, FaultError::OutOfMemory));
    let error = host.0.allocate(Request::new(64 * MIB, 0)).unwrap_err();
    // The driver's numbers: the books of the host have no limit to tell.
    let total_bytes = NullConfig::default().capacity_bytes;
    let crate::Error::Memory(crate::MemoryError::OutOfMemory { total_bytes: told, .. }) = error
    else {
        panic!("{error}")
    };
    assert_eq!(told, total_bytes);
    host.0.check_all();
    for block in [kept, large] {
        host.free(block);
    }
}

#[test]
fn resets_leave_what_is_current() {
    let host = Host::null("");
    let [a, b] = [512, 512].map(|bytes| host.take(bytes));
    host.free(a);
    host.0.reset_peak_statistics();
    host.0.reset_accumulated_statistics();
    let statistics = host.statistics();
    let requests = statistics.active_requests;
    assert_eq!((requests.current, requests.peak, requests.allocated, requests.freed), (1, 1, 0, 0));
    assert_eq!(statistics.host_alloc_time, DurationStat::default());
    assert_eq!(statistics.bucket_allocation, [0; HOST_BUCKETS]);
    host.free(b);
}

/// A block, and the byte that it is full of.
struct LiveTable {
    block: Allocated,
    byte: u8,
}

fn range(block: &Allocated) -> Range<u64> {
    block.address()..block.address() + block.bytes() as u64
}

fn contents(block: &Allocated) -> &'static mut [u8] {
    let base: *mut u8 = std::ptr::with_exposed_provenance_mut(block.address().try_into().unwrap());
    // SAFETY: a block that was handed out and is not freed yet, whose bytes no other slice has.
    unsafe { std::slice::from_raw_parts_mut(base, block.bytes()) }
}

/// Random requests and frees, some behind streams that are late.
fn run(host: &Host, runtime: &Runtime, numbers: &mut Numbers) {
    let is_real = host.0.device().kind() == DeviceKind::CPU;
    let mut live: Vec<LiveTable> = Vec::new();
    let mut gates: Vec<Gated> = Vec::new();
    let mut waiting: Vec<(Range<u64>, usize)> = Vec::new();
    for step in 0..400 {
        match numbers.below(10) {
            0..5 => {
                let magnitude = 4 + numbers.below(18);
                let bytes = 1 + numbers.below(1 << magnitude);
                let block = host.take(bytes);
                assert!(block.bytes() >= bytes && block.bytes() < bytes + 512);
                assert!(block.address().is_multiple_of(64), "{block:?}");
                let own = range(&block);
                let waiting = waiting.iter().map(|(range, _)| range.clone());
                for other in live.iter().map(|live| range(&live.block)).chain(waiting) {
                    let is_apart = own.end <= other.start || other.end <= own.start;
                    assert!(is_apart, "{block:?} overlaps {other:?}");
                }
                let byte = u8::try_from(step % 251).unwrap();
                if is_real {
                    contents(&block).fill(byte);
                }
                live.push(LiveTable { block, byte });
            }
            5..8 if !live.is_empty() => {
                let LiveTable { block, byte } = live.swap_remove(numbers.below(live.len()));
                if is_real {
                    assert!(contents(&block).iter().all(|found| *found == byte), "{block:?}");
                }
                if gates.is_empty() || numbers.below(2) == 0 {
                    host.free(block);
                } else {
                    let gate = numbers.below(gates.len());
                    waiting.push((range(&block), gate));
                    host.free_behind(block, &[gates[gate].point()]);
                }
            }
            8 if gates.len() < 4 => gates.push(Gated::new(runtime)),
            _ => {
                if let Some(gate) = gates.pop() {
                    gate.pass();
                    waiting.retain(|(_, waits_for)| *waits_for != gates.len());
                }
            }
        }
        let statistics = host.statistics();
        assert_eq!(statistics.active_requests.current, (live.len() + waiting.len()) as u64);
        host.0.check_all();
    }
    gates.into_iter().for_each(Gated::pass);
    for LiveTable { block, .. } in live {
        host.free(block);
    }
    host.0.empty_cache();
    let statistics = host.statistics();
    assert_eq!((statistics.allocations.current, statistics.allocated_bytes.current), (0, 0));
    host.0.check_all();
}

#[test]
fn random_requests_agree_with_a_model() {
    // Each gate holds a worker.
    let config = Config { cpu_threads: Some(6), ..Config::default() };
    let runtime = Runtime::new(config.clone()).unwrap();
    let mut numbers = Numbers::new(seed());
    for settings in ["", "pinned_reserve_segment_size_mb:1", "pinned_max_cached_size_mb:1"] {
        let null = Host::null(settings);
        run(&null, &runtime, &mut numbers);
        let cpu = Host::over(CpuBackend::new(&config).unwrap(), settings);
        run(&cpu, &runtime, &mut numbers);
    }
}

#[test]
fn a_synchronize_completes_the_frees_that_wait_for_its_own_device_alone() {
    // Goal: where offsets are to be the same, how far other devices happen to be is not looked at.
    let runtime = Runtime::new(Config::default()).unwrap();
    let host = Host::null("deterministic:True");
    let gated = Gated::new(&runtime);
    let block = host.take(2 * MIB);
    host.free_behind(block, &[gated.point()]);
    gated.pass();
    let active = || host.statistics().active_requests.current;
    host.0.device_was_synchronized(Device::new(DeviceKind::NULL, 0).unwrap());
    assert_eq!(active(), 1, "a stream of cpu:0 used it");
    host.0.device_was_synchronized(Device::cpu(0));
    assert_eq!(active(), 0);
}

#[test]
fn a_mean_is_of_all_times_and_nothing_where_there_was_none() {
    let times = DurationStat { total_us: 9, count: 4, ..DurationStat::default() };
    assert!((times.avg_us() - 2.25).abs() < f64::EPSILON);
    assert!(DurationStat::default().avg_us().abs() < f64::EPSILON);
}

/// Goal: nothing is lost when the device panics behind a request that was served. Method: a segment
/// goes back because less may be kept now.
#[test]
fn a_panic_as_a_segment_goes_back_keeps_nothing_of_the_request_before_it() {
    let faults = FaultBackend::new(NullBackend::new(NullConfig::default()));
    let host = Host::over(Arc::<FaultBackend>::clone(&faults), "");
    let blocks = [8 * MIB, MIB].map(|bytes| host.take(bytes));
    for block in blocks {
        host.free(block);
    }
    host.0.set_config("pinned_max_cached_size_mb:4".parse().unwrap());
    faults.plan(Fault::nth(Method::ReleaseHost, 1, FaultError::Panic));
    assert!(catch_unwind(AssertUnwindSafe(|| host.take(MIB))).is_err());
    assert_eq!(host.0.statistics().allocated_bytes.all.current, 0);
    host.0.check_all();
}
