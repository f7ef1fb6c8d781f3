//! An allocator and many streams.
//!
//! Goal: what a free and a request cost does not grow with the streams that are known, and nothing
//! is kept of those that are gone. Method: steps are counted, with few and with many streams.

use std::sync::Arc;
use std::sync::mpsc;

use crate::allocator::pending::UsePoint;
use crate::allocator::{Allocated, CachingAllocator, Request};
use crate::backend::cpu::CpuBackend;
use crate::config::Config;
use crate::device::Device;
use crate::event::Event;
use crate::runtime::Runtime;
use crate::size::MIB;
use crate::steps::steps_of;
use crate::stream::{Completion, Stream};

const POLICIES: [&str; 2] = ["policy:native", "policy:torch"];

struct World {
    runtime: Runtime,
    allocator: CachingAllocator,
}

impl World {
    fn new(settings: &str) -> Self {
        let config = Config { cpu_memory_bytes: Some(8192 * MIB), ..Config::default() };
        let backend = CpuBackend::new(&config).unwrap();
        let allocator =
            CachingAllocator::new(backend.clone(), Device::cpu(0), settings.parse().unwrap());
        let runtime = Runtime::with_backends(config, [backend as Arc<_>]).unwrap();
        Self { runtime, allocator: allocator.unwrap() }
    }

    fn stream(&self) -> Stream {
        self.runtime.dedicated_stream(Device::cpu(0), 0).unwrap()
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
        self.allocator.allocate_unless(request, Some(home.core()), &mut None).unwrap()
    }

    /// Frees a block behind what was enqueued on its own stream and on another one.
    fn free(&self, block: Allocated, home: &Stream, other: Option<&Stream>) {
        let others: Vec<UsePoint> = other.into_iter().map(point).collect();
        self.allocator.free_behind(block, Some(&point(home)), &others);
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
