//! Loom models of frees under `torch`: memory is handed out behind its uses, joint frees join.
//!
//! The whole allocator runs in them, over numbers; a cell without an order of its own stands for
//! the bytes of a block.
#![expect(unsafe_code, reason = "the bytes of a block have no order of their own")]

use std::sync::Arc;

use loom::thread;

use crate::backend::contract::Backend;
use crate::base::device::{Device, DeviceKind};
use crate::base::size::MIB;
use crate::base::sync::UnsafeCell;
use crate::base::sync::models::model_without_fences;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::loom_device;
use crate::memory::allocator::pending::UsePoint;
use crate::memory::allocator::{CachingAllocator, Request};
use crate::null::{CompletionMode, NullBackend, NullConfig};

/// What stands in a block.
struct Bytes(UnsafeCell<u64>);

// SAFETY: models order their accesses, or loom reports them.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn write(&self, value: u64) {
        // SAFETY: loom reports an access at the same time.
        self.0.with_mut(|bytes| unsafe { *bytes = value });
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|bytes| unsafe { *bytes })
    }
}

struct World {
    null: Arc<NullBackend>,
    device: Device,
    allocator: CachingAllocator,
}

impl World {
    /// A device that no question moves on: only the model's streams do.
    fn new() -> Arc<Self> {
        let completion = CompletionMode::WhenAsked { polls: u32::MAX };
        let null = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let backend: Arc<dyn Backend> = Arc::<NullBackend>::clone(&null);
        let allocator =
            CachingAllocator::new(backend, device, "policy:torch".parse().unwrap()).unwrap();
        Arc::new(Self { null, device, allocator })
    }

    fn stream(&self) -> Arc<StreamCore> {
        loom_device::stream(&(Arc::clone(&self.null) as Arc<dyn Backend>), 1)
    }
}

/// Goal: who is given memory that a stream used comes after that use. One thread frees it behind
/// the use, one stream passes the use, one thread asks for memory.
#[test]
fn loom_memory_is_handed_out_behind_the_use_of_a_stream() {
    model_without_fences(Some(3), || {
        let (world, bytes) = (World::new(), Arc::new(Bytes(UnsafeCell::new(0))));
        let stream = world.stream();
        let block = world.allocator.allocate(Request::new(512, 0)).unwrap();
        let address = block.address();
        let (used, progress) = (Arc::clone(&bytes), Arc::clone(&stream.progress));
        let consumer = thread::spawn(move || {
            used.write(7); // ordered by the progress alone
            progress.advance_device_done(1);
        });
        let (other, given) = (Arc::clone(&world), Arc::clone(&bytes));
        let requester = thread::spawn(move || {
            let taken = other.allocator.allocate(Request::new(512, 0)).unwrap();
            if taken.address() == address {
                assert_eq!(given.read(), 7, "handed out in front of its use");
            }
            other.allocator.free(taken).unwrap();
        });
        world.allocator.free_behind(block, None, &[UsePoint { stream, ticket: 1 }]);
        consumer.join().unwrap();
        requester.join().unwrap();
        world.allocator.empty_cache();
        world.allocator.check_all();
        assert_eq!(world.null.resource_counts().device_bytes, 0);
    });
}

/// Goal: neighbours that two threads free while a third takes a segment's worth are one block in
/// the end, and nothing is counted twice.
#[test]
fn loom_frees_of_several_threads_leave_one_block() {
    model_without_fences(Some(3), || {
        let world = World::new();
        let take = |bytes| world.allocator.allocate(Request::new(bytes, 0)).unwrap();
        let blocks = [take(MIB), take(MIB)];
        let threads = blocks.map(|block| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.allocator.free(block).unwrap())
        });
        let third = take(MIB);
        for thread in threads {
            thread.join().unwrap();
        }
        world.allocator.check_all();
        world.allocator.free(third).unwrap();
        world.allocator.check_all();
        let segments = world.allocator.snapshot().segments;
        assert!(segments.iter().all(|segment| segment.blocks.len() == 1), "{segments:?}");
    });
}
