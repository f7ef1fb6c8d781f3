//! Reuse under the policy `native`: by order where a frontier says so, else when uses are done.
//!
//! Goal: memory that queued tasks still use is handed out only behind them, and moves only when
//! they are done. Method: gates hold the streams that use it, on a device that has no more.

use accelrt::backend::fault::{Fault, FaultError, Method};
use accelrt::{Config, Event};

use crate::support::{Gate, Machine, finishes};

const MIB: usize = 1 << 20;

fn machine(memory_bytes: usize) -> Machine {
    Machine::cpu_with(&Config {
        cpu_memory_bytes: Some(memory_bytes),
        allocator_settings: "policy:native".to_owned(),
        ..Config::default()
    })
}

#[test]
fn the_host_waits_for_the_earlier_life_of_memory_that_its_thread_kept() {
    finishes(|| {
        let machine = machine(64 * MIB);
        let (device, home) = (machine.device(), machine.home());
        for bytes in [1_000, 100_000, 3 * MIB, 24 * MIB] {
            let freed = machine.runtime.empty(bytes, device).unwrap();
            let address = freed.address().unwrap();
            let gate = Gate::shut(&home);
            freed.fill(0xFF, &home).unwrap();
            drop(freed);
            let buffer = machine.runtime.empty(bytes, device).unwrap();
            assert_eq!(buffer.address().unwrap(), address, "it stands behind the fill");
            let opener = std::thread::spawn(move || gate.open());
            buffer.write_from_slice(&vec![7; bytes]).unwrap();
            opener.join().unwrap();
            home.synchronize().unwrap();
            assert_eq!(buffer.read_to_vec().unwrap(), vec![7; bytes]);
        }
        machine.assert_nothing_taken();
    });
}

#[test]
fn where_addresses_are_few_a_request_takes_those_it_needs() {
    let machine = machine(64 * MIB);
    for (count, bytes) in (1..).zip([1_000, 3 * MIB, 24 * MIB]) {
        machine.backend.plan(Fault::nth(Method::VmReserve, 1, FaultError::Driver));
        drop(machine.runtime.empty(bytes, machine.device()).unwrap());
        assert_eq!(machine.backend.failures(Method::VmReserve), count, "{bytes}");
        machine.assert_nothing_taken();
        machine.backend.clear();
    }
}

#[test]
fn a_stream_that_waits_for_another_has_its_memory_at_once() {
    finishes(|| {
        let machine = machine(32 * MIB);
        let (device, first, second) = (machine.device(), machine.stream(), machine.stream());
        machine.runtime.exchange_stream(&first).unwrap();
        let freed = machine.runtime.empty(24 * MIB, device).unwrap();
        let gate = Gate::shut(&first);
        freed.fill(1, &first).unwrap();
        let address = freed.address().unwrap();
        drop(freed);
        let event = Event::new();
        first.record(&event).unwrap();
        second.wait_event(&event).unwrap();
        // The device has no other memory, and the first stream does not go on before the gate.
        machine.runtime.exchange_stream(&second).unwrap();
        let allocator = machine.runtime.allocator(device).unwrap();
        allocator.check_all(); // what the thread keeps goes to its heap
        let buffer = machine.runtime.empty(24 * MIB, device).unwrap();
        assert_eq!(buffer.address().unwrap(), address);
        assert_eq!(allocator.statistics().num_frontier_reuses, 1);
        buffer.fill(2, &second).unwrap();
        gate.open();
        assert_eq!(buffer.read_to_vec().unwrap(), vec![2; 24 * MIB]);
        drop(buffer);
        machine.assert_nothing_taken();
    });
}

#[test]
fn pages_move_only_when_every_use_is_done() {
    finishes(|| {
        let machine = machine(32 * MIB);
        let (device, first, second) = (machine.device(), machine.stream(), machine.stream());
        machine.runtime.exchange_stream(&first).unwrap();
        let freed = machine.runtime.empty(24 * MIB, device).unwrap();
        let seen = {
            let gate = Gate::shut(&first);
            freed.fill(1, &first).unwrap();
            let seen = freed.copy_to_host(vec![0; 24 * MIB], &first).unwrap();
            drop(freed);
            machine.runtime.exchange_stream(&second).unwrap();
            let opener = std::thread::spawn(move || gate.open());
            // No order between the streams: it has to wait for the first one's tasks.
            let buffer = machine.runtime.empty(28 * MIB, device).unwrap();
            buffer.fill(2, &second).unwrap();
            opener.join().unwrap();
            seen
        };
        assert_eq!(seen.wait().unwrap(), vec![1; 24 * MIB], "nobody wrote there meanwhile");
        machine.assert_nothing_taken();
    });
}
