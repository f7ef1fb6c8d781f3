//! Copies and fills: contents, what is refused, owners of host memory, and waiting for one of them.

use std::sync::mpsc;

use std::time::Duration;

use accelrt::{DriverError, Error, Event, FailureCause, MemoryError, RuntimeError, StreamError};

use crate::gate::Gate;
use crate::pattern::pattern;
use crate::support::{CPU, Drops, Machine, enqueue_failure, finishes, stream_error};

#[test]
fn bytes_go_from_buffer_to_buffer_in_parts() {
    for machine in [Machine::cpu(1), Machine::cpu(3)] {
        let devices = [machine.devices[0], *machine.devices.last().unwrap()];
        let [source, target] = devices.map(|device| machine.runtime.empty(1000, device).unwrap());
        let bytes = pattern(1000, 1);
        source.write_from_slice(&bytes).unwrap();
        target.write_from_slice(&[0; 1000]).unwrap();
        let stream = machine.stream_on(devices[1]);
        let (part, place) = (source.slice(100..200).unwrap(), target.slice(777..877).unwrap());
        place.copy_from(&part, &stream).unwrap();
        target.slice(..1).unwrap().fill(9, &stream).unwrap();
        let mut expected = vec![0; 1000];
        expected[777..877].copy_from_slice(&bytes[100..200]);
        expected[0] = 9;
        assert_eq!(target.read_to_vec().unwrap(), expected);
        assert_eq!(place.read_to_vec().unwrap(), bytes[100..200]);
    }
}

#[test]
fn bytes_go_to_the_host_and_back() {
    for machine in [Machine::cpu(1), Machine::cpu(3)] {
        let (buffer, stream) = (machine.runtime.empty(300, CPU).unwrap(), machine.stream());
        let bytes = pattern(300, 2);
        buffer.copy_from_host(bytes.clone(), &stream).unwrap();
        assert_eq!(buffer.copy_to_host(vec![0; 300], &stream).unwrap().wait().unwrap(), bytes);
        let array: [u8; 300] = pattern(300, 3).try_into().unwrap();
        buffer.copy_from_host(array, &stream).unwrap(); // its bytes move with their owner
        let mut read = [0; 300];
        buffer.copy_to_slice(&mut read, &stream).unwrap();
        assert_eq!(read, array);
        buffer.copy_from_slice(&bytes, &stream).unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), bytes);
        assert_eq!(buffer.copy_to_host([0_u8; 300], &stream).unwrap().wait().unwrap(), &bytes[..]);
    }
}

#[test]
fn every_form_of_copy_is_accepted_on_every_kind() {
    for machine in Machine::each() {
        let (device, stream) = (machine.device(), machine.stream());
        let [one, other] = [(); 2].map(|()| machine.runtime.zeros(64, device).unwrap());
        stream.wait_stream(&machine.home()).unwrap(); // where they are filled with zeros
        other.copy_from(&one, &stream).unwrap().wait().unwrap();
        one.fill(1, &stream).unwrap().wait().unwrap();
        one.copy_from_host(vec![0; 64], &stream).unwrap().wait().unwrap();
        one.copy_to_host(vec![0; 64], &stream).unwrap().wait().unwrap();
        one.copy_from_slice(&[0; 64], &stream).unwrap();
        one.copy_to_slice(&mut [0; 64], &stream).unwrap();
        drop((one, other));
        machine.assert_nothing_taken();
    }
}

#[test]
fn sizes_that_differ_are_refused_with_their_numbers() {
    for machine in Machine::each() {
        let (device, stream) = (machine.device(), machine.home());
        let [small, large] = [10, 20].map(|bytes| machine.runtime.empty(bytes, device).unwrap());
        let into_small = [
            small.copy_from(&large, &stream).map(drop),
            small.copy_from_host(vec![0; 20], &stream).map(drop),
            small.copy_from_slice(&[0; 20], &stream),
            large.copy_to_host(vec![0; 10], &stream).map(drop),
            large.copy_to_slice(&mut [0; 10], &stream),
            small.write_from_slice(&[0; 20]),
        ];
        for refused in into_small {
            let Err(Error::Memory(MemoryError::CopySizeMismatch { target_bytes, source_bytes })) =
                refused
            else {
                panic!("{refused:?}")
            };
            assert_eq!((target_bytes, source_bytes), (10, 20));
        }
        drop((small, large));
        machine.assert_nothing_taken();
    }
}

#[test]
fn ranges_of_one_allocation_that_overlap_are_refused_and_neighbours_are_not() {
    for machine in Machine::each() {
        let (buffer, stream) =
            (machine.runtime.zeros(100, machine.device()).unwrap(), machine.home());
        let view = |from: usize| buffer.slice(from..from + 10).unwrap();
        for (to, from) in [(0, 0), (0, 9), (9, 0), (50, 55)] {
            let refused = view(to).copy_from(&view(from), &stream);
            let Err(Error::Memory(MemoryError::CopyOverlap {
                target_offset,
                source_offset,
                bytes,
            })) = refused
            else {
                panic!("{refused:?}")
            };
            assert_eq!((target_offset, source_offset, bytes), (to, from, 10));
        }
        view(0).copy_from(&view(10), &stream).unwrap();
        view(90).copy_from(&view(80), &stream).unwrap().wait().unwrap();
    }
}

#[test]
fn a_stream_of_a_device_that_is_not_concerned_is_refused() {
    let machine = Machine::cpu(3);
    let [zero, one, two] = [0, 1, 2].map(|index| machine.devices[index]);
    let (source, target) =
        (machine.runtime.zeros(8, zero).unwrap(), machine.runtime.zeros(8, one).unwrap());
    let strange = machine.stream_on(two);
    let refusals = [
        target.copy_from(&source, &strange).map(drop),
        target.fill(1, &strange).map(drop),
        target.copy_from_host(vec![0; 8], &strange).map(drop),
        target.copy_to_slice(&mut [0; 8], &strange),
    ];
    for refused in refusals {
        let Err(Error::Memory(MemoryError::DeviceMismatch { buffer, stream })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((buffer, stream), (one, two));
    }
    for device in [zero, one] {
        let stream = machine.stream_on(device);
        target.wait_for_host().unwrap(); // the zeros, and the other stream's copy
        source.wait_for_host().unwrap();
        target.copy_from(&source, &stream).unwrap();
    }
}

#[test]
fn a_stream_of_the_cpu_does_not_touch_memory_of_another_kind() {
    let machine = Machine::null(accelrt_testing::null::CompletionMode::AtOnce);
    let cpu_stream = machine.runtime.stream(CPU).unwrap();
    let on_cpu = machine.runtime.zeros(8, CPU).unwrap();
    let on_null = machine.runtime.zeros(8, machine.device()).unwrap();
    let pinned = machine.runtime.empty_pinned(8).unwrap();
    for (target, source) in [(&on_cpu, &on_null), (&on_null, &on_cpu), (&on_cpu, &pinned)] {
        let refused = target.copy_from(source, &cpu_stream);
        assert!(
            matches!(refused, Err(Error::Memory(MemoryError::DeviceMismatch { .. }))),
            "{refused:?}"
        );
    }
    let refused = on_cpu.fill(0, &machine.home());
    assert!(
        matches!(refused, Err(Error::Memory(MemoryError::DeviceMismatch { .. }))),
        "{refused:?}"
    );
    on_null.copy_from(&on_cpu, &machine.home()).unwrap().wait().unwrap();
    pinned.copy_from(&on_null, &machine.home()).unwrap().wait().unwrap();
}

#[test]
fn an_owner_of_host_memory_is_kept_until_its_copy_is_done() {
    finishes(|| {
        let (machine, drops) = (Machine::cpu(1), Drops::default());
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        buffer.copy_from_host(drops.watch(pattern(9, 4)), &stream).unwrap();
        drop(buffer.copy_to_host(drops.watch(vec![0; 9]), &stream).unwrap());
        let copy = buffer.copy_to_host(drops.watch(vec![0; 9]), &stream).unwrap();
        assert_eq!(drops.count(), 0);
        gate.open();
        stream.synchronize().unwrap();
        assert_eq!(drops.count(), 2, "the third comes back");
        assert_eq!(copy.wait().unwrap().as_ref(), pattern(9, 4));
    });
}

#[test]
fn an_owner_is_dropped_when_its_copy_is_refused_or_skipped() {
    for machine in Machine::each() {
        let drops = Drops::default();
        let (buffer, stream) =
            (machine.runtime.empty(9, machine.device()).unwrap(), machine.stream());
        buffer.copy_from_host(drops.watch(vec![0; 10]), &stream).unwrap_err();
        assert_eq!(drops.count(), 1);
        if machine.runs_on_host() {
            enqueue_failure(&stream);
            let skipped = buffer.copy_from_host(drops.watch(vec![0; 9]), &stream).unwrap();
            assert!(stream.synchronize().is_err());
            assert_eq!(drops.count(), 2);
            stream_error(skipped.wait());
        }
    }
}

#[test]
fn the_drop_of_an_owner_may_panic() {
    struct Panics;
    impl AsRef<[u8]> for Panics {
        fn as_ref(&self) -> &[u8] {
            &[1, 2, 3]
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::panic_any(()); // without a text: what a drop panics with is forgotten
        }
    }
    let machine = Machine::cpu(1);
    let (buffer, stream) = (machine.runtime.empty(3, CPU).unwrap(), machine.stream());
    buffer.copy_from_host(Panics, &stream).unwrap().wait().unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [1, 2, 3]);
}

#[test]
fn waiting_for_a_copy_waits_for_this_copy_only() {
    // Goal: what stands behind the copy is not waited for. Method: it is behind one gate, which is
    // opened before the wait, and in front of another, which is opened after it.
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let before = Gate::shut(&stream);
        let copy = buffer.fill(1, &stream).unwrap();
        let behind = Gate::enqueue(&stream);
        assert!(!copy.is_done());
        before.open();
        copy.wait().unwrap();
        assert!(copy.is_done());
        behind.open();
    });
}

#[test]
fn copy_receives_the_failure_that_covers_it() {
    let machine = Machine::cpu(1);
    let (buffer, stream) = (machine.runtime.zeros(9, CPU).unwrap(), machine.stream());
    buffer.wait_for_host().unwrap();
    let before = buffer.fill(1, &stream).unwrap();
    enqueue_failure(&stream);
    let skipped = buffer.fill(2, &stream).unwrap();
    let first = stream_error(skipped.wait());
    before.wait().unwrap();
    assert_eq!(stream_error(skipped.wait()).to_string(), first.to_string(), "raised again");
    // The first receipt has ended the failure for later tasks.
    buffer.copy_from_slice(&[3; 9], &stream).unwrap();
    buffer.copy_to_slice(&mut [0; 9], &stream).unwrap();
    stream.synchronize().unwrap();
    enqueue_failure(&stream);
    stream_error(buffer.copy_from_slice(&[4; 9], &stream));
    buffer.copy_from_slice(&[5; 9], &stream).unwrap();
    enqueue_failure(&stream);
    stream_error(stream.synchronize());
    // Bound: the first failure is remembered for it, although it ended and another one came.
    stream_error(skipped.wait());
    buffer.fill(4, &stream).unwrap().wait().unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [4; 9]);
}

#[test]
fn a_refusal_of_the_device_is_the_streams_failure() {
    use accelrt_testing::fault::{Fault, FaultError, Method};
    for machine in Machine::each() {
        let (buffer, stream) =
            (machine.runtime.empty(9, machine.device()).unwrap(), machine.stream());
        machine.backend.plan(Fault::nth(Method::Fill, 1, FaultError::Driver));
        let (refused, event) = (buffer.fill(1, &stream).unwrap(), Event::new());
        stream.record(&event).unwrap();
        let error = stream_error(refused.wait());
        assert!(
            matches!(
                error.failure(),
                FailureCause::Backend(Error::Driver(DriverError::Refused { .. }))
            ),
            "{error}"
        );
        stream_error(event.synchronize());
        buffer.fill(1, &stream).unwrap().wait().unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_wait_can_be_interrupted_and_the_copy_goes_on() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        let copy = buffer.fill(1, &stream).unwrap();
        assert!(matches!(
            copy.wait_unless(&mut || true),
            Err(Error::Runtime(RuntimeError::Interrupted))
        ));
        assert!(matches!(
            buffer.wait_for_host_unless(&mut || true),
            Err(Error::Runtime(RuntimeError::Interrupted))
        ));
        gate.open();
        copy.wait().unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), [1; 9]);
    });
}

#[test]
fn a_wait_ends_at_its_limit_and_the_copy_goes_on() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        let fill = buffer.fill(1, &stream).unwrap();
        let copy = buffer.copy_to_host(vec![0; 9], &stream).unwrap();
        let limit = Duration::from_millis(1);
        for ended in [
            fill.wait_timeout(limit),
            copy.wait_timeout(limit),
            buffer.wait_for_host_timeout(limit),
        ] {
            let is_right = matches!(ended, Err(Error::Runtime(RuntimeError::TimedOut { timeout }))
                if timeout == limit);
            assert!(is_right, "{ended:?}");
        }
        gate.open();
        let limit = Duration::from_secs(60);
        fill.wait_timeout(limit).unwrap();
        copy.wait_timeout(limit).unwrap();
        buffer.wait_for_host_timeout(limit).unwrap();
        assert_eq!(copy.wait().unwrap(), [1; 9]);
    });
}

#[cfg(feature = "async")]
#[test]
fn awaited_copies_are_done_and_carry_their_bytes_or_the_streams_failure() {
    use futures::executor::block_on;
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        let fill = buffer.fill(1, &stream).unwrap();
        let copy = buffer.copy_to_host(vec![0; 9], &stream).unwrap();
        let nothing = machine.runtime.empty(0, CPU).unwrap().fill(1, &stream).unwrap();
        block_on(nothing.into_future()).unwrap();
        gate.open();
        assert_eq!(block_on(copy.into_future()).unwrap(), [1; 9]);
        block_on(fill.into_future()).unwrap();
        stream.enqueue(|| Err::<(), _>("it fails")).unwrap();
        let skipped = buffer.fill(2, &stream).unwrap();
        let refused = block_on(skipped.into_future());
        assert!(matches!(refused, Err(Error::Stream(StreamError::Failed(_)))), "{refused:?}");
        block_on(buffer.fill(3, &stream).unwrap().into_future()).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_task_does_not_wait_for_a_copy_on_its_own_stream() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.zeros(9, CPU).unwrap(), machine.stream());
        let (answer, answers) = mpsc::channel();
        let (inside, own) = (buffer.clone(), stream.clone());
        stream
            .enqueue(move || {
                answer.send(inside.fill(1, &own).unwrap().wait()).unwrap();
                answer.send(inside.copy_from_slice(&[0; 9], &own)).unwrap();
                answer.send(inside.copy_to_slice(&mut [0; 9], &own)).unwrap();
                answer.send(inside.wait_for_host()).unwrap();
            })
            .unwrap();
        for refused in answers {
            assert!(
                matches!(refused, Err(Error::Stream(StreamError::WaitInsideTask { .. }))),
                "{refused:?}"
            );
        }
        stream.synchronize().unwrap();
    });
}
