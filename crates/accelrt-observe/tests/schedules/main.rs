//! The race detector under a schedule, whose virtual clock other tests must not see.
#![expect(unsafe_code, reason = "fills in the order of one stream alone")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::{Buffer, Device, Stream};
use accelrt_observe::sanitizer::Watch;
use accelrt_testing::Schedule;

#[path = "../../../../tests/schedules/support.rs"]
#[expect(dead_code, reason = "other suites use the rest")]
mod support;

use crate::support::World;

#[test]
fn what_a_task_inside_of_another_one_enqueues_is_behind_the_inner_one() {
    let mut num_inside = 0;
    for seed in 0..20 {
        let world = World::new(Schedule::new(seed), 3);
        let watch = Watch::start(&world.runtime);
        let buffer = world.runtime.empty(100, Device::cpu(0)).unwrap();
        fill(&buffer, &world.streams[1]);
        let (third, own) = (world.streams[2].clone(), buffer.clone());
        world.streams[1].enqueue(move || fill(&own, &third)).unwrap();
        let (inner, is_inside) = (world.streams[1].clone(), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&is_inside);
        let outer = move || {
            seen.fetch_add(usize::from(!inner.is_done()), Ordering::Relaxed);
            inner.synchronize().unwrap();
        };
        world.streams[0].enqueue(outer).unwrap();
        world.finish();
        num_inside += is_inside.load(Ordering::Relaxed);
        assert!(watch.findings().is_empty(), "seed {seed}: {:?}", watch.findings());
    }
    assert!(num_inside > 0, "no seed has run the one inside of the other");
}

/// A fill that only its stream orders.
fn fill(buffer: &Buffer, stream: &Stream) {
    // SAFETY: the callers wait for one fill before they enqueue the next.
    drop(unsafe { buffer.fill_unordered(1, stream) }.unwrap());
}
