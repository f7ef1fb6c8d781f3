//! Frees behind streams, and what waits for them.
//!
//! Goal: freed memory is handed out, or given back, exactly when its uses allow that. Method: gates
//! hold streams of the cpu device where a test wants them; the allocator is asked meanwhile. On the
//! null kind devices are late by a count of polls. What holds under both policies is tested under
//! both.
#![expect(unsafe_code, reason = "plays an owner that frees twice")]

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::backend::contract::Backend;
use crate::backend::cpu::CpuBackend;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{Error, RuntimeError};
use crate::base::size::MIB;
use crate::engine::stream::Stream;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::pending::UsePoint;
use crate::memory::allocator::reclaim::CLOSED_FREES;
use crate::memory::allocator::{Allocated, CachingAllocator, PoolId, PoolOptions, Request};
use crate::null::{CompletionMode, NullBackend, NullConfig};
use crate::runtime::Runtime;

const TORCH: &str = "policy:torch";
const POLICIES: [&str; 2] = ["policy:native", TORCH];

struct World {
    runtime: Runtime,
    device: Device,
    allocator: CachingAllocator,
}

/// A task that a stream stays at until this is dropped.
struct Gate(#[expect(dead_code, reason = "it is there to be dropped")] Sender<()>);

impl World {
    fn new(settings: &str, backend: Arc<dyn Backend>, device: Device, config: Config) -> Self {
        let runtime = Runtime::with_backends(config, [Arc::clone(&backend)]).unwrap();
        let allocator = CachingAllocator::new(backend, device, settings.parse().unwrap()).unwrap();
        Self { runtime, device, allocator }
    }

    fn cpu(settings: &str, capacity_bytes: usize) -> Self {
        let config = Config { cpu_memory_bytes: Some(capacity_bytes), ..Config::default() };
        Self::new(settings, CpuBackend::new(&config).unwrap(), Device::cpu(0), config)
    }

    fn with_one_worker(settings: &str, capacity_bytes: usize) -> Self {
        let cpu_memory_bytes = Some(capacity_bytes);
        let config = Config { cpu_memory_bytes, cpu_threads: Some(1), ..Config::default() };
        Self::new(settings, CpuBackend::new(&config).unwrap(), Device::cpu(0), config)
    }

    fn late(settings: &str, polls: u32) -> Self {
        Self::late_of(settings, polls, NullConfig::default().capacity_bytes)
    }

    fn late_of(settings: &str, polls: u32, capacity_bytes: usize) -> Self {
        let completion = CompletionMode::WhenAsked { polls };
        let config = NullConfig { capacity_bytes, completion, ..NullConfig::default() };
        let null = NullBackend::new(config);
        let config = Config { accelerator: Some(DeviceKind::NULL), ..Config::default() };
        Self::new(settings, null, Device::new(DeviceKind::NULL, 0).unwrap(), config)
    }

    fn stream(&self) -> Stream {
        self.runtime.stream(self.device).unwrap()
    }

    fn take(&self, home: &Stream, bytes: usize) -> Result<Allocated, Error> {
        let request = Request::new(bytes, home.core().key());
        let block =
            self.allocator.allocate_unless(request, Some(home.core()), &mut Interrupt::default());
        self.allocator.check_all();
        block
    }

    /// Frees a block behind uses: where it was.
    fn free(&self, block: Allocated, home: &Stream, others: &[&Stream]) -> u64 {
        let address = block.address();
        let others: Vec<UsePoint> = others.iter().map(|stream| point(stream)).collect();
        self.allocator.free_behind(block, Some(&point(home)), &others);
        self.allocator.check_all();
        address
    }

    fn reserved_bytes(&self) -> u64 {
        self.allocator.statistics().reserved_bytes.all.current
    }

    fn awaiting(&self) -> u64 {
        let statistics = self.allocator.statistics();
        statistics.active.all.current - statistics.allocation.all.current
    }
}

/// Everything that was enqueued so far.
fn point(stream: &Stream) -> UsePoint {
    let core = stream.core();
    UsePoint { stream: Arc::clone(core), ticket: core.pushed() }
}

fn gate(stream: &Stream) -> Gate {
    let (sender, receiver) = mpsc::channel::<()>();
    stream.enqueue(move || _ = receiver.recv()).unwrap();
    Gate(sender)
}

/// A gate at which a worker is: a thread that waits for the stream does not get there itself.
fn gate_with_a_worker(stream: &Stream) -> Gate {
    let (sender, receiver) = mpsc::channel::<()>();
    let (begun, is_begun) = mpsc::channel();
    let wait = move || {
        begun.send(()).unwrap();
        let _ = receiver.recv();
    };
    stream.enqueue(wait).unwrap();
    is_begun.recv().unwrap();
    Gate(sender)
}

#[test]
fn garbage_whose_stream_is_done_goes_back_on_a_driver_that_was_not_asked() {
    // 256 MiB are allowed, so above 128 MiB garbage is collected.
    let settings = "per_process_memory_fraction:0.25,garbage_collection_threshold:0.5";
    let world = World::late_of(settings, 0, 1 << 30);
    let [home, other] = [world.stream(), world.stream()];
    let old = [(); 3].map(|()| world.take(&home, 40 * MIB).unwrap());
    home.core().enqueue(EmptyTask, Always);
    for block in old {
        world.free(block, &home, &[]);
    }
    let _young = world.take(&other, 50 * MIB).unwrap();
    let _asks = world.take(&other, 60 * MIB).unwrap();
    assert_eq!(world.reserved_bytes(), 110 * MIB as u64, "the three old ones are gone");
}

#[test]
fn oversize_blocks_whose_stream_is_done_go_back_on_a_driver_that_was_not_asked() {
    // Of 800 MiB two oversize blocks are free, of which the larger one is enough.
    let world = World::late_of("max_split_size_mb:40", 0, 1 << 30);
    let home = world.stream();
    let blocks = [300, 500].map(|mib| world.take(&home, mib * MIB).unwrap());
    home.core().enqueue(EmptyTask, Always);
    for block in blocks {
        world.free(block, &home, &[]);
    }
    let _asks = world.take(&home, 400 * MIB).unwrap();
    assert_eq!(world.allocator.statistics().num_alloc_retries, 0, "no other had to go back");
    assert_eq!(world.reserved_bytes(), 700 * MIB as u64);
}

#[test]
fn its_own_stream_has_a_block_again_at_once() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let home = world.stream();
        let block = world.take(&home, 5 * MIB).unwrap();
        let held = gate(&home);
        let freed = world.free(block, &home, &[]);
        let again = world.take(&home, 5 * MIB).unwrap();
        assert_eq!(again.address(), freed);
        drop(held);
    }
}

#[test]
fn a_block_waits_for_each_stream_that_uses_it_and_for_no_other() {
    for settings in POLICIES {
        let world = World::cpu(settings, 256 * MIB);
        let (home, first, second) = (world.stream(), world.stream(), world.stream());
        let [one, two, three, four] = [(); 4].map(|()| world.take(&home, 30 * MIB).unwrap());
        let (first_gate, second_gate) = (gate(&first), gate(&second));
        world.free(one, &home, &[&first]);
        let two = world.free(two, &home, &[&second]);
        world.free(three, &home, &[&first, &second]);
        world.free(four, &home, &[&second, &first]);
        assert_eq!(world.awaiting(), 4);
        drop(second_gate); // the stream that was asked for last is done first
        second.synchronize().unwrap();
        assert_eq!(world.awaiting(), 3);
        let again = world.take(&home, 30 * MIB).unwrap();
        assert_eq!(again.address(), two);
        drop(first_gate);
        first.synchronize().unwrap();
        assert_eq!(world.awaiting(), 0);
    }
}

#[test]
fn a_block_that_waits_for_a_stream_counts_once_in_the_peak_of_what_is_in_use() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let block = world.take(&home, 20 * MIB).unwrap();
        let held = gate(&other);
        world.free(block, &home, &[&other]);
        assert_eq!(world.awaiting(), 1);
        assert_eq!(world.allocator.statistics().active_bytes.all.peak, 20 << 20);
        drop(held);
    }
}

#[test]
fn a_stream_that_ended_is_waited_for_no_more() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let block = world.take(&home, 512).unwrap();
        let held = gate(&other);
        world.free(block, &home, &[&other]);
        let core = Arc::downgrade(other.core());
        drop((other, held));
        while core.strong_count() > 0 {
            thread::yield_now();
        }
        assert_eq!(world.awaiting(), 0);
    }
}

#[test]
fn what_waits_for_a_stream_that_is_gone_is_not_forgotten_with_it() {
    // Method: after the stream's end come so many that those that are over are looked for, and
    // nothing asks in between which frees are complete, as the checks of the laws do.
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let [block, rest @ ..] = [(); 200].map(|()| world.take(&home, 512).unwrap());
        let held = gate(&other);
        let use_point = point(&other);
        world.allocator.free_behind(block, Some(&point(&home)), &[use_point]);
        drop(held);
        other.synchronize().unwrap();
        let core = Arc::downgrade(other.core());
        drop(other);
        while core.strong_count() > 0 {
            thread::yield_now(); // a worker has it
        }
        for block in rest {
            let use_point = point(&world.stream());
            world.allocator.free_behind(block, Some(&point(&home)), &[use_point]);
        }
        assert_eq!(world.awaiting(), 0);
    }
}

#[test]
fn memory_goes_back_to_the_device_only_when_its_own_stream_is_done_too() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let home = world.stream();
        let block = world.take(&home, 30 * MIB).unwrap();
        let held = gate(&home);
        world.free(block, &home, &[]);
        world.allocator.trim();
        assert_eq!(world.reserved_bytes(), 30 << 20, "a queued task may use it");
        drop(held);
        world.allocator.empty_cache(); // waits
        assert_eq!(world.reserved_bytes(), 0);
    }
}

#[test]
fn a_wait_for_pending_uses_can_be_given_up() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let [large, small] = [30 * MIB, 512].map(|bytes| world.take(&home, bytes).unwrap());
        let held = gate_with_a_worker(&other);
        world.free(large, &home, &[&other]);
        world.free(small, &home, &[]);
        let waited = world.allocator.empty_cache_unless(&mut Interrupt::by(&mut || true));
        assert!(matches!(waited, Err(Error::Runtime(RuntimeError::Interrupted))), "{waited:?}");
        assert_eq!(world.reserved_bytes(), 30 << 20, "what is not in use went back");
        drop(held);
    }
}

#[test]
fn short_memory_waits_for_a_stream_that_holds_enough() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let block = world.take(&home, 40 * MIB).unwrap();
        other.enqueue(|| {}).unwrap();
        let held = gate(&other);
        world.free(block, &home, &[&other]);
        let opener = thread::spawn(move || drop(held));
        let own = world.stream();
        let _ = world.take(&own, 50 * MIB).unwrap();
        assert_eq!(world.reserved_bytes(), 50 << 20);
        if settings == TORCH {
            // The other policy moves pages, and is not short of them once the gate is open.
            assert_eq!(world.allocator.statistics().num_sync_all_streams, 1);
        }
        opener.join().unwrap();
    }
}

#[test]
fn short_memory_waits_where_what_is_freed_joins_what_is_free() {
    // PyTorch waits for everybody, merges, and serves the request.
    let world = World::with_one_worker(TORCH, 20 * MIB);
    let (home, other, busy) = (world.stream(), world.stream(), world.stream());
    let held = gate(&busy);
    let (first, second) =
        (world.take(&home, 9 * MIB).unwrap(), world.take(&home, 9 * MIB).unwrap());
    let kept = world.take(&home, 2 * MIB).unwrap(); // so that the segment stays
    other.enqueue(|| {}).unwrap(); // the wait for memory executes it
    let first = world.free(first, &home, &[]);
    world.free(second, &home, &[&other]);
    assert_eq!(world.take(&home, 18 * MIB).unwrap().address(), first);
    world.free(kept, &home, &[]);
    drop(held);
}

#[test]
fn a_block_is_given_back_once_also_when_its_place_is_taken_again() {
    let world = World::cpu(TORCH, 64 * MIB);
    let home = world.stream();
    let block = world.take(&home, 512).unwrap();
    // SAFETY: a mistake that the type forbids; there is no memory of a program's here.
    let stale = unsafe { block.give_up() };
    let freed = world.free(block, &home, &[]);
    let again = world.take(&home, 512).unwrap();
    assert_eq!(again.address(), freed);
    let refused = world.allocator.free(stale).unwrap_err();
    assert_eq!(refused.block.address(), freed);
    assert!(world.allocator.block_at(freed).is_some(), "it is in use by another program");
}

#[test]
fn short_memory_waits_for_nobody_when_all_together_hold_too_little() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let kept = world.take(&home, 30 * MIB).unwrap();
        let block = world.take(&home, 20 * MIB).unwrap();
        let held = gate(&other);
        world.free(block, &home, &[&other]);
        let refused = world.take(&home, 40 * MIB).unwrap_err(); // with the gate closed
        let expected = "20.00 MiB are freed but still used by streams, 0 B are free";
        assert!(refused.to_string().contains(expected), "{refused}");
        let statistics = world.allocator.statistics();
        assert_eq!(statistics.num_sync_all_streams, 1, "PyTorch's count, which would have waited");
        drop(held);
        world.free(kept, &home, &[]);
    }
}

#[test]
fn a_pool_is_searched_again_for_what_became_free_in_the_meantime() {
    for settings in POLICIES {
        // PyTorch fails here: after everything free went back it asks the device alone. The one
        // worker is held, so it is the wait for memory that executes the other stream.
        let world = World::with_one_worker(settings, 64 * MIB);
        let (home, other, busy) = (world.stream(), world.stream(), world.stream());
        let held = gate(&busy);
        let kept = world.take(&home, 9 * MIB).unwrap(); // shares its segment with the next
        let block = world.take(&home, 9 * MIB).unwrap();
        let filling = world.take(&home, 44 * MIB).unwrap();
        other.enqueue(|| {}).unwrap();
        let freed = world.free(block, &home, &[&other]);
        let again = world.take(&home, 9 * MIB).unwrap();
        assert_eq!(again.address(), freed);
        drop(held);
        world.free(kept, &home, &[]);
        world.free(filling, &home, &[]);
    }
}

#[test]
fn a_driver_is_asked_how_far_it_is() {
    for settings in POLICIES {
        let world = World::late(settings, 3);
        let (home, other) = (world.stream(), world.stream());
        let block = world.take(&home, 512).unwrap();
        other.core().enqueue(EmptyTask, Always);
        let freed = world.free(block, &home, &[&other]);
        let late = world.take(&home, 512).unwrap();
        assert_ne!(late.address(), freed, "the device was asked once");
        while world.awaiting() > 0 {} // each look is a poll
        assert_eq!(world.take(&home, 512).unwrap().address(), freed);
    }
}

#[test]
fn a_request_waits_for_another_streams_use_of_a_page_that_is_shared() {
    let world = World::late_of("policy:native", u32::MAX, 2 * MIB);
    let [user, other] = [world.stream(), world.stream()];
    let hole = world.take(&user, 3 * MIB / 2).unwrap();
    let kept = world.take(&user, MIB / 2).unwrap(); // so the page cannot move
    user.record_event().unwrap();
    world.free(hole, &user, &[]);
    let served = world.take(&other, 3 * MIB / 2).unwrap();
    world.free(kept, &user, &[]);
    world.free(served, &other, &[]);
}

#[test]
fn what_waits_for_a_task_of_a_stream_does_not_wait_for_a_later_one() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let [first, second] = [(); 2].map(|()| world.take(&home, 24 * MIB).unwrap());
        let first_gate = gate_with_a_worker(&other);
        let first = world.free(first, &home, &[&other]);
        let second_gate = gate(&other);
        world.free(second, &home, &[&other]);
        drop(first_gate);
        while other.core().progress.done() < 1 {
            thread::yield_now();
        }
        assert_eq!(world.awaiting(), 1, "{settings}: the second one");
        assert_eq!(world.take(&home, 24 * MIB).unwrap().address(), first);
        drop(second_gate);
    }
}

#[test]
fn threads_keep_pieces_again_after_memory_was_short() {
    let world = World::cpu("policy:native", 64 * MIB);
    let home = world.stream();
    let caches = &world.allocator.caches;
    assert!(caches.is_on());
    world.take(&home, 65 * MIB).unwrap_err();
    assert_eq!(world.allocator.statistics().num_sync_all_streams, 1, "it had its turn");
    assert!(caches.is_on(), "behind a request that failed");
    let frees_of_a_round = || {
        let before = world.allocator.state.lock().native.frees;
        let block = world.allocator.allocate(Request::new(512, 0)).unwrap();
        world.allocator.free(block).unwrap();
        world.allocator.state.lock().native.frees - before
    };
    assert_eq!(frees_of_a_round(), 1, "nothing is kept yet");
    let to_heaps: u64 = (0..2 * CLOSED_FREES).map(|_| frees_of_a_round()).sum();
    assert_eq!(to_heaps, CLOSED_FREES - 1, "then pieces are kept again");
    assert_eq!(world.awaiting(), 0);
}

#[test]
fn whether_streams_are_to_be_waited_for_is_asked_without_dropping_one_under_the_lock() {
    // Goal: the last reference to a stream, which drops what it has, is dropped without the lock.
    // Method: every drop of a list of streams asserts that.
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let [home, other] = [(); 2].map(|()| world.stream());
        let block = world.take(&home, 20 * MIB).unwrap();
        let gate = gate(&other);
        world.free(block, &home, &[&other]);
        assert!(!world.allocator.is_idle(), "{settings}");
        drop(gate);
        other.synchronize().unwrap();
        assert!(world.allocator.is_idle(), "{settings}");
    }
}

#[test]
fn what_is_deterministic_takes_nothing_from_how_far_streams_are_in_pools_of_whole_blocks_either() {
    // Method: a block that another stream has passed serves again behind a synchronise alone.
    let world = World::cpu("deterministic:True", 64 * MIB);
    let (pool, options) = (PoolId(0, 1), PoolOptions { no_split: true, ..PoolOptions::default() });
    world.allocator.retain_pool(pool, options);
    let [home, other] = [(); 2].map(|()| world.stream());
    let take = || {
        let request = Request::new(2 * MIB, home.core().key()).from_pool(pool);
        world
            .allocator
            .allocate_unless(request, Some(home.core()), &mut Interrupt::default())
            .unwrap()
    };
    let first = take();
    let gate = gate(&other);
    let address = world.free(first, &home, &[&other]);
    drop(gate);
    other.synchronize().unwrap();
    let [second, third] = [(); 2].map(|()| take());
    assert!(![second.address(), third.address()].contains(&address));
    world.allocator.device_was_synchronized(world.device);
    let fourth = take();
    assert_eq!(fourth.address(), address);
    for block in [second, third, fourth] {
        world.allocator.free(block).unwrap();
    }
}

/// Goal: as for pages (`memory_goes_back_to_the_device_only_when_its_own_stream_is_done_too`), a
/// segment stays while its stream uses it. Method: shared memory, which has no pages.
#[test]
fn a_segment_goes_back_only_when_its_own_stream_is_done() {
    let world = World::late("policy:native", u32::MAX);
    let World { runtime, device, allocator } = world;
    let beside = Arc::new(allocator);
    let shared = CachingAllocator::shared(&beside, "policy:native".parse().unwrap()).unwrap();
    let home = runtime.stream(device).unwrap();
    let request = Request::new(30 * MIB, home.core().key());
    let block =
        shared.allocate_unless(request, Some(home.core()), &mut Interrupt::default()).unwrap();
    home.record_event().unwrap();
    shared.free_behind(block, Some(&point(&home)), &[]);
    shared.trim();
    let reserved_bytes = shared.statistics().reserved_bytes.all.current;
    assert_eq!(reserved_bytes, 30 << 20, "a queued task may use it");
    shared.empty_cache(); // waits
    assert_eq!(shared.statistics().reserved_bytes.all.current, 0);
}

/// Goal: what awaits its free is active and not yet freed, by the sums too.
#[test]
fn what_awaits_its_free_is_not_freed() {
    for settings in POLICIES {
        let world = World::cpu(settings, 64 * MIB);
        let (home, other) = (world.stream(), world.stream());
        let block = world.take(&home, 3 * MIB).unwrap();
        let held = gate(&other);
        world.free(block, &home, &[&other]);
        let sums = || {
            let statistics = world.allocator.statistics();
            [statistics.allocation, statistics.active].map(|stat| stat.all.freed)
        };
        assert_eq!(sums(), [1, 0], "{settings}");
        drop(held);
        other.synchronize().unwrap();
        world.allocator.empty_cache();
        assert_eq!(sums(), [1, 1], "{settings}");
    }
}

/// Goal: what awaited its free before a reset is in no peak behind it.
#[test]
fn what_awaited_its_free_before_a_reset_is_in_no_peak() {
    let world = World::cpu("policy:native", 64 * MIB);
    let (home, other) = (world.stream(), world.stream());
    let block = world.take(&home, 512).unwrap();
    let held = gate(&other);
    world.free(block, &home, &[&other]);
    drop(held);
    other.synchronize().unwrap();
    world.allocator.empty_cache();
    world.allocator.reset_peak_statistics();
    let request = Request::new(512, home.core().key());
    let block = world
        .allocator
        .allocate_unless(request, Some(home.core()), &mut Interrupt::default())
        .unwrap();
    let active = world.allocator.statistics().active.all;
    assert_eq!((active.current, active.peak), (1, 1));
    world.free(block, &home, &[]);
}

/// Goal: drivers are asked about as many streams as frees that wait before the device is asked for
/// more. Method: a request that what all of them together hold serves.
#[test]
fn drivers_are_asked_before_the_device_is() {
    let world = World::late("policy:native", 0);
    let home = world.stream();
    let others: Vec<Stream> = (0..8).map(|_| world.stream()).collect();
    let blocks: Vec<_> = others.iter().map(|_| world.take(&home, 20 * MIB).unwrap()).collect();
    let request = |bytes| {
        let request = Request::new(bytes, home.core().key());
        world.allocator.allocate_unless(request, Some(home.core()), &mut Interrupt::default())
    };
    for (block, other) in blocks.into_iter().zip(&others) {
        other.core().enqueue(EmptyTask, Always);
        world.allocator.free_behind(block, Some(&point(&home)), &[point(other)]);
    }
    let all = request(160 * MIB).unwrap();
    assert_eq!(world.reserved_bytes(), 160 << 20);
    world.free(all, &home, &[]);
}
