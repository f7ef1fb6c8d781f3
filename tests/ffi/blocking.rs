//! Calls that block their thread: the other streams go on, and no waiting thread executes them.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use accelrt::{Argument, Config, Device, Error, Runtime, Stream, StreamError};

use super::support::{append, call, counter, digits, launch, pointer};

extern "C" fn meet(barrier: &Barrier) {
    barrier.wait();
}

/// Says which thread this is, as numbers do.
extern "C" fn note_thread(notes: &Notes, status: i32) -> i32 {
    notes.0.lock().unwrap().push(thread::current().id());
    status
}

#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<thread::ThreadId>>);

fn runtime(workers: usize) -> Runtime {
    Runtime::new(Config::builder().cpu_threads(workers).build().unwrap()).unwrap()
}

fn streams<const N: usize>(runtime: &Runtime) -> [Stream; N] {
    [(); N].map(|()| runtime.stream(Device::cpu(0)).unwrap())
}

#[test]
fn more_blocking_calls_than_workers_wait_for_each_other() {
    const COUNT: usize = 8;
    let (runtime, barrier) = (runtime(2), Barrier::new(COUNT));
    let streams = streams::<COUNT>(&runtime);
    for arguments in [1, 6] {
        let arguments = vec![Argument::from(&raw const barrier); arguments];
        for stream in &streams {
            launch(stream, call(meet as _, &arguments).blocking()).unwrap();
        }
        for stream in &streams {
            stream.synchronize().unwrap();
        }
    }
    assert!(runtime.counters().num_spare_workers > 0);
}

#[test]
fn blocking_calls_keep_their_place_in_the_order() {
    let (runtime, order) = (runtime(2), counter());
    let [stream] = streams(&runtime);
    for digit in 1..=6_u32 {
        let plain = call(append as _, &[pointer(&order), digit.into()]);
        launch(&stream, if digit % 2 == 0 { plain.blocking() } else { plain }).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(digits(&order), 123_456);
}

#[test]
fn a_waiting_thread_executes_no_blocking_call() {
    // Goal: a wait is not held up by what blocks. Method: a stream whose tasks were short is one
    // that a waiting thread executes; the functions note their threads.
    let (runtime, notes) = (runtime(2), Notes::default());
    let [stream] = streams(&runtime);
    for _ in 0..200 {
        stream.enqueue(|| ()).unwrap();
        stream.synchronize().unwrap();
    }
    for _ in 0..50 {
        let arguments = [Argument::from(&raw const notes), 0.into()];
        launch(&stream, call(note_thread as _, &arguments).blocking()).unwrap();
        stream.synchronize().unwrap();
    }
    let notes = notes.0.lock().unwrap();
    assert_eq!(notes.len(), 50);
    assert!(!notes.contains(&thread::current().id()));
}

#[test]
fn a_blocking_call_fails_its_stream_by_its_status_and_is_skipped_behind_a_failure() {
    let (runtime, notes) = (runtime(2), Notes::default());
    let [stream] = streams(&runtime);
    let fail = [Argument::from(&raw const notes), (-7).into()];
    for _ in 0..3 {
        launch(&stream, call(note_thread as _, &fail).blocking().checked()).unwrap();
    }
    let Err(Error::Stream(StreamError::Failed(error))) = stream.synchronize() else {
        panic!("it failed")
    };
    assert!(error.to_string().contains("-7"), "{error}");
    assert_eq!(notes.0.lock().unwrap().len(), 1);
}

#[test]
fn a_wait_for_a_blocking_call_wakes() {
    let (runtime, barrier) = (runtime(1), Barrier::new(2));
    let [stream] = streams(&runtime);
    let (tell, told) = channel();
    thread::scope(|scope| {
        let argument = [Argument::from(&raw const barrier)];
        launch(&stream, call(meet as _, &argument).blocking()).unwrap();
        let event = stream.record_event().unwrap();
        scope.spawn(move || {
            event.synchronize().unwrap();
            tell.send(()).unwrap();
        });
        assert!(told.try_recv().is_err());
        barrier.wait();
        told.recv().unwrap();
    });
}
