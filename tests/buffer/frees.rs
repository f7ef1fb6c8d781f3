//! Frees in stream order: when the memory goes back, and that nobody waits for it.

use std::cell::RefCell;
use std::sync::mpsc;

use accelrt::{Buffer, Config, Error, Event, Runtime, Stream, StreamError, StreamGuard};
use accelrt_testing::null::CompletionMode;

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::steps::Steps;
use crate::support::{CPU, Machine, enqueue_failure, finishes, kept};

/// Whole pages; under policy `torch` a segment of its own, which is as large.
const BYTES: usize = 12 << 20;

/// Size of a page, and of a segment for little.
const SMALL: usize = 2 << 20;

fn buffer(machine: &Machine) -> Buffer {
    machine.runtime.empty(BYTES, machine.device()).unwrap()
}

#[test]
fn dropping_right_after_a_copy_is_a_stream_ordered_free() {
    // Goal: the copy reads its source, though that was dropped. Method: a gate in front of the
    // copy; the memory is taken until the gate opens, and back when the stream is done.
    finishes(|| {
        let machine = Machine::cpu(1);
        let stream = machine.home();
        let (source, target) = (buffer(&machine), buffer(&machine));
        source.fill(0xA5, &stream).unwrap().wait().unwrap();
        let gate = Gate::shut(&stream);
        target.copy_from(&source, &stream).unwrap();
        drop(source);
        assert_eq!(machine.kept(), 2 * BYTES);
        gate.open();
        stream.synchronize().unwrap();
        assert_eq!(machine.kept(), BYTES);
        assert_eq!(target.read_to_vec().unwrap(), vec![0xA5; BYTES]);
        drop(target);
        machine.assert_nothing_taken();
    });
}

#[test]
fn dropping_right_after_a_launch_is_a_stream_ordered_free() {
    // Goal: a function that was given an address on the home stream needs no record of its use.
    finishes(|| {
        let machine = Machine::cpu(1);
        let (stream, buffer) = (machine.home(), buffer(&machine));
        let address = buffer.address().unwrap();
        let gate = Gate::shut(&stream);
        let (answer, seen) = mpsc::channel();
        let backend = std::sync::Arc::clone(&machine.backend);
        let look = move || {
            use accelrt::backend::contract::{Address, Backend};
            answer.send(backend.pointer_owner(Address(address)).unwrap().is_some()).unwrap();
        };
        stream.enqueue(look).unwrap();
        drop(buffer);
        assert_eq!(machine.kept(), BYTES);
        gate.open();
        assert!(
            Steps::of(&stream).receive(&seen).unwrap(),
            "the memory is there while the function runs"
        );
        machine.assert_nothing_taken();
    });
}

#[test]
fn a_free_with_nothing_enqueued_is_immediate_where_tasks_run_on_the_host() {
    let machine = Machine::cpu(1);
    let buffer = buffer(&machine);
    drop(buffer);
    assert_eq!(machine.taken(), 0);
    assert_eq!(machine.runtime.counters().num_worker_wakes, 0);
}

#[test]
fn a_recorded_use_on_another_stream_holds_the_memory_and_the_home_stream_goes_on() {
    // Goal: a free waits for every use, and makes no stream wait for another. Method: the use is
    // behind a gate on another stream; the home stream is synchronised meanwhile.
    finishes(|| {
        let machine = Machine::cpu(3);
        let (home, other) = (machine.home(), machine.stream_on(machine.devices[1]));
        let buffer = buffer(&machine);
        buffer.fill(1, &home).unwrap();
        let gate = Gate::shut(&other);
        buffer.record_use(&other).unwrap();
        drop(buffer);
        home.enqueue(|| ()).unwrap();
        home.synchronize().unwrap();
        assert_eq!(machine.taken(), BYTES, "the other stream still uses it");
        gate.open();
        machine.assert_nothing_taken();
    });
}

#[test]
fn what_is_deterministic_has_memory_of_other_streams_again_behind_a_synchronise() {
    // Goal: reserved memory is bounded though no look at a stream completes a free. Method: a
    // buffer that another stream still uses when it is dropped, and a synchronise, many times.
    finishes(|| {
        let config = Config::builder().allocator_settings("deterministic:True").build().unwrap();
        let runtime = scheduled(Runtime::new(config).unwrap());
        let (home, other) = (runtime.stream(CPU).unwrap(), runtime.stream(CPU).unwrap());
        let _current = StreamGuard::new(&runtime, &home).unwrap();
        for _ in 0..50 {
            let buffer = runtime.empty(BYTES, CPU).unwrap();
            let gate = Gate::shut(&other);
            buffer.record_use(&other).unwrap();
            drop(buffer);
            gate.open();
            runtime.synchronize(CPU).unwrap();
        }
        let reserved = runtime.allocator(CPU).unwrap().statistics().reserved_bytes.all;
        assert!(reserved.peak <= 2 * BYTES as u64, "{reserved:?}");
    });
}

#[test]
fn a_synchronise_that_raises_has_freed_what_is_deterministic() {
    // Goal: as above, also where streams have failed: the host has waited for the device all the
    // same. Method: errors of one stream, and of two; nothing of the memory is taken then.
    finishes(|| {
        for failing in 1..=2 {
            let machine = Machine::cpu_with(
                &Config::builder().allocator_settings("deterministic:True").build().unwrap(),
            );
            let streams = [machine.stream(), machine.stream()];
            let gate = Gate::shut(&streams[1]);
            let freed = buffer(&machine);
            freed.record_use(&streams[1]).unwrap();
            drop(freed);
            streams[..failing].iter().for_each(enqueue_failure);
            assert_eq!(machine.taken(), BYTES);
            gate.open();
            let raised = machine.runtime.synchronize(CPU).unwrap_err();
            let count = match &raised {
                Error::Stream(StreamError::Failed(_)) => 1,
                Error::Stream(StreamError::SeveralFailed { errors, .. }) => errors.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!((count, machine.taken()), (failing, 0));
        }
    });
}

#[test]
fn pinned_memory_serves_no_request_while_a_stream_copies_from_it() {
    // Goal: pinned memory is for all streams and for the host, so order on its home stream alone is
    // no reason to hand it out. Method: a task that is not finished in front of the copy, on the
    // home stream and on another one; the next request gets other memory.
    finishes(|| {
        for is_at_home in [true, false] {
            for machine in Machine::each() {
                let stream = if is_at_home { machine.home() } else { machine.stream() };
                let (send, receive) = mpsc::channel();
                stream.enqueue_deferred(move |completion| send.send(completion).unwrap()).unwrap();
                let pinned = machine.runtime.empty_pinned(4096).unwrap();
                let target = machine.runtime.empty(4096, machine.device()).unwrap();
                target.copy_from(&pinned, &stream).unwrap();
                let address = pinned.address().unwrap();
                drop(pinned);
                let next = machine.runtime.empty_pinned(4096).unwrap();
                assert_ne!(next.address().unwrap(), address, "the queued copy still reads it");
                Steps::of(&stream).receive(&receive).unwrap().finish(Ok(()));
                stream.synchronize().unwrap();
                let again = machine.runtime.empty_pinned(4096).unwrap();
                assert_eq!(again.address().unwrap(), address, "behind the copy it is free");
                drop((next, again, target));
                machine.assert_nothing_taken();
            }
        }
    });
}

#[test]
fn the_last_of_several_streams_frees_whichever_that_is() {
    for last in 0..3 {
        finishes(move || {
            let machine = Machine::cpu(1);
            let mut streams = vec![machine.home(), machine.stream(), machine.stream()];
            let buffer = buffer(&machine);
            let mut gates: Vec<Gate> = streams.iter().map(Gate::enqueue).collect();
            for stream in &streams {
                buffer.record_use(stream).unwrap();
            }
            drop(buffer);
            let (last_gate, last_stream) = (gates.remove(last), streams.remove(last));
            gates.into_iter().for_each(Gate::open);
            for stream in &streams {
                stream.synchronize().unwrap();
            }
            assert_eq!(machine.kept(), BYTES);
            last_gate.open();
            last_stream.synchronize().unwrap();
            assert_eq!(machine.kept(), 0);
        });
    }
}

#[test]
fn uses_that_are_done_hold_nothing() {
    for machine in Machine::each() {
        let buffer = buffer(&machine);
        for device in machine.devices.clone() {
            for _ in 0..20 {
                let stream = machine.stream_on(device);
                buffer.record_use(&stream).unwrap();
                stream.synchronize().unwrap();
            }
        }
        drop(buffer);
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_buffer_keeps_the_streams_of_its_unfinished_uses_and_forgets_the_others() {
    // Goal: a dedicated stream ends although a buffer was used on it. Method: its id is asked for
    // after a use on a further stream, which is when uses that are over are forgotten; a worker may
    // still be leaving it.
    finishes(|| {
        let machine = Machine::cpu(1);
        let buffer = buffer(&machine);
        let use_once = || {
            let stream = machine.stream();
            buffer.fill(1, &stream).unwrap();
            stream.synchronize().unwrap();
            stream.id()
        };
        let ids: Vec<u64> = (0..10).map(|_| use_once()).collect();
        use_once();
        for id in ids {
            while machine.runtime.stream_by_id(machine.device(), id).is_ok() {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_free_on_a_failed_stream_is_executed() {
    for machine in [Machine::cpu(1), Machine::cpu(3)] {
        let (home, buffer) = (machine.home(), buffer(&machine));
        enqueue_failure(&home);
        buffer.fill(1, &home).unwrap();
        drop(buffer);
        assert!(home.synchronize().is_err());
        assert_eq!(machine.taken(), 0);
    }
}

#[test]
fn a_free_on_a_parked_stream_waits_with_it() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (home, other, event) = (machine.home(), machine.stream(), Event::new());
        let gate = Gate::shut(&other);
        other.record(&event).unwrap();
        home.wait_event(&event).unwrap();
        drop(buffer(&machine));
        assert_eq!(machine.kept(), BYTES);
        gate.open();
        home.synchronize().unwrap();
        assert_eq!(machine.kept(), 0);
    });
}

#[test]
fn a_free_is_possible_inside_a_task_of_any_stream() {
    finishes(|| {
        let machine = Machine::cpu(1);
        for stream in [machine.home(), machine.stream()] {
            let buffer = buffer(&machine);
            stream.enqueue(move || drop(buffer)).unwrap();
            stream.synchronize().unwrap();
            machine.assert_nothing_taken();
        }
    });
}

#[test]
fn a_task_that_is_skipped_frees_what_it_owns() {
    let machine = Machine::cpu(1);
    for stream in [machine.home(), machine.stream()] {
        enqueue_failure(&stream);
        let owned = kept(buffer(&machine));
        stream.enqueue(move || drop(owned.lock().unwrap().take())).unwrap();
        assert!(stream.synchronize().is_err());
    }
    machine.assert_nothing_taken();
}

#[test]
fn a_free_is_not_held_back_by_a_streams_limit() {
    // Goal: a drop never waits. Method: a stream behind a gate, with many more frees than its limit
    // of tasks; each serves the next request, which stands behind it.
    finishes(|| {
        let config = Config::builder().stream_task_limit(64).build().unwrap();
        let machine = Machine::cpu_with(&config);
        let gate = Gate::shut(&machine.home());
        for _ in 0..1_000 {
            drop(machine.runtime.empty(64, machine.device()).unwrap());
        }
        assert_eq!(machine.kept(), SMALL);
        gate.open();
        machine.assert_nothing_taken();
    });
}

#[test]
fn buffers_are_dropped_by_other_threads_than_the_one_that_made_them() {
    for machine in Machine::each() {
        let stream = machine.stream();
        let buffers: Vec<Buffer> =
            (0..64).map(|_| machine.runtime.empty(1000, machine.device()).unwrap()).collect();
        std::thread::scope(|scope| {
            for chunk in buffers.chunks(16) {
                let (chunk, stream) = (chunk.to_vec(), &stream);
                scope.spawn(move || {
                    for buffer in chunk {
                        buffer.fill(1, stream).unwrap();
                        drop(buffer.slice(1..).unwrap());
                    }
                });
            }
        });
        drop(buffers);
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_thread_that_ends_frees_the_buffers_and_streams_that_it_keeps() {
    // Goal: locals of a thread are dropped when others are gone already. Method: the local is made
    // before anything of ours was called in the thread, so that it is dropped behind our own.
    thread_local! {
        static KEPT: RefCell<Option<(Buffer, Stream)>> = const { RefCell::new(None) };
    }
    for machine in Machine::each() {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                KEPT.set(None);
                let stream = machine.stream();
                machine.runtime.set_stream(&stream).unwrap();
                let kept = machine.runtime.zeros(BYTES, machine.device()).unwrap();
                KEPT.set(Some((kept, stream)));
            });
            thread.join().unwrap(); // the end of a scope does not wait for a thread's locals
        });
        machine.assert_nothing_taken();
    }
}

#[test]
fn what_a_thread_keeps_of_freed_buffers_keeps_no_stream_alive() {
    // Goal: a dedicated stream ends with its last handle, also when it was the home of buffers of
    // the process's runtime, whose allocations are kept for the next ones.
    finishes(|| {
        let runtime = Runtime::global().unwrap();
        let stream = runtime.stream(CPU).unwrap();
        let id = stream.id();
        let guard = StreamGuard::new(&runtime, &stream).unwrap();
        drop([1, 2, 3].map(|bytes| runtime.empty(bytes, CPU).unwrap()));
        drop((guard, stream));
        let found = runtime.stream_by_id(CPU, id);
        assert!(matches!(found, Err(Error::Stream(StreamError::NotFound { .. }))), "{found:?}");

        let user = runtime.stream(CPU).unwrap();
        let id = user.id();
        for bytes in [0, 1] {
            runtime.empty(bytes, CPU).unwrap().record_use(&user).unwrap();
        }
        drop(user);
        let found = runtime.stream_by_id(CPU, id);
        assert!(matches!(found, Err(Error::Stream(StreamError::NotFound { .. }))), "{found:?}");
    });
}

#[test]
fn what_a_thread_keeps_of_a_freed_buffer_says_nothing_of_the_memory_of_the_next_one() {
    // Goal: pinned memory is waited for by everybody, and copied in another way. Method: buffers of
    // the process's runtime, each made of what the one before left.
    finishes(|| {
        let runtime = Runtime::global().unwrap();
        for _ in 0..3 {
            assert!(!runtime.empty(100, CPU).unwrap().is_pinned());
            assert!(runtime.empty_pinned(100).unwrap().is_pinned());
        }
    });
}

#[test]
fn frees_that_streams_have_passed_end_by_stream() {
    // Goal: what is counted does not depend on which stream was looked at first. Method: of three
    // neighbours the outer ones wait for the later stream and are freed first; the one between
    // them, freed last, ends first, so that the others only join it.
    let machine = Machine::null_of(1 << 30, CompletionMode::AtOnce, "policy:torch");
    let streams = [machine.stream(), machine.stream()];
    let allocator = machine.runtime.allocator(machine.device()).unwrap();
    let buffers = [(); 4].map(|()| machine.runtime.empty(512, machine.device()).unwrap());
    let before = allocator.statistics().inactive_split.all;
    for (index, stream) in [(0, 1), (2, 1), (1, 0)] {
        buffers[index].record_use(&streams[stream]).unwrap();
        buffers[index].release().unwrap();
    }
    let after = allocator.statistics().inactive_split.all;
    assert_eq!((after.current - before.current, after.allocated - before.allocated), (1, 1));
}
