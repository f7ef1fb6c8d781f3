//! The begin and the end of a schedule: what was enqueued before, what is left, and shutdowns.

use std::sync::mpsc::channel;
use std::thread;

use accelrt::{Config, Device, Event, Runtime};
use accelrt_testing::Schedule;

use crate::support::{World, turn};

#[test]
fn a_schedule_begins_behind_the_work_of_workers_and_they_go_on_at_its_end() {
    let _turn = turn();
    let runtime = Runtime::new(Config::default()).unwrap();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let (tell, told) = channel();
    let task = |what: &'static str| {
        let tell = tell.clone();
        move || tell.send((what, thread::current().id())).unwrap()
    };
    stream.enqueue(task("before")).unwrap();
    let schedule = Schedule::new(1).start(&runtime).unwrap();
    assert_eq!(told.try_recv().unwrap().0, "before");
    stream.enqueue(task("inside")).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(told.try_recv().unwrap(), ("inside", thread::current().id()));
    stream.enqueue(task("left")).unwrap();
    drop(schedule);
    assert_eq!(told.try_recv().unwrap(), ("left", thread::current().id()));
    stream.enqueue(task("after")).unwrap();
    // No thread waits: a worker runs it.
    let (what, thread) = told.recv().unwrap();
    assert!(what == "after" && thread != thread::current().id());
}

#[test]
fn what_is_parked_at_the_end_of_a_schedule_is_run_by_workers() {
    let world = World::new(Schedule::new(1), 1);
    let (keep, kept) = channel();
    world.streams[0].enqueue_deferred(move |completion| keep.send(completion).unwrap()).unwrap();
    let (tell, told) = channel();
    world.streams[0].enqueue(move || tell.send(()).unwrap()).unwrap();
    let World { schedule, streams, .. } = world;
    assert!(!streams[0].is_done());
    drop(schedule);
    kept.recv().unwrap().finish(Ok(()));
    told.recv().unwrap();
}

#[test]
fn a_process_follows_one_schedule_and_another_one_behind_its_end() {
    let world = World::new(Schedule::new(1), 1);
    let refused = Schedule::new(2).start(&world.runtime).unwrap_err().to_string();
    assert!(refused.contains("one schedule at a time"), "{refused}");
    let World { schedule, runtime, .. } = world;
    drop(schedule);
    drop(Schedule::new(2).start(&runtime).unwrap());
}

#[test]
fn a_shutdown_finishes_what_is_scheduled() {
    let world = World::new(Schedule::new(1), 3);
    for stream in 0..3 {
        (0..100).for_each(|number| world.enqueue(stream, number.to_string()));
    }
    assert!(world.runtime.shutdown().is_clean());
    assert_eq!(world.told().len(), 300);
}

#[test]
fn the_clock_is_real_again_behind_a_schedule() {
    let world = World::new(Schedule::new(1).durations_ns(1 << 40..=1 << 40), 1);
    let World { schedule, streams, .. } = world;
    let events = [(); 4].map(|()| Event::timed());
    streams[0].record(&events[0]).unwrap();
    streams[0].enqueue(|| ()).unwrap();
    streams[0].record(&events[1]).unwrap();
    streams[0].synchronize().unwrap();
    assert!(events[0].elapsed_ms(&events[1]).unwrap() > 1e6);
    drop(schedule);
    streams[0].record(&events[2]).unwrap();
    streams[0].enqueue(|| ()).unwrap();
    streams[0].record(&events[3]).unwrap();
    streams[0].synchronize().unwrap();
    assert!((0.0..1e5).contains(&events[2].elapsed_ms(&events[3]).unwrap()));
    assert!(events[0].elapsed_ms(&events[1]).unwrap() > 1e6, "of virtual time still");
}
