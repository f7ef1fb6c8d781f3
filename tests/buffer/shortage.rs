//! Too little memory: what is being freed is waited for, when that is enough.

use std::sync::{Arc, Mutex};

use accelrt::{Config, Device, Error, MemoryError, Runtime};
use accelrt_testing::fault::Method;
use accelrt_testing::null::CompletionMode;

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{CAPACITY, Machine, finishes};

#[test]
fn memory_that_is_being_freed_serves_the_next_request() {
    // Goal: a loop that allocates most of the memory each time needs no synchronise.
    for machine in Machine::each() {
        let (device, stream) = (machine.device(), machine.home());
        for byte in 0..20 {
            let buffer = machine.runtime.empty(CAPACITY / 4 * 3, device).unwrap();
            buffer.slice(..1 << 16).unwrap().fill(byte, &stream).unwrap();
        }
        machine.assert_nothing_taken();
    }
}

#[test]
fn memory_is_waited_for_on_whichever_streams_use_it() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let other = machine.stream();
        let buffer = machine.runtime.empty(CAPACITY, machine.device()).unwrap();
        let gate = Gate::shut(&other);
        buffer.record_use(&other).unwrap();
        drop(buffer);
        let opener = std::thread::spawn(move || gate.open());
        machine.runtime.empty(CAPACITY, machine.device()).unwrap();
        opener.join().unwrap();
    });
}

#[test]
fn what_would_not_be_enough_is_not_waited_for() {
    // Goal: the refusal is immediate. Method: the memory being freed is behind a gate that opens
    // only after the refusal.
    finishes(|| {
        let machine = Machine::cpu(1);
        let (device, home) = (machine.device(), machine.home());
        let _held = machine.runtime.empty(CAPACITY / 2, device).unwrap();
        let gate = Gate::shut(&home);
        drop(machine.runtime.empty(CAPACITY / 4, device).unwrap());
        let refused = machine.runtime.empty(CAPACITY / 2 + 1, device);
        assert!(
            matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
            "{refused:?}"
        );
        gate.open();
    });
}

#[test]
fn shared_memory_that_would_not_be_enough_is_not_waited_for() {
    // Goal: the same of what the allocator of shared memory keeps, when the device is short.
    // Method: a driver whose streams go on only when they are waited for; its waits are counted.
    let machine = Machine::null(CompletionMode::WhenAsked { polls: u32::MAX });
    let (device, home) = (machine.device(), machine.home());
    let held = machine.runtime.empty(CAPACITY / 2, device).unwrap();
    let shared = machine.runtime.empty_shared(CAPACITY / 4, device).unwrap();
    shared.fill(1, &home).unwrap();
    drop(shared);
    let waits = || {
        let methods = [Method::WaitMark, Method::StreamSynchronize];
        methods.iter().map(|method| machine.backend.calls(*method)).sum::<u64>()
    };
    let before = waits();
    let refused = machine.runtime.empty(CAPACITY / 2 + 1, device);
    assert!(matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))), "{refused:?}");
    assert_eq!(waits(), before);
    let served = machine.runtime.empty(CAPACITY / 2, device).unwrap();
    assert!(waits() > before, "here it is enough");
    drop((held, served));
    machine.assert_nothing_taken();
}

#[test]
fn a_task_does_not_wait_for_its_own_stream_to_free() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (device, home) = (machine.device(), machine.home());
        let (runtime, other) = (machine.runtime.clone(), machine.stream());
        home.enqueue(move || {
            drop(runtime.empty(CAPACITY, device).unwrap()); // goes back behind this task
            drop(runtime.empty(CAPACITY, device).unwrap()); // what stands there may have it at once
            runtime.set_stream(&other).unwrap();
            let refused = runtime.empty(CAPACITY, device);
            assert!(
                matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
                "{refused:?}"
            );
        })
        .unwrap();
        home.synchronize().unwrap();
        machine.assert_nothing_taken();
    });
}

#[test]
fn a_driver_is_asked_by_the_next_request_without_a_synchronise() {
    // Goal: what the device is done with goes back although nobody ever waits, and a mark serves
    // many frees. Method: two hundred buffers one after the other; marks are counted.
    let machine = Machine::null(CompletionMode::WhenAsked { polls: 0 });
    for _ in 0..200 {
        let buffer = machine.runtime.empty(1000, machine.device()).unwrap();
        buffer.fill(1, &machine.home()).unwrap();
    }
    assert!(machine.taken() <= 2 * 1000, "{} bytes wait", machine.taken());
    assert!(machine.backend.calls(Method::Mark) <= 200);
}

#[test]
fn a_runtimes_observers_are_told_of_every_devices_shortages_until_they_are_removed() {
    let config = Config::builder().cpu_devices(2).cpu_memory_bytes(20 << 20).build().unwrap();
    let runtime = scheduled(Runtime::new(config).unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let [first, _] = ["first", "second"].map(|name| {
        let told = Arc::clone(&told);
        runtime.add_oom_observer(move |error| match error {
            Error::Memory(MemoryError::OutOfMemory { device, .. }) => {
                told.lock().unwrap().push((name, device.index()));
            }
            other => panic!("{other}"),
        })
    });
    let ask = |index| runtime.empty(30 << 20, Device::cpu(index)).unwrap_err();
    ask(0);
    runtime.remove_oom_observer(first);
    ask(1);
    assert_eq!(*told.lock().unwrap(), [("first", 0), ("second", 0), ("second", 1)]);
}
