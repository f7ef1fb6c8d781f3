//! An allocator and many streams.
//!
//! Goal: what a free and a request cost does not grow with the streams that are known, and nothing
//! is kept of those that are gone. Method: steps are counted, with few and with many streams.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;

use crate::backend::contract::Backend;
use crate::backend::cpu::CpuBackend;
use crate::base::config::Config;
use crate::base::device::Device;
use crate::base::size::MIB;
use crate::base::steps::steps_of;
use crate::engine::event::Event;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::{Completion, Stream};
use crate::fault::{Fault, FaultBackend, FaultError, Method};
use crate::memory::allocator::pending::{LOOKS_BEFORE_GROWTH, UsePoint};
use crate::memory::allocator::{Allocated, CachingAllocator, PoolOptions, Request};
use crate::runtime::{MemPool, Runtime};

const POLICIES: [&str; 2] = ["policy:native", "policy:torch"];

struct World {
    runtime: Runtime,
    allocator: CachingAllocator,
}

impl World {
    fn new(settings: &str) -> Self {
        let config = Config { cpu_memory_bytes: Some(8192 * MIB), ..Config::default() };
        Self::on(CpuBackend::new(&config).unwrap(), settings)
    }

    fn on(backend: Arc<dyn Backend>, settings: &str) -> Self {
        let (cpu, settings) = (Device::cpu(0), settings.parse().unwrap());
        let allocator = CachingAllocator::new(Arc::clone(&backend), cpu, settings).unwrap();
        let runtime = Runtime::with_backends(Config::default(), [backend]).unwrap();
        Self { runtime, allocator }
    }

    fn stream(&self) -> Stream {
        self.runtime.stream(Device::cpu(0)).unwrap()
    }

    fn streams(&self, count: usize) -> Vec<Stream> {
        (0..count).map(|_| self.stream()).collect()
    }

    /// An event that waits until the completion is finished.
    fn gate(&self) -> (Event, Completion) {
        let (sender, begun) = mpsc::channel();
        let (stream, event) = (self.stream(), Event::new());
        stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
        stream.record(&event).unwrap();
        (event, begun.recv().unwrap())
    }

    fn take(&self, home: &Stream, bytes: usize) -> Allocated {
        let request = Request::new(bytes, home.core().key());
        self.allocator
            .allocate_unless(request, Some(home.core()), &mut Interrupt::default())
            .unwrap()
    }

    /// Frees a block behind what was enqueued on its own stream and on another one.
    fn free(&self, block: Allocated, home: &Stream, other: Option<&Stream>) {
        let others: Vec<UsePoint> = other.into_iter().map(point).collect();
        self.allocator.free_behind(block, Some(&point(home)), &others);
    }

    fn heaps_and_areas(&self) -> (usize, usize) {
        self.allocator.state.lock().native.count_heaps_and_areas()
    }

    fn reserved_bytes(&self) -> u64 {
        self.allocator.statistics_so_far().reserved_bytes.all.current
    }
}

/// Everything that was enqueued so far.
fn point(stream: &Stream) -> UsePoint {
    UsePoint { stream: Arc::clone(stream.core()), ticket: stream.core().pushed() }
}

fn wait_for(streams: &[Stream]) {
    for stream in streams {
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_free_that_waits_and_a_request_beside_it_take_as_many_steps_among_many_streams() {
    let steps_among = |settings: &str, count: usize, are_late: bool| {
        let world = World::new(settings);
        let ((event, closed), (late_event, late_closed)) = (world.gate(), world.gate());
        let home = world.stream();
        let streams = world.streams(count);
        for user in &streams {
            user.wait_event(&event).unwrap();
            let block = world.take(&home, 100_000);
            world.free(block, &home, Some(user));
        }
        let mut closed = Some(closed);
        if !are_late {
            closed.take().unwrap().finish(Ok(()));
            wait_for(&streams);
        }
        let late = world.stream();
        late.wait_event(&late_event).unwrap();
        let block = world.take(&home, 100_000);
        let ((), free) = steps_of(|| world.free(block, &home, Some(&late)));
        let (block, request) = steps_of(|| world.take(&home, 100_000));
        world.free(block, &home, None);
        late_closed.finish(Ok(()));
        if let Some(closed) = closed {
            closed.finish(Ok(()));
        }
        world.runtime.synchronize(Device::cpu(0)).unwrap();
        world.allocator.check_all();
        (free, request)
    };
    for settings in POLICIES {
        for are_late in [false, true] {
            let few = steps_among(settings, 10, are_late);
            let many = steps_among(settings, 1000, are_late);
            assert!(many.0 <= few.0 && many.1 <= few.1, "{settings}: {many:?} against {few:?}");
        }
    }
}

#[test]
fn streams_that_frees_waited_for_are_forgotten_also_where_a_free_waits_for_several() {
    for settings in POLICIES {
        let world = World::new(settings);
        let home = world.stream();
        let mut most_known = 0;
        for _ in 0..100 {
            let (event, closed) = world.gate();
            let users = world.streams(10);
            for user in &users {
                user.wait_event(&event).unwrap();
            }
            let others: Vec<UsePoint> = users.iter().map(point).collect();
            let block = world.take(&home, 100);
            world.allocator.free_behind(block, Some(&point(&home)), &others);
            drop(others);
            closed.finish(Ok(()));
            wait_for(&users);
            most_known = most_known.max(world.allocator.state.lock().pending.count_waited_for());
        }
        assert!(most_known <= 40, "{most_known} streams under {settings}");
        world.allocator.check_all();
    }
}

#[test]
fn what_streams_have_passed_serves_requests_before_the_device_is_asked() {
    for settings in POLICIES {
        let world = World::new(settings);
        let (event, closed) = world.gate();
        let home = world.stream();
        let blocks: Vec<_> = (0..64).map(|_| world.take(&home, 3 * MIB)).collect();
        let streams = world.streams(blocks.len());
        for (block, user) in blocks.into_iter().zip(&streams) {
            user.wait_event(&event).unwrap();
            world.free(block, &home, Some(user));
        }
        let reserved_bytes = world.reserved_bytes();
        closed.finish(Ok(()));
        wait_for(&streams);
        let blocks: Vec<_> = (0..64).map(|_| world.take(&home, 3 * MIB)).collect();
        assert_eq!(world.reserved_bytes(), reserved_bytes, "{settings}");
        for block in blocks {
            world.free(block, &home, None);
        }
        world.allocator.check_all();
    }
}

#[test]
fn a_stream_that_has_passed_among_late_ones_serves_a_request_before_the_device_is_asked() {
    const BYTES: usize = 20 * MIB;
    for (settings, quarter) in POLICIES.into_iter().flat_map(|it| (0..4).map(move |n| (it, n))) {
        let world = World::new(settings);
        let home = world.stream();
        let blocks: Vec<_> = (0..LOOKS_BEFORE_GROWTH).map(|_| world.take(&home, BYTES)).collect();
        let reserved_bytes = world.reserved_bytes();
        assert_eq!(reserved_bytes, (blocks.len() * BYTES) as u64, "{settings}: nothing is free");
        let ((late_event, late_closed), (event, closed)) = (world.gate(), world.gate());
        let streams = world.streams(blocks.len());
        let passed = quarter * blocks.len() / 4;
        for (number, (block, user)) in blocks.into_iter().zip(&streams).enumerate() {
            user.wait_event(if number == passed { &event } else { &late_event }).unwrap();
            world.free(block, &home, Some(user));
        }
        closed.finish(Ok(()));
        streams[passed].synchronize().unwrap();
        let block = world.take(&home, BYTES);
        assert_eq!(world.reserved_bytes(), reserved_bytes, "{settings}: stream {passed}");
        world.free(block, &home, None);
        late_closed.finish(Ok(()));
        wait_for(&streams);
        world.allocator.check_all();
    }
}

#[test]
fn a_first_request_of_a_stream_takes_as_many_steps_among_many_streams() {
    let most_steps_among = |count: usize| {
        let world = World::new("policy:native");
        let take = |home: &Stream| world.take(home, 64 << 10);
        let (streams, more) = (world.streams(count), world.streams(64));
        let mut blocks: Vec<_> = streams.iter().map(take).collect();
        let measured = more.iter().map(|home| steps_of(|| take(home)));
        let (late, steps): (Vec<_>, Vec<_>) = measured.unzip();
        blocks.extend(late);
        for (block, home) in blocks.into_iter().zip(streams.iter().chain(&more)) {
            world.free(block, home, None);
        }
        world.allocator.check_all();
        steps.into_iter().max().unwrap()
    };
    // Before the device is asked 16 heaps are looked at, with a block or two in each.
    let (few, many) = (most_steps_among(100), most_steps_among(1000));
    assert!(many <= few + 3 * 16, "{many} steps against {few}");
}

#[test]
fn a_stream_that_memory_of_another_serves_has_no_heap_for_it() {
    // Goal: nothing is made, and no other heap is looked at, for a request that needs none. Method:
    // the streams together have less than a page.
    let world = World::new("policy:native");
    let (first, streams) = (world.stream(), world.streams(20));
    let block = world.take(&first, 64 << 10);
    let blocks: Vec<_> = streams.iter().map(|home| world.take(home, 64 << 10)).collect();
    assert_eq!((world.heaps_and_areas(), world.reserved_bytes()), ((1, 1), 2 * MIB as u64));
    for (block, home) in blocks.into_iter().zip(&streams).chain([(block, &first)]) {
        world.free(block, home, None);
    }
    world.allocator.check_all();
}

#[test]
fn heaps_of_streams_that_are_gone_go_on_to_others() {
    let world = World::new("policy:native");
    let mut seen = Vec::new();
    for round in 0..200 {
        freed_by_a_stream_that_is_gone(&world);
        if round % 50 == 9 {
            seen.push((world.heaps_and_areas(), world.reserved_bytes()));
            world.allocator.check_all();
        }
    }
    assert!(seen.iter().all(|seen| *seen == ((1, 1), 10 * MIB as u64)), "{seen:?}");
}

#[test]
fn heaps_that_went_on_to_others_are_not_found_by_the_streams_before() {
    let world = World::new("policy:native");
    for _ in 0..50 {
        freed_by_a_stream_that_is_gone(&world);
    }
    let owners = world.allocator.state.lock().native.count_owners();
    assert_eq!((owners, world.heaps_and_areas().0), (1, 1));
}

#[test]
fn there_are_no_more_heaps_than_twice_the_streams_that_are_there() {
    let world = World::new("policy:native");
    let mut streams = world.streams(20);
    let mut seen = Vec::new();
    for round in 0..4000 {
        let home = world.stream();
        let block = world.take(&home, 64 << 10);
        world.free(block, &home, None);
        // Each lives as long as twenty others take.
        streams[round % 20] = home;
        if round % 500 == 499 {
            seen.push(world.heaps_and_areas().0);
        }
    }
    assert!(seen.iter().all(|heaps| *heaps <= 2 * 21 + 8), "{seen:?}");
    world.allocator.check_all();
}

#[test]
fn the_heap_of_a_stream_that_is_gone_is_found_at_once_among_many() {
    // Goal: what a first request costs, and the heaps that there are, do not depend on how many
    // streams are known. Method: some streams come in place of others, beside many that stay.
    let world = World::new("policy:native");
    let take = |home: &Stream| world.take(home, MIB + 1); // one each: half of what is in place
    let staying = world.streams(500);
    let kept: Vec<_> = staying.iter().map(take).collect();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let coming = world.streams(32);
        let blocks: Vec<_> = coming.iter().map(take).collect();
        seen.push(world.heaps_and_areas().0);
        for (block, home) in blocks.into_iter().zip(&coming) {
            world.free(block, home, None);
        }
        let far: Vec<_> = coming.iter().map(|home| Arc::clone(&home.core().progress)).collect();
        drop(coming);
        while far.iter().any(|progress| !progress.is_over()) {} // a worker may have one
    }
    // Memory that is left over in a page of another stream serves one or the other.
    assert!(seen.iter().all(|heaps| *heaps <= seen[0] + 4), "{seen:?} heaps");
    for (block, home) in kept.into_iter().zip(&staying) {
        world.free(block, home, None);
    }
    world.allocator.check_all();
}

/// A stream that has passed some tasks, freed blocks behind them, and is gone.
fn freed_by_a_stream_that_is_gone(world: &World) {
    let home = world.stream();
    let progress = Arc::clone(&home.core().progress);
    let blocks = [1000, 9 * MIB].map(|bytes| world.take(&home, bytes));
    for _ in 0..100 {
        home.enqueue(|| {}).unwrap();
    }
    for block in blocks {
        world.free(block, &home, None);
    }
    home.synchronize().unwrap();
    drop(home);
    // A worker may have it for a moment longer, and drops it then, which is told at last.
    while world.allocator.state.lock().native.count_told_ends() == 0 {}
    assert!(progress.is_over());
}

#[test]
fn what_a_stream_freed_before_it_was_gone_is_not_in_use_on_the_next_one() {
    let world = World::new("policy:native");
    freed_by_a_stream_that_is_gone(&world);
    let (next, other) = (world.stream(), world.stream());
    let block = world.take(&next, 1000);
    assert_eq!((world.heaps_and_areas().0, block.busy_until()), (1, 0));
    let reserved_bytes = world.reserved_bytes();
    let moved = world.take(&other, 8 * MIB);
    assert_eq!(world.reserved_bytes(), reserved_bytes, "all of them are idle");
    world.free(block, &next, None);
    world.free(moved, &other, None);
    world.allocator.check_all();
}

#[test]
fn what_the_next_stream_of_a_heap_uses_is_not_moved_away() {
    let world = World::new("policy:native");
    freed_by_a_stream_that_is_gone(&world);
    let (next, other) = (world.stream(), world.stream());
    let block = world.take(&next, 9 * MIB);
    let (event, closed) = world.gate();
    next.wait_event(&event).unwrap();
    let address = block.address();
    world.free(block, &next, None); // behind its first task, where the one before had a hundred
    let reserved_bytes = world.reserved_bytes();
    let taken = world.take(&other, 10 * MIB);
    let new_bytes = world.reserved_bytes() - reserved_bytes;
    assert!(new_bytes >= 8 * MIB as u64, "{new_bytes} B are new, the rest is in use");
    let again = world.take(&next, 9 * MIB);
    let far = again.address().abs_diff(address);
    assert!(far < MIB as u64, "{:#x} is not where {address:#x} was", again.address());
    assert_eq!(again.busy_until(), next.core().pushed());
    closed.finish(Ok(()));
    next.synchronize().unwrap();
    world.free(again, &next, None);
    world.free(taken, &other, None);
    world.allocator.check_all();
}

/// Goal: of a free block those pages move that no stream uses, wherever they are. Method: four
/// blocks side by side become one; its stream still works on the first and the third.
#[test]
fn pages_move_from_between_those_of_one_free_block_that_are_in_use() {
    let world = World::new("policy:native");
    let (home, other) = (world.stream(), world.stream());
    let (event, closed) = world.gate();
    let page_bytes = world.allocator.page_bytes();
    // Of different sizes, which threads do not keep.
    let [first, second, third, fourth] =
        [5, 2, 3, 4].map(|count| world.take(&home, count * page_bytes));
    for block in [second, fourth] {
        world.free(block, &home, None);
    }
    home.wait_event(&event).unwrap();
    for block in [first, third] {
        world.free(block, &home, None);
    }
    let taken = world.take(&other, 6 * page_bytes);
    assert_eq!(world.reserved_bytes(), 14 * page_bytes as u64, "all that was needed moved");
    world.allocator.check_all();
    closed.finish(Ok(()));
    home.synchronize().unwrap();
    world.free(taken, &other, None);
    world.allocator.check_all();
}

#[test]
fn addresses_that_pages_left_go_back_when_their_stream_is_gone() {
    let world = World::new("policy:native");
    let other = world.stream();
    let first = world.take(&other, 3 * MIB);
    freed_by_a_stream_that_is_gone(&world);
    assert_eq!(world.heaps_and_areas(), (2, 2));
    let taken = world.take(&other, 40 * MIB); // large: an area of its own
    assert_eq!(world.heaps_and_areas(), (1, 2));
    world.free(first, &other, None);
    world.free(taken, &other, None);
    world.allocator.check_all();
}

/// Goal: nothing is lost when the device panics behind a request that it served. Method: the
/// request takes the pages of a stream that is gone, whose addresses go back then.
#[test]
fn a_panic_as_addresses_go_back_keeps_nothing_of_the_request_before_it() {
    let faults = FaultBackend::new(CpuBackend::new(&Config::default()).unwrap());
    let world = World::on(Arc::<FaultBackend>::clone(&faults), "policy:native");
    let other = world.stream();
    let first = world.take(&other, 3 * MIB);
    freed_by_a_stream_that_is_gone(&world);
    faults.plan(Fault::nth(Method::VmUnreserve, 1, FaultError::Panic));
    let request = AssertUnwindSafe(|| world.take(&other, 40 * MIB));
    assert!(catch_unwind(request).is_err());
    let allocated = world.allocator.statistics().allocated_bytes.all;
    assert_eq!(allocated.current, first.bytes() as u64);
    world.free(first, &other, None);
    world.allocator.check_all();
}

#[test]
fn pools_that_end_before_their_last_block_leave_nothing_behind() {
    // Goal: a pool for each request, whose handle is dropped first, takes no more with each round.
    // Method: the block of each pool is freed when the next pool is there.
    let runtime = Runtime::new(Config::default()).unwrap();
    let device = Device::cpu(0);
    let allocator = runtime.allocator(device).unwrap();
    let mut last = None;
    for _ in 0..50 {
        let pool = MemPool::new(&runtime, device, PoolOptions::default()).unwrap();
        let inside = pool.enter();
        let block = runtime.empty(100, device).unwrap();
        drop((inside, pool));
        drop(last.replace(block));
    }
    let counts = allocator.state.lock().native.count_heaps_and_areas();
    assert!(counts.0 <= 4, "{counts:?} heaps and areas");
}

/// Goal: of small blocks that go back to their slab together the last use counts, whichever goes
/// back last. Method: one is freed behind a task that waits, one that no task used behind it.
#[test]
fn small_blocks_that_go_back_together_are_as_busy_as_the_busiest() {
    let world = World::new("policy:native");
    let home = world.stream();
    let (event, closed) = world.gate();
    let [busy, idle] = [(); 2].map(|()| world.take(&home, 1000));
    home.wait_event(&event).unwrap();
    world.free(busy, &home, None);
    world.allocator.free(idle).unwrap();
    let reserved_bytes = world.reserved_bytes();
    world.allocator.trim();
    assert_eq!(world.reserved_bytes(), reserved_bytes, "a queued task may use it");
    closed.finish(Ok(()));
    home.synchronize().unwrap();
    world.allocator.trim();
    assert_eq!(world.reserved_bytes(), 0);
}

/// Goal: a page is as busy as the busiest of its small blocks, whichever is freed last. Method: the
/// block that is freed last waits for an earlier task of the stream, which is done by then.
#[test]
fn a_free_behind_an_earlier_task_does_not_end_a_later_use_of_the_page() {
    let world = World::new("policy:native,exact_statistics:True");
    let home = world.stream();
    let ((event, closed), (late_event, late_closed)) = (world.gate(), world.gate());
    let [busy, earlier] = [(); 2].map(|()| world.take(&home, 1000));
    home.wait_event(&event).unwrap();
    let early = point(&home);
    home.wait_event(&late_event).unwrap();
    world.free(busy, &home, None);
    world.allocator.free_behind(earlier, Some(&early), &[]);
    closed.finish(Ok(()));
    while home.core().progress.done() < early.ticket {}
    let reserved_bytes = world.reserved_bytes();
    world.allocator.trim();
    assert_eq!(world.reserved_bytes(), reserved_bytes, "a queued task may use it");
    late_closed.finish(Ok(()));
    home.synchronize().unwrap();
    world.allocator.trim();
    assert_eq!(world.reserved_bytes(), 0);
}

/// Goal: a request that is short waits for the task that uses memory, by the number that this has
/// on its stream. Method: a heap that went on from a stream of a hundred tasks to one with one.
#[test]
fn short_memory_waits_for_the_stream_that_a_heap_went_on_to() {
    let config = Config { cpu_memory_bytes: Some(64 * MIB), ..Config::default() };
    let world = Arc::new(World::on(CpuBackend::new(&config).unwrap(), "policy:native"));
    freed_by_a_stream_that_is_gone(&world);
    let next = world.stream();
    let block = world.take(&next, 40 * MIB);
    let (event, closed) = world.gate();
    next.wait_event(&event).unwrap();
    world.free(block, &next, None);
    let (later, later_closed) = world.gate();
    next.wait_event(&later).unwrap();
    let (told, served) = mpsc::channel();
    let asks = Arc::clone(&world);
    std::thread::spawn(move || {
        let other = asks.stream();
        let request = Request::new(50 * MIB, other.core().key());
        let home = Some(other.core());
        let block = asks.allocator.allocate_unless(request, home, &mut Interrupt::default());
        told.send(block.map(|block| asks.allocator.free(block).unwrap())).unwrap();
    });
    while world.allocator.statistics_so_far().num_sync_all_streams == 0 {
        std::thread::yield_now();
    }
    closed.finish(Ok(()));
    let served = served.recv_timeout(std::time::Duration::from_secs(20));
    later_closed.finish(Ok(()));
    served.expect("it waits for a later task").expect("the stream has passed its task");
}

/// Goal: a heap that a request without its stream made knows the stream from the free on.
#[test]
fn a_free_names_the_stream_of_a_heap() {
    let world = World::new("policy:native,exact_statistics:True");
    let home = world.stream();
    let (event, closed) = world.gate();
    let block = world.allocator.allocate(Request::new(30 * MIB, home.core().key())).unwrap();
    home.wait_event(&event).unwrap();
    world.free(block, &home, None);
    let reserved_bytes = world.reserved_bytes();
    world.allocator.trim();
    assert_eq!(world.reserved_bytes(), reserved_bytes, "a queued task may use it");
    closed.finish(Ok(()));
    home.synchronize().unwrap();
}

/// Goal: what is left of a new page serves other streams before the device is asked, also of a
/// heap that is not among the last that got free memory. Method: many heaps got some since, and
/// have none by now.
#[test]
fn what_is_left_of_a_new_page_serves_others_before_the_device_is_asked() {
    let world = World::new("policy:native");
    let page_bytes = world.allocator.page_bytes();
    let (home, others, last) = (world.stream(), world.streams(20), world.stream());
    let first = world.take(&home, page_bytes);
    let whole: Vec<_> = others.iter().map(|other| world.take(other, 2 * page_bytes)).collect();
    let part = world.take(&home, 64 << 10);
    let reserved_bytes = world.reserved_bytes();
    let rest = world.take(&last, 64 << 10);
    assert_eq!(world.reserved_bytes(), reserved_bytes);
    for (block, home) in whole.into_iter().zip(&others) {
        world.free(block, home, None);
    }
    for (block, home) in [(first, &home), (part, &home), (rest, &last)] {
        world.free(block, home, None);
    }
    world.allocator.check_all();
}

/// Goal: the lists of a work on many pages are not kept. Method: their capacity afterwards.
#[test]
fn the_lists_of_many_pages_are_not_kept() {
    let world = World::new("policy:native");
    let home = world.stream();
    let most_bytes = 3000 * world.allocator.page_bytes();
    let block = world.take(&home, most_bytes);
    let kept = world.allocator.state.lock().native.kept_page_room();
    assert!(kept <= 1024, "room for {kept} pages");
    world.free(block, &home, None);
}

/// Goal: what a stream is served with of another one's is counted.
#[test]
fn memory_of_another_stream_is_counted() {
    let world = World::new("policy:native");
    let (first, second) = (world.stream(), world.stream());
    let block = world.take(&first, 64 << 10);
    let other = world.take(&second, 64 << 10);
    assert_eq!(world.allocator.statistics_so_far().num_frontier_reuses, 1);
    world.free(block, &first, None);
    world.free(other, &second, None);
}
