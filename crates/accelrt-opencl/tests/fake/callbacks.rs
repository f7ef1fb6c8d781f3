//! Callbacks: late, from threads of the driver's, or on the caller's own stack.

use accelrt::backend::contract::Backend;
use accelrt::{Device, Runtime};
use accelrt_opencl::XpuBackend;
use std::sync::mpsc;

use crate::support::{config, over, xpu};
use accelrt_testing::trusted::Trusted;

/// A deferred task behind a copy; true when it has started.
fn deferred(runtime: &Runtime) -> mpsc::Receiver<std::thread::ThreadId> {
    let stream = runtime.stream(xpu(0)).unwrap();
    let buffer = runtime.empty(64, xpu(0)).unwrap();
    buffer.fill(1, &stream).unwrap();
    let (tell, told) = mpsc::channel();
    stream
        .enqueue_deferred(move |completion| {
            tell.send(std::thread::current().id()).unwrap();
            completion.finish(Ok(()));
        })
        .unwrap();
    told
}

#[test]
fn a_task_behind_a_callback_that_comes_late_starts_late_and_not_on_the_drivers_thread() {
    over("hold=1,hold_callbacks=1", |fake, runtime| {
        let started = deferred(&runtime);
        fake.set("hold=0");
        // The device is done, and its callback is still to come.
        let other = runtime.stream(xpu(0)).unwrap();
        other.synchronize().unwrap();
        assert!(fake.live("calls:clSetEventCallback") > 0);
        assert!(started.try_recv().is_err());
        fake.set("hold_callbacks=0");
        started.recv().unwrap();
        runtime.synchronize(xpu(0)).unwrap();
    });
}

#[test]
fn a_callback_on_the_callers_stack_is_as_good() {
    over("inline_callbacks=1", |_, runtime| {
        deferred(&runtime).recv().unwrap();
        runtime.synchronize(xpu(0)).unwrap();
    });
    over("inline_callbacks=1", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let stream = backend.stream_create(0, 0).unwrap();
        let mark = backend.mark(stream, false).unwrap();
        backend.wait_mark(mark).unwrap();
        let (tell, told) = mpsc::channel();
        let here = std::thread::current().id();
        let note = move || tell.send(std::thread::current().id()).unwrap();
        backend.when_done(mark, Box::new(note)).unwrap();
        assert_ne!(told.recv().unwrap(), here, "a thread of ours calls");
        backend.mark_release(mark).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}

#[test]
fn callbacks_that_come_after_everything_was_given_back_are_harmless() {
    // Goal: what a callback holds outlives the stream, the mark and the backend.
    over("hold_callbacks=1", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let stream = backend.stream_create(0, 0).unwrap();
        let (tell, told) = mpsc::channel();
        for number in 0..10 {
            let mark = backend.mark(stream, false).unwrap();
            let tell = tell.clone();
            backend.when_done(mark, Box::new(move || tell.send(number).unwrap())).unwrap();
            backend.mark_release(mark).unwrap();
        }
        backend.stream_destroy(stream).unwrap();
        drop((backend, tell));
        fake.set("hold_callbacks=0");
        let mut called: Vec<i32> = told.into_iter().collect();
        called.sort_unstable();
        assert_eq!(called, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_callback_comes_also_when_the_device_is_lost() {
    over("hold=1", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let stream = backend.stream_create(0, 0).unwrap();
        let mark = backend.mark(stream, false).unwrap();
        let (tell, told) = mpsc::channel();
        backend.when_done(mark, Box::new(move || tell.send(()).unwrap())).unwrap();
        fake.set("lose=now");
        told.recv().expect("called, not dropped");
        backend.mark_release(mark).unwrap();
        backend.stream_destroy(stream).unwrap();
    });
}

#[test]
fn a_stream_of_the_host_runs_behind_a_device_by_its_late_callbacks() {
    over("hold=1,hold_callbacks=1", |fake, ours| {
        let device = ours.stream(xpu(0)).unwrap();
        let cpu = ours.stream(Device::cpu(0)).unwrap();
        let there = ours.empty(64, xpu(0)).unwrap();
        let on_host = ours.zeros(64, Device::cpu(0)).unwrap();
        there.copy_from(&on_host, &device).unwrap();
        let filled = on_host.fill(1, &cpu).unwrap();
        assert!(!filled.is_done());
        fake.set("hold=0,hold_callbacks=0");
        filled.wait().unwrap();
        cpu.synchronize().unwrap();
        device.synchronize().unwrap();
    });
}
