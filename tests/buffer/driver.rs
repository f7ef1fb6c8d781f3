//! Kinds whose tasks only submit: memory and owners are kept until the device is done.

use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::CompletionMode;

use crate::support::{Drops, Machine};

/// Size of a segment for little.
const SMALL: usize = 2 << 20;

fn machine() -> Machine {
    Machine::null(CompletionMode::WhenAsked { polls: u32::MAX })
}

#[test]
fn a_free_costs_no_call_of_the_driver_until_somebody_asks() {
    let machine = machine();
    let buffers: Vec<_> =
        (0..50).map(|_| machine.runtime.empty(100, machine.device()).unwrap()).collect();
    for buffer in &buffers {
        buffer.fill(1, &machine.home()).unwrap();
    }
    drop(buffers);
    assert_eq!(machine.backend.calls(Method::Mark), 0);
    assert_eq!(machine.backend.calls(Method::Release), 0);
    assert_eq!(machine.kept(), SMALL, "the device has not done anything yet");
    machine.home().synchronize().unwrap();
    assert_eq!(machine.kept(), 0);
}

#[test]
fn memory_goes_back_when_the_devices_of_every_use_are_done() {
    let machine = machine();
    let others = [machine.stream(), machine.stream_on(machine.devices[1])];
    let buffer = machine.runtime.empty(100, machine.device()).unwrap();
    for other in &others {
        buffer.record_use(other).unwrap();
    }
    drop(buffer);
    for stream in [&machine.home(), &others[1]] {
        stream.synchronize().unwrap();
        assert_eq!(machine.taken(), 100);
    }
    others[0].synchronize().unwrap();
    assert_eq!(machine.taken(), 0);
}

#[test]
fn memory_stays_while_a_driver_refuses_to_say_whether_it_is_used() {
    // Goal: a refused wait is no end of the use. Method: a stream ends with a fill on its way and
    // the memory of that dropped. First a mark can be waited for instead, then nothing can.
    for is_deaf in [false, true] {
        let machine = machine();
        let stream = machine.stream();
        let buffer = machine.runtime.empty(100, machine.device()).unwrap();
        buffer.fill(1, &stream).unwrap();
        drop(buffer);
        machine.backend.plan(Fault::always(Method::StreamSynchronize, FaultError::Driver));
        if is_deaf {
            machine.backend.plan(Fault::always(Method::Mark, FaultError::Driver));
        }
        let waits = machine.backend.calls(Method::WaitMark);
        drop(stream);
        machine.backend.clear();
        machine.home().synchronize().unwrap();
        assert_eq!(machine.taken(), if is_deaf { 100 } else { 0 });
        let waited = machine.backend.calls(Method::WaitMark) - waits;
        assert_eq!(waited, u64::from(!is_deaf));
    }
}

#[test]
fn an_event_that_was_waited_for_gives_back_what_was_freed_before_it() {
    let machine = machine();
    drop(machine.runtime.zeros(100, machine.device()).unwrap());
    let event = machine.home().record_event().unwrap();
    assert_eq!(machine.kept(), SMALL);
    event.synchronize().unwrap();
    assert_eq!(machine.kept(), 0);
}

#[test]
fn the_owner_of_host_memory_is_kept_until_the_device_is_done() {
    let (machine, drops) = (machine(), Drops::default());
    let (buffer, stream) = (machine.runtime.empty(9, machine.device()).unwrap(), machine.stream());
    let from = buffer.copy_from_host(drops.watch(vec![1; 9]), &stream).unwrap();
    let to = buffer.copy_to_host(drops.watch(vec![1; 9]), &stream).unwrap();
    drop(to); // the device still writes there
    assert_eq!(drops.count(), 0);
    from.wait().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(drops.count(), 2);
}

#[test]
fn a_stream_whose_last_handle_goes_keeps_what_it_holds_until_the_device_is_done() {
    let (machine, drops) = (machine(), Drops::default());
    let stream = machine.stream();
    let buffer = machine.runtime.empty(9, machine.device()).unwrap();
    buffer.copy_from_host(drops.watch(vec![1; 9]), &stream).unwrap();
    drop(stream); // the buffer's recorded use still keeps it
    assert_eq!(drops.count(), 0);
    drop(buffer);
    machine.settle();
    assert!(machine.resource_counts().streams <= 3);
    machine.runtime.shutdown();
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_transfer_is_done_when_the_device_was_asked_often_enough() {
    let machine = Machine::null(CompletionMode::WhenAsked { polls: 3 });
    let buffer = machine.runtime.empty(9, machine.device()).unwrap();
    let transfer = buffer.fill(1, &machine.home()).unwrap();
    let answers: Vec<bool> = (0..5).map(|_| transfer.is_done()).collect();
    assert_eq!(answers, [false, false, false, true, true]);
    assert_eq!(machine.backend.calls(Method::Mark), 1, "one mark is asked again and again");
}

#[test]
fn host_access_needs_a_kind_that_runs_on_the_host() {
    let machine = machine();
    let buffer = machine.runtime.zeros(9, machine.device()).unwrap();
    for refused in [buffer.read_to_vec().map(drop), buffer.write_from_slice(&[0; 9])] {
        assert!(
            matches!(
                refused,
                Err(accelrt::Error::Driver(accelrt::DriverError::Unsupported { .. }))
            ),
            "{refused:?}"
        );
    }
    buffer.wait_for_host().unwrap();
    buffer.copy_to_slice(&mut [0; 9], &machine.home()).unwrap();
}

#[test]
fn a_cpu_buffer_that_a_device_reads_is_freed_when_the_device_is_done() {
    // Goal: one allocation used by streams of two kinds. Method: the runtime has both; the cpu's
    // part passes at once, the device's when it is synchronised with.
    let machine = machine();
    let cpu = accelrt::Device::cpu(0);
    let source = machine.runtime.zeros(1000, cpu).unwrap();
    let target = machine.runtime.empty(1000, machine.device()).unwrap();
    source.wait_for_host().unwrap();
    let in_use = || machine.runtime.allocator(cpu).unwrap().statistics().active.all.current;
    target.copy_from(&source, &machine.home()).unwrap();
    drop(source);
    machine.runtime.synchronize(cpu).unwrap();
    assert_eq!(in_use(), 1);
    machine.home().synchronize().unwrap();
    assert_eq!(in_use(), 0);
}
