//! Host access: a synchronisation with the recorded uses, and with nothing else.

use accelrt::{Device, Error, StreamError, StreamGuard};

use crate::gate::Gate;
use crate::pattern::pattern;
use crate::support::{CPU, Machine, enqueue_failure, finishes, stream_error};

#[test]
fn the_host_reads_what_was_enqueued_before() {
    for machine in [Machine::cpu(1), Machine::cpu(3)] {
        let buffer = machine.runtime.empty(1000, CPU).unwrap();
        let streams = [machine.stream(), machine.stream(), machine.home()];
        for round in 0..100_u8 {
            let stream = &streams[usize::from(round) % 3];
            buffer.fill(round, stream).unwrap();
            assert_eq!(buffer.slice(500..501).unwrap().read_to_vec().unwrap(), [round]);
        }
        let bytes = pattern(500, 1);
        buffer.slice(..500).unwrap().write_from_slice(&bytes).unwrap();
        let read = buffer.read_to_vec().unwrap();
        assert_eq!((&read[..500], &read[500..]), (&bytes[..], &[99; 500][..]));
    }
}

#[test]
fn host_access_waits_for_uses_on_every_stream_that_has_one() {
    // Goal: each recorded use is waited for. Method: one gate a stream, opened by another thread
    // one after the other; the wait must not return before the last of them.
    finishes(|| {
        let machine = Machine::cpu(3);
        let buffer = machine.runtime.empty(8, CPU).unwrap();
        let streams: Vec<_> = (0..4).map(|n| machine.stream_on(Device::cpu(n % 3))).collect();
        let gates: Vec<_> = streams.iter().map(Gate::shut).collect();
        for stream in &streams {
            buffer.record_use(stream).unwrap();
        }
        let opener = std::thread::spawn(move || gates.into_iter().for_each(Gate::open));
        buffer.wait_for_host().unwrap();
        for stream in &streams {
            assert!(stream.is_done(), "{stream:?} is done");
        }
        opener.join().unwrap();
    });
}

#[test]
fn host_access_waits_for_what_a_queued_task_does_to_the_memorys_earlier_life() {
    // Goal: a buffer that was just made may be where a freed one is still written to. Method: that
    // write is behind a gate, which another thread opens; the host's own bytes must stay.
    finishes(|| {
        let machine = Machine::cpu(1);
        let (device, home) = (machine.device(), machine.home());
        let freed = machine.runtime.empty(1000, device).unwrap();
        let address = freed.address().unwrap();
        let gate = Gate::shut(&home);
        freed.fill(0xFF, &home).unwrap();
        drop(freed);
        let buffer = machine.runtime.empty(1000, device).unwrap();
        assert_eq!(buffer.address().unwrap(), address, "it stands behind the fill");
        let opener = std::thread::spawn(move || gate.open());
        buffer.write_from_slice(&[7; 1000]).unwrap();
        home.synchronize().unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), [7; 1000]);
        opener.join().unwrap();
    });
}

#[test]
fn a_failure_in_the_memorys_earlier_life_is_not_the_new_buffers() {
    let machine = Machine::cpu(1);
    let home = machine.home();
    let freed = machine.runtime.empty(1000, CPU).unwrap();
    enqueue_failure(&home);
    freed.fill(1, &home).unwrap();
    drop(freed);
    let buffer = machine.runtime.empty(1000, CPU).unwrap();
    buffer.wait_for_host().unwrap();
    assert!(home.synchronize().is_err(), "the stream's own error is still open");
}

#[test]
fn what_stands_behind_the_last_use_is_not_waited_for() {
    // Goal: also when the use is no task of ours, so that nothing there was made to be waited for.
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(8, CPU).unwrap(), machine.stream());
        let before = Gate::shut(&stream);
        stream.enqueue(|| ()).unwrap();
        buffer.record_use(&stream).unwrap();
        let behind = Gate::enqueue(&stream);
        let opener = std::thread::spawn(move || before.open());
        buffer.wait_for_host().unwrap();
        assert!(!stream.is_done());
        behind.open();
        opener.join().unwrap();
    });
}

#[test]
fn uses_of_other_buffers_are_not_waited_for() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let [one, other] = [(); 2].map(|()| machine.runtime.zeros(8, CPU).unwrap());
        one.wait_for_host().unwrap();
        let gate = Gate::shut(&machine.home());
        other.fill(1, &machine.home()).unwrap();
        one.wait_for_host().unwrap();
        gate.open();
    });
}

#[test]
fn host_access_raises_failures_of_its_uses() {
    let machine = Machine::cpu(1);
    let [one, other] = [(); 2].map(|()| machine.runtime.zeros(8, CPU).unwrap());
    one.wait_for_host().unwrap();
    other.wait_for_host().unwrap();
    let (stream, second) = (machine.stream(), machine.stream());
    one.fill(1, &stream).unwrap();
    enqueue_failure(&stream);
    one.wait_for_host().unwrap(); // the failure came behind its use
    one.fill(2, &stream).unwrap();
    stream_error(one.wait_for_host());
    stream_error(one.read_to_vec());
    stream_error(one.write_from_slice(&[0; 8]));
    other.wait_for_host().unwrap();
    enqueue_failure(&second);
    one.fill(3, &second).unwrap();
    let both = one.wait_for_host();
    let Err(Error::Stream(StreamError::SeveralFailed { errors, .. })) = &both else {
        panic!("{both:?}")
    };
    assert_eq!(errors.len(), 2);
    stream.synchronize().unwrap(); // the receipts have ended both failures
    second.synchronize().unwrap();
    one.wait_for_host().unwrap();
    assert_eq!(one.read_to_vec().unwrap(), [1; 8]);
}

#[test]
fn a_failure_that_ends_while_the_host_waits_is_raised_to_it() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.zeros(8, CPU).unwrap(), machine.stream());
        buffer.wait_for_host().unwrap();
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream);
        buffer.fill(1, &stream).unwrap();
        let mut asked = 0;
        let mut gate = Some(gate);
        // The wait asks while it sleeps; from there the other thread may end the failure first.
        let waited = std::thread::scope(|scope| {
            buffer.wait_for_host_unless(&mut || {
                asked += 1;
                if let Some(gate) = gate.take() {
                    let stream = &stream;
                    scope.spawn(move || drop(stream.synchronize()));
                    gate.open();
                }
                false
            })
        });
        stream_error(waited);
        assert!(asked >= 1);
    });
}

#[test]
fn the_home_stream_of_a_wait_is_any_stream() {
    let machine = Machine::cpu(1);
    let stream = machine.stream();
    let _guard = StreamGuard::new(&machine.runtime, &stream).unwrap();
    let buffer = machine.runtime.zeros(100, CPU).unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [0; 100]);
}

#[test]
fn waits_on_every_kind_return_when_the_uses_are_done() {
    for machine in Machine::each() {
        let streams: Vec<_> = machine.devices.iter().map(|on| machine.stream_on(*on)).collect();
        let buffer = machine.runtime.zeros(100, machine.device()).unwrap();
        for stream in &streams {
            buffer.record_use(stream).unwrap();
        }
        buffer.wait_for_host().unwrap();
        drop(buffer);
        machine.assert_nothing_taken();
    }
}
