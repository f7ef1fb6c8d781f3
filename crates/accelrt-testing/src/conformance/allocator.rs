//! The allocator's laws on the kind: buffers share no byte, statistics are sums, all goes back.

use accelrt::{Buffer, Error, MemoryError};

use crate::conformance::engine::{Draws, Machine};
use crate::conformance::support::Subject;

const STEPS: usize = 300;
const MOST_LIVE: usize = 40;

/// A buffer, with the byte that all of it is.
struct FilledBuffer {
    buffer: Buffer,
    byte: u8,
}

fn random_lives(subject: &Subject, settings: &str) {
    let machine = Machine::new(subject);
    let device = machine.devices[machine.devices.len() - 1];
    machine.runtime.set_allocator_settings(settings).unwrap();
    let allocator = machine.runtime.allocator(device).unwrap();
    let before = machine.runtime.memory_info(device).unwrap();
    // Also a device of a few MiB has room for all that live.
    let largest = (3 << 20).min(before.total_bytes / 64);
    let streams: Vec<_> =
        machine.streams.iter().filter(|stream| stream.device() == device).collect();
    let (mut draws, mut live) = (Draws::new(5), Vec::<FilledBuffer>::new());
    for step in 0..STEPS {
        let stream = streams[draws.below(streams.len())];
        if live.len() == MOST_LIVE || !live.is_empty() && draws.below(5) < 2 {
            let FilledBuffer { buffer, byte } = live.swap_remove(draws.below(live.len()));
            let copied = machine.runtime.empty(buffer.nbytes(), device).unwrap();
            copied.copy_from(&buffer, stream).unwrap(); // a use that the free has to wait for
            drop(buffer);
            live.push(FilledBuffer { buffer: copied, byte });
            drop(live.swap_remove(draws.below(live.len())));
        } else {
            let most_bytes = [100, 5_000, 70_000, largest][draws.below(4)];
            let bytes = 1 + draws.below(most_bytes);
            machine.runtime.exchange_stream(stream).unwrap();
            let (buffer, byte) = (machine.runtime.empty(bytes, device).unwrap(), draws.byte());
            buffer.fill(byte, stream).unwrap();
            live.push(FilledBuffer { buffer, byte });
        }
        let statistics = allocator.statistics();
        assert_eq!(statistics.allocation.all.current, live.len() as u64, "in step {step}");
        let least: usize = live.iter().map(|live| live.buffer.nbytes()).sum();
        assert!(statistics.allocated_bytes.all.current >= least as u64, "in step {step}");
        if step % 50 == 49 {
            allocator.check_all();
            for FilledBuffer { buffer, byte } in &live {
                let expected = vec![*byte; buffer.nbytes()];
                machine.assert_holds(buffer, &expected, &format!("{settings}, step {step}"));
            }
        }
    }
    live.clear();
    machine.runtime.synchronize(device).unwrap();
    allocator.empty_cache();
    allocator.check_all();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
    assert_eq!(machine.runtime.memory_info(device).unwrap(), before, "everything is back");
    machine.end();
}

pub(crate) fn buffers_of_policy_native_share_no_byte_and_go_back(subject: &Subject) {
    random_lives(subject, "policy:native");
}

pub(crate) fn buffers_of_policy_torch_share_no_byte_and_go_back(subject: &Subject) {
    random_lives(subject, "policy:torch");
}

pub(crate) fn a_full_device_serves_a_buffer_again_when_others_are_freed(subject: &Subject) {
    // Goal: what is cached or only enqueued is no reason to refuse. Method: buffers of a quarter
    // each, dropped while tasks use them, several times more than fit.
    let machine = Machine::new(subject);
    let (device, stream) = (machine.devices[0], &machine.streams[0]);
    let bytes = machine.runtime.memory_info(device).unwrap().total_bytes / 4;
    for byte in 0..12 {
        let buffer = machine.runtime.empty(bytes, device).unwrap();
        buffer.fill(byte, stream).unwrap();
    }
    let refused = machine.runtime.empty(5 * bytes, device).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::OutOfMemory { .. })), "{refused}");
    machine.end();
}
