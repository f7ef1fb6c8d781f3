//! Queues: made when they are needed, with the right hints; asynchronous, in order, few marks.

use accelrt::backend::contract::{Backend, PriorityRange};
use accelrt::{DriverError, Error, Event};
use accelrt_opencl::XpuBackend;

use crate::fake::Fake;
use crate::pattern::pattern;
use crate::support::{assert_nothing_left, bytes_of, config, over, xpu};
use accelrt_testing::trusted::Trusted;

#[test]
fn without_hints_there_is_one_priority_and_queues_ask_for_none() {
    over("", |fake, runtime| {
        let range = runtime.priority_range(xpu(0)).unwrap();
        assert_eq!(range, PriorityRange { least: 0, greatest: 0 });
        for priority in [-1, 1] {
            let stream = runtime.stream_with_priority(xpu(0), priority).unwrap();
            assert_eq!(stream.priority(), 0);
        }
        runtime.stream(xpu(0)).unwrap().synchronize().unwrap();
        assert_eq!(["queues:1", "queues:2", "queues:4"].map(|hint| fake.live(hint)), [0; 3]);
    });
}

#[test]
fn with_hints_each_priority_asks_for_its_own() {
    over("priorities=1", |fake, runtime| {
        let range = runtime.priority_range(xpu(0)).unwrap();
        assert_eq!(range, PriorityRange { least: 1, greatest: -1 });
        for (priority, hint) in [(-1, "queues:1"), (0, "queues:2"), (1, "queues:4")] {
            let before = fake.live(hint);
            let stream = runtime.stream_with_priority(xpu(0), priority).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(fake.live(hint), before + 1, "a queue of priority {priority}");
        }
        assert_eq!(fake.live("queues:0"), 0, "every queue has a hint");
    });
}

#[test]
fn streams_are_made_when_they_are_handed_out_and_no_more_than_32() {
    over("priorities=1", |fake, runtime| {
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(runtime.pooled_stream(xpu(0)).unwrap());
            assert!(fake.live("queues") <= streams.len() as u64 + 1);
        }
        streams.extend((0..80).map(|_| runtime.pooled_stream(xpu(0)).unwrap()));
        assert!(fake.live("queues") <= 33, "{} queues", fake.live("queues"));
        streams.push(runtime.pooled_stream_with_priority(xpu(0), -1).unwrap());
        assert!(fake.live("queues:1") >= 1);
    });
}

#[test]
fn nothing_blocks_while_the_device_does_nothing() {
    // Goal: enqueueing, recording and waiting across queues leave the host free. Method: the device
    // is held; the calls return, and nothing is done before it is let go.
    over("hold=1", |fake, runtime| {
        let [first, second] = [(); 2].map(|()| runtime.pooled_stream(xpu(0)).unwrap());
        let buffer = runtime.empty(1000, xpu(0)).unwrap();
        let filled = buffer.fill(7, &first).unwrap();
        let event = first.record_event().unwrap();
        second.wait_event(&event).unwrap();
        let copy = buffer.copy_to_host(vec![0; 1000], &second).unwrap();
        assert!(!event.is_done() && !filled.is_done() && !copy.is_done());
        assert!(!first.is_done() && !second.is_done());
        fake.set("hold=0");
        assert_eq!(copy.wait().unwrap(), vec![7; 1000]);
        assert!(event.is_done() && filled.is_done());
        second.synchronize().unwrap();
        assert!(second.is_done());
    });
}

#[test]
fn the_device_is_told_of_each_task_before_the_call_returns() {
    // Goal: what is enqueued begins although nobody waits for it, whether it went through our queue
    // or past it. Method: the calls that tell the device, beside fills; a stream's first task opens
    // the queue.
    over("", |fake, runtime| {
        let stream = runtime.pooled_stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        let told = || fake.live("calls:clFlush");
        let before = told();
        for fill in 1..=200 {
            buffer.fill(1, &stream).unwrap();
            assert_eq!(told() - before, fill);
        }
    });
}

#[test]
fn the_bytes_of_a_device_are_copied_by_the_device_alone() {
    // Goal: no code reads a device's address. Method: the fake's are unreadable; host memory of the
    // program, pinned memory and two devices hand bytes around.
    over("devices=2", |_, runtime| {
        let sent = pattern(100_000, 0);
        let stream = runtime.pooled_stream(xpu(0)).unwrap();
        let next = runtime.stream(xpu(1)).unwrap();
        let [there, across] = [0, 1].map(|index| runtime.empty(sent.len(), xpu(index)).unwrap());
        assert!(!there.is_host_accessible());
        there.copy_from_slice(&sent, &stream).unwrap();
        next.wait_stream(&stream).unwrap();
        across.copy_from(&there, &next).unwrap();
        let pinned = runtime.empty_pinned(sent.len()).unwrap();
        pinned.copy_from(&across, &next).unwrap();
        next.synchronize().unwrap();
        assert_eq!(bytes_of(&pinned), sent);
        let mut back = vec![0; sent.len()];
        across.copy_to_slice(&mut back, &next).unwrap();
        assert_eq!(back, sent);
        across.slice(10..20).unwrap().copy_from_slice(&[9; 10], &next).unwrap();
        next.synchronize().unwrap();
        assert_eq!(bytes_of(&across)[9..21], [63, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 140]);
        assert_eq!(bytes_of(&runtime.zeros(5, xpu(1)).unwrap()), [0; 5]);
        assert!(matches!(
            across.read_to_vec(),
            Err(Error::Driver(DriverError::Unsupported { .. }))
        ));
    });
}

#[test]
fn frees_behind_a_busy_queue_place_few_marks_and_keep_the_memory_until_it_is_passed() {
    // Goal: a free costs no mark of its own. Method: a thousand buffers are dropped right behind
    // their use while the device is held. The fake sees memory that is freed too early.
    over("hold=1", |fake, runtime| {
        let stream = runtime.pooled_stream(xpu(0)).unwrap();
        for _ in 0..1000 {
            let buffer = runtime.empty(64, xpu(0)).unwrap();
            buffer.fill(1, &stream).unwrap();
        }
        let marks = fake.live("calls:clEnqueueMarkerWithWaitList");
        assert!(marks <= 4, "{marks} marks for 1000 frees");
        assert_eq!(fake.live("violations"), 0);
        fake.set("hold=0");
        stream.synchronize().unwrap();
        runtime.allocator(xpu(0)).unwrap().empty_cache();
        let info = runtime.memory_info(xpu(0)).unwrap();
        assert_eq!(info.free_bytes, info.total_bytes);
    });
}

#[test]
fn elapsed_time_is_the_devices() {
    // Goal: times are the difference of two stamps of one device. Method: each command takes 2 ms
    // of the device at least; the fake's clocks are far from the host's.
    over("command_us=2000", |_, runtime| {
        let stream = runtime.pooled_stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        let [start, end] = [(); 2].map(|()| Event::timed());
        stream.record(&start).unwrap();
        buffer.fill(1, &stream).unwrap();
        stream.record(&end).unwrap();
        stream.synchronize().unwrap();
        let elapsed_ms = start.elapsed_ms(&end).unwrap();
        assert!((2.0..60_000.0).contains(&elapsed_ms), "{elapsed_ms} ms");
        assert!(end.elapsed_ms(&start).unwrap() < 0.0);
    });
}

#[test]
fn a_queue_of_others_is_shared_and_left_to_them() {
    over("", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let own = backend.stream_create(0, 0).unwrap();
        let native = backend.stream_native(own).unwrap();
        let wrapped = backend.stream_wrap(0, native).unwrap();
        assert_eq!(backend.stream_native(wrapped).unwrap(), native);
        assert_eq!(fake.live("queues"), 1);
        let mark = backend.mark(wrapped, false).unwrap();
        backend.wait_mark(mark).unwrap();
        backend.stream_destroy(wrapped).unwrap();
        assert_eq!(fake.live("queues"), 1, "the one who made it still has it");
        backend.mark_release(mark).unwrap();
        backend.stream_synchronize(own).unwrap();
        backend.stream_destroy(own).unwrap();
    });
}

#[test]
fn numbers_that_are_no_queue_of_this_device_are_refused() {
    let fake = Fake::new("devices=2");
    let backend = Trusted(XpuBackend::new(&config(&fake)));
    let other = backend.stream_create(1, 0).unwrap();
    let native = backend.stream_native(other).unwrap();
    assert!(backend.stream_wrap(0, native).is_err(), "a queue of another device");
    assert!(backend.stream_wrap(0, 0).is_err());
    backend.stream_destroy(other).unwrap();
    drop(backend);
    assert_nothing_left(&fake);
}

#[test]
fn a_mark_outlives_the_stream_it_was_placed_in() {
    over("", |fake, _| {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let [first, second] = [(); 2].map(|()| backend.stream_create(0, 0).unwrap());
        let marks = [(); 2].map(|()| backend.mark(first, true).unwrap());
        backend.stream_destroy(first).unwrap();
        backend.stream_wait(second, marks[1]).unwrap();
        backend.stream_synchronize(second).unwrap();
        assert!(backend.mark_done(marks[0]).unwrap());
        assert!(backend.elapsed_ns(marks[0], marks[1]).unwrap() >= 0);
        for call in ["clGetEventInfo", "clWaitForEvents", "clGetEventProfilingInfo"] {
            fake.set(&format!("fail={call}:1:-5"));
        }
        assert!(matches!(
            backend.mark_done(marks[0]),
            Err(Error::Driver(DriverError::Refused { code: -5, .. }))
        ));
        assert!(matches!(
            backend.wait_mark(marks[0]),
            Err(Error::Driver(DriverError::Refused { code: -5, .. }))
        ));
        let elapsed = backend.elapsed_ns(marks[0], marks[1]);
        assert!(
            matches!(elapsed, Err(Error::Driver(DriverError::Refused { code: -5, .. }))),
            "{elapsed:?}"
        );
        for mark in marks {
            backend.mark_release(mark).unwrap();
        }
        backend.stream_destroy(second).unwrap();
    });
}
