//! Reuse under the policy `native`: by order where a frontier says so, else when uses are done.
//!
//! Goal: memory that queued tasks still use is handed out only behind them, and moves only when
//! they are done. Method: gates hold the streams that use it, on a device that has no more.

use accelrt::{Buffer, Config, Error, Event, RuntimeError};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::CompletionMode;

use crate::gate::Gate;
use crate::support::{Machine, finishes};

const MIB: usize = 1 << 20;

fn machine(memory_bytes: usize) -> Machine {
    machine_with("policy:native", memory_bytes)
}

fn machine_with(allocator_settings: &str, memory_bytes: usize) -> Machine {
    Machine::cpu_with(
        &Config::builder()
            .cpu_memory_bytes(memory_bytes)
            .allocator_settings(allocator_settings)
            .build()
            .unwrap(),
    )
}

/// True when the host's access would wait; a wait is given up at its first look.
fn has_to_wait(buffer: &Buffer) -> bool {
    matches!(
        buffer.wait_for_host_unless(&mut || true),
        Err(Error::Runtime(RuntimeError::Interrupted))
    )
}

#[test]
fn a_driver_is_asked_how_far_streams_are_before_it_is_asked_for_memory() {
    let asked = CompletionMode::WhenAsked { polls: 0 };
    let machine = Machine::null_of(64 * MIB, asked, "policy:native");
    let (device, other) = (machine.device(), machine.stream());
    let take = || machine.runtime.empty(24 * MIB, device).unwrap();
    let buffer = take();
    buffer.fill(1, &other).unwrap();
    let pages = machine.backend.calls(Method::VmCreate);
    drop(buffer); // waits for the other stream, which is done: the driver has not said so yet
    drop(take());
    assert_eq!(machine.backend.calls(Method::VmCreate), pages, "the pages were free");
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
            assert!(has_to_wait(&buffer), "{bytes} bytes");
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
fn the_host_waits_for_the_earlier_life_of_memory_that_order_gave() {
    // Goal: memory of another stream's heap, which order alone makes free, is still used by what is
    // queued there. Method: a host that gives its wait up at the first look had something to wait
    // for. Small requests get such memory when the device has no page left.
    finishes(|| {
        for (bytes, held) in [(1_000, 2), (100_000, 2), (3 * MIB, 0), (24 * MIB, 0)] {
            let machine = machine(if held > 0 { 4 * MIB } else { 32 * MIB });
            let (device, first, second) = (machine.device(), machine.stream(), machine.stream());
            let runtime = &machine.runtime;
            runtime.exchange_stream(&first).unwrap();
            let freed = runtime.empty(bytes, device).unwrap();
            let held = runtime.empty(held * MIB, device).unwrap();
            let gate = Gate::shut(&first);
            freed.fill(0xFF, &first).unwrap();
            drop(freed);
            second.wait_stream(&first).unwrap();
            runtime.exchange_stream(&second).unwrap();
            let allocator = runtime.allocator(device).unwrap();
            allocator.check_all(); // what the thread keeps goes to its heap
            let reused = runtime.empty(bytes, device).unwrap();
            assert_eq!(allocator.statistics().num_frontier_reuses, 1, "{bytes} B");
            assert!(has_to_wait(&reused), "{bytes} B");
            gate.open();
            reused.write_from_slice(&vec![7; bytes]).unwrap();
            machine.settle();
            assert_eq!(reused.read_to_vec().unwrap(), vec![7; bytes]);
            drop((held, reused));
            machine.assert_nothing_taken();
        }
    });
}

#[test]
fn the_host_waits_for_every_earlier_life_however_memory_is_cut_and_joined() {
    // Goal: what is cut off, joined, made a slab or kept by a thread is as busy as what it was made
    // of. Method: as above, on one stream. The second list are the requests that the first one's
    // memory serves.
    let cases: [(&[usize], &[usize]); 7] = [
        (&[40 * MIB], &[20 * MIB, 20 * MIB]),
        (&[3 * MIB, 3 * MIB], &[6 * MIB]), // of whole pages, which have an arena of their own
        (&[6 * MIB], &[5 * MIB]),
        (&[300_000, 300_000], &[600_000]),
        (&[300_000], &[100_000, 100_000]),
        (&[300_000], &[1_000, 1_000, 1_000]),
        (&[1_000, 1_000, 1_000], &[1_000, 1_000, 1_000]),
    ];
    finishes(move || {
        for settings in ["policy:native", "policy:torch"] {
            for (freed, requests) in cases {
                let machine = machine_with(settings, 64 * MIB);
                let (device, home, runtime) = (machine.device(), machine.home(), &machine.runtime);
                let live = freed.iter().map(|bytes| runtime.empty(*bytes, device).unwrap());
                let live: Vec<Buffer> = live.collect();
                let ends = |buffer: &Buffer| buffer.address().unwrap() + buffer.nbytes() as u64;
                let begin = live.iter().map(|buffer| buffer.address().unwrap()).min().unwrap();
                let end = live.iter().map(ends).max().unwrap();
                let gate = Gate::shut(&home);
                drop(live);
                let allocator = runtime.allocator(device).unwrap();
                allocator.check_all(); // what the thread keeps goes to its heap
                let mut held = Vec::new();
                for bytes in requests {
                    let reused = runtime.empty(*bytes, device).unwrap();
                    let case = format!("{settings}: {bytes} B of {freed:?}");
                    let address = reused.address().unwrap();
                    assert!((begin..end).contains(&address), "{case}");
                    assert!(has_to_wait(&reused), "{case}");
                    held.push(reused);
                }
                gate.open();
                drop(held);
                machine.assert_nothing_taken();
            }
        }
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
