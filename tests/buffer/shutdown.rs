//! The end of a runtime: memory goes back whenever its buffers do.

use std::sync::Arc;
use std::time::Duration;

use accelrt::{Config, Error, Event, RuntimeError};

use crate::gate::Gate;
use crate::support::{CPU, Drops, Machine, finishes};

#[test]
fn buffers_that_are_dropped_after_a_shutdown_give_their_memory_back() {
    for machine in Machine::each() {
        let stream = machine.stream();
        let buffers: Vec<_> =
            machine.devices.iter().map(|on| machine.runtime.zeros(100, *on).unwrap()).collect();
        let pinned = machine.runtime.empty_pinned(100).unwrap();
        pinned.fill(1, &stream).unwrap();
        stream.wait_stream(&machine.home()).unwrap(); // where the zeros come from
        buffers[0].fill(1, &stream).unwrap();
        machine.runtime.shutdown();
        buffers[0].release().unwrap();
        drop((buffers, pinned));
        for device in &machine.devices {
            assert_eq!((machine.taken_on(*device), machine.reserved_on(*device)), (0, 0));
        }
        assert_eq!((machine.resource_counts().host_bytes, machine.resource_counts().marks), (0, 0));
    }
}

#[test]
fn what_was_freed_before_a_shutdown_is_back_after_it() {
    for machine in Machine::each() {
        let stream = machine.stream();
        let buffer = machine.runtime.zeros(100, machine.device()).unwrap();
        buffer.record_use(&stream).unwrap();
        drop(buffer);
        machine.runtime.shutdown();
        let reserved_bytes = machine.reserved_on(machine.device());
        assert_eq!((machine.taken(), reserved_bytes, machine.resource_counts().marks), (0, 0, 0));
    }
}

#[test]
fn frees_behind_work_that_is_cancelled_are_executed_by_the_shutdown() {
    // Goal: a stream that will never go on gives its memory back. Method: it waits for an event
    // behind a gate that stays shut; tasks own buffers whose homes are other streams.
    finishes(|| {
        let config = Config::builder().exit_timeout(Duration::from_millis(1)).build().unwrap();
        let machine = Machine::cpu_with(&config);
        let (held, event) = (machine.stream(), Event::new());
        let gate = Gate::shut(&held);
        held.record(&event).unwrap();
        let streams: Vec<_> = (0..6).map(|_| machine.stream()).collect();
        let made: Vec<_> = streams
            .iter()
            .map(|home| {
                home.wait_event(&event).unwrap();
                machine.runtime.exchange_stream(home).unwrap();
                machine.runtime.zeros(100, CPU).unwrap()
            })
            .collect();
        // A chain: retiring one stream's task drops a buffer that the next stream frees.
        for (buffer, stream) in made.into_iter().rev().zip(&streams) {
            stream.enqueue(move || drop(buffer)).unwrap();
        }
        machine.runtime.exchange_stream(&machine.home()).unwrap();
        let report = machine.runtime.shutdown();
        assert!(report.num_cancelled_tasks >= 6, "{report:?}");
        assert_eq!(machine.taken(), 0);
        gate.open();
    });
}

#[test]
fn memory_whose_stream_is_inside_a_task_at_the_end_goes_back_when_the_task_returns() {
    finishes(|| {
        let config = Config::builder().exit_timeout(Duration::from_millis(1)).build().unwrap();
        let machine = Machine::cpu_with(&config);
        let buffer = machine.runtime.empty(100, CPU).unwrap();
        let gate = Gate::shut(&machine.home());
        assert_eq!(machine.runtime.shutdown().num_busy_threads, 1);
        drop(buffer);
        assert_eq!(machine.kept(), 2 << 20, "the task may be using it");
        gate.open();
        while machine.kept() > 0 {
            std::thread::yield_now(); // the worker that was left alone comes back by itself
        }
    });
}

#[test]
fn a_runtime_that_was_shut_down_takes_no_copies_and_says_so_to_who_waits() {
    finishes(|| {
        let config = Config::builder().exit_timeout(Duration::from_millis(1)).build().unwrap();
        let (machine, drops) = (Machine::cpu_with(&config), Drops::default());
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let (held, event) = (machine.stream(), Event::new());
        let gate = Gate::shut(&held);
        held.record(&event).unwrap();
        stream.wait_event(&event).unwrap();
        let cancelled = buffer.fill(1, &stream).unwrap();
        buffer.copy_from_host(drops.watch(vec![0; 9]), &stream).unwrap();
        machine.runtime.shutdown();
        assert!(matches!(cancelled.wait(), Err(Error::Runtime(RuntimeError::ShutDown))));
        assert_eq!(drops.count(), 1);
        for refused in [
            buffer.fill(1, &stream).map(drop),
            buffer.copy_from_slice(&[0; 9], &stream),
            buffer.slice(..0).unwrap().fill(1, &stream).map(drop),
            machine.runtime.empty(1, CPU).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Runtime(RuntimeError::ShutDown))), "{refused:?}");
        }
        gate.open();
    });
}

#[test]
fn a_copy_that_was_done_before_a_shutdown_has_succeeded() {
    finishes(|| {
        for machine in Machine::each() {
            let buffer = machine.runtime.empty(9, machine.device()).unwrap();
            let stream = machine.stream();
            let filled = buffer.fill(1, &stream).unwrap();
            let copied = buffer.copy_to_host(vec![0; 9], &stream).unwrap();
            stream.synchronize().unwrap();
            machine.runtime.shutdown();
            filled.wait().unwrap();
            assert_eq!(copied.wait().unwrap().len(), 9);
        }
    });
}

#[test]
fn the_host_is_told_of_a_use_that_a_shutdown_cancelled_as_of_a_shutdown() {
    // Goal: no wait calls a cancelled task a failure of its stream. Method: the use stands behind a
    // gate; it was retired before the host asks, and its stream's open error is the cancellation.
    finishes(|| {
        let config = Config::builder().exit_timeout(Duration::ZERO).build().unwrap();
        let machine = Machine::cpu_with(&config);
        let (buffer, stream) = (machine.runtime.empty(9, CPU).unwrap(), machine.stream());
        let (held, event) = (machine.stream(), Event::new());
        let gate = Gate::shut(&held);
        held.record(&event).unwrap();
        stream.wait_event(&event).unwrap();
        buffer.fill(1, &stream).unwrap();
        machine.runtime.shutdown();
        let told = buffer.wait_for_host();
        assert!(matches!(told, Err(Error::Runtime(RuntimeError::ShutDown))), "{told:?}");
        gate.open();
    });
}

#[test]
fn buffers_outlive_their_runtime() {
    for machine in Machine::each() {
        let (backend, device) = (Arc::clone(&machine.backend), machine.device());
        let free = || backend.inner().memory_info(device.index()).unwrap().free_bytes;
        let buffer = machine.runtime.zeros(100, device).unwrap();
        drop(machine);
        let before = free();
        drop(buffer);
        assert_eq!(free(), before + (2 << 20));
    }
}
