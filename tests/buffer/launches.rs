//! Native calls that are given their buffers: recorded uses that wake the host by themselves.
//!
//! Method: a gate before the call is opened by the interrupt check of the waiting thread, which is
//! asked only once that thread is asleep; a gate behind the call stays shut. What a wait pushed
//! shows in the tickets.
#![expect(unsafe_code, reason = "native calls are made on a promise")]

use std::time::Duration;

use accelrt::{Error, FfiCall, MemoryError, RuntimeError};
use accelrt_testing::fault::Method;
use accelrt_testing::null::CompletionMode;

use crate::gate::Gate;
use crate::support::{CPU, Machine, enqueue_failure, finishes, stream_error};

extern "C" fn set_nines(bytes: *mut u8, count: usize) {
    // SAFETY: each test gives a buffer's address and size.
    unsafe { std::slice::from_raw_parts_mut(bytes, count) }.fill(9);
}

fn call(buffer: &accelrt::Buffer) -> FfiCall {
    let arguments = [buffer.address().unwrap().into(), buffer.nbytes().into()];
    FfiCall::new(set_nines as *const _, &arguments).unwrap()
}

fn launch(stream: &accelrt::Stream, buffer: &accelrt::Buffer) -> accelrt::Result<u64> {
    let call = call(buffer);
    // SAFETY: the types are those of `set_nines`, and the buffer has as many bytes.
    unsafe { stream.launch_with_buffers(call, &[buffer]) }
}

/// Waits for the buffer; the gate is opened when this thread is asleep.
fn wait_and_open(buffer: &accelrt::Buffer, gate: Gate) -> accelrt::Result<()> {
    let mut gate = Some(gate);
    buffer.wait_for_host_unless(&mut || {
        if let Some(gate) = gate.take() {
            gate.open();
        }
        false
    })
}

#[test]
fn a_launch_with_buffers_wakes_the_host_and_nothing_is_pushed_for_that() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(8, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        let before = launch(&stream, &buffer).unwrap();
        let behind = Gate::enqueue(&stream);
        wait_and_open(&buffer, gate).unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), [9; 8]);
        assert!(!stream.is_done());
        let after = launch(&stream, &buffer).unwrap();
        assert_eq!(after - before, 2, "this launch and the gate");
        behind.open();
    });
}

/// Goal: what the program cannot order it need not order. Method: the home stream still has a task
/// that writes the memory of an earlier buffer; what uses the new buffer on another stream, in an
/// order that is the program's business, runs behind it.
#[test]
fn what_the_program_orders_runs_behind_the_memorys_earlier_life_all_the_same() {
    let uses: [fn(&accelrt::Stream, &accelrt::Buffer); 3] = [
        |stream, buffer| assert!(launch(stream, buffer).unwrap() > 0),
        // SAFETY: nothing else accesses the new buffer.
        |stream, buffer| drop(unsafe { buffer.fill_unordered(9, stream) }.unwrap()),
        |stream, buffer| {
            let nines = vec![9; buffer.nbytes()];
            let (source, bytes) = (nines.as_ptr(), nines.len());
            // SAFETY: nothing else accesses the new buffer; the vector's elements stay in place.
            let copy = unsafe { buffer.copy_from_host_range(source, bytes, nines, stream) };
            drop(copy.unwrap());
        },
    ];
    finishes(move || {
        for enqueue in uses {
            let machine = Machine::cpu(1);
            let (home, other) = (machine.home(), machine.stream());
            let first = machine.runtime.empty(4096, CPU).unwrap();
            let address = first.address().unwrap();
            let gate = Gate::shut(&home);
            let _ = first.fill(1, &home).unwrap();
            drop(first);
            let second = machine.runtime.empty(4096, CPU).unwrap();
            assert_eq!(second.address().unwrap(), address, "the memory is used again");
            enqueue(&other, &second);
            std::thread::sleep(Duration::from_millis(10)); // the other stream stays idle
            assert!(!other.is_done());
            gate.open();
            assert_eq!(second.read_to_vec().unwrap(), [9; 4096]);
        }
    });
}

/// Goal: neither does the thread that enqueues run it at once, as it may on a driver's idle stream.
#[test]
fn a_drivers_fill_that_the_program_orders_runs_behind_the_memorys_earlier_life_too() {
    finishes(|| {
        let machine = Machine::null(CompletionMode::AtOnce);
        let (device, home, other) = (machine.device(), machine.home(), machine.stream());
        // A stream's first task is queued in any case.
        machine.runtime.empty(16, device).unwrap().fill(0, &other).unwrap().wait().unwrap();
        let first = machine.runtime.empty(4096, device).unwrap();
        let address = first.address().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        home.enqueue_deferred(move |completion| drop(tell.send(completion))).unwrap();
        let _ = first.fill(1, &home).unwrap();
        drop(first);
        let second = machine.runtime.empty(4096, device).unwrap();
        assert_eq!(second.address().unwrap(), address, "the memory is used again");
        // SAFETY: nothing else accesses the new buffer.
        let filled = unsafe { second.fill_unordered(9, &other) }.unwrap();
        assert_eq!(machine.backend.calls(Method::Fill), 1, "both fills are held back");
        told.recv().unwrap().finish(Ok(()));
        filled.wait().unwrap();
        assert_eq!(machine.backend.calls(Method::Fill), 3);
    });
}

#[test]
fn a_copy_wakes_the_host_and_nothing_is_pushed_for_that() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.empty(8, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        let before = launch(&stream, &buffer).unwrap();
        let _ = buffer.fill(3, &stream).unwrap();
        wait_and_open(&buffer, gate).unwrap();
        assert_eq!(buffer.read_to_vec().unwrap(), [3; 8]);
        assert_eq!(launch(&stream, &buffer).unwrap() - before, 2, "the fill and this launch");
    });
}

#[test]
fn a_skipped_launch_wakes_the_host_with_the_error() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (buffer, stream) = (machine.runtime.zeros(8, CPU).unwrap(), machine.stream());
        buffer.wait_for_host().unwrap();
        let gate = Gate::shut(&stream);
        enqueue_failure(&stream);
        launch(&stream, &buffer).unwrap();
        stream_error(wait_and_open(&buffer, gate));
        stream.synchronize().unwrap();
        assert_eq!(buffer.slice(..).unwrap().read_to_vec().unwrap(), [0; 8]);
    });
}

#[test]
fn a_cancelled_launch_wakes_the_host() {
    finishes(|| {
        let config = accelrt::Config::builder().exit_timeout(Duration::ZERO).build().unwrap();
        let machine = Machine::cpu_with(&config);
        let (buffer, stream) = (machine.runtime.empty(8, CPU).unwrap(), machine.stream());
        let gate = Gate::shut(&stream);
        launch(&stream, &buffer).unwrap();
        let mut gate = Some(gate);
        let waited = buffer.wait_for_host_unless(&mut || {
            if let Some(gate) = gate.take() {
                let runtime = machine.runtime.clone();
                let end = std::thread::spawn(move || runtime.shutdown());
                while stream.enqueue(|| ()).is_ok() {
                    std::hint::spin_loop(); // until the shutdown has begun
                }
                gate.open();
                drop(end);
            }
            false
        });
        assert!(
            matches!(waited, Err(Error::Runtime(RuntimeError::ShutDown)) | Ok(())),
            "{waited:?}"
        );
    });
}

#[test]
fn a_launch_with_a_released_buffer_is_refused_and_enqueues_nothing() {
    let machine = Machine::cpu(1);
    let stream = machine.stream();
    let [kept, released] = [8, 8].map(|bytes| machine.runtime.empty(bytes, CPU).unwrap());
    let call = call(&released);
    released.release().unwrap();
    // SAFETY: nothing is enqueued.
    let refused = unsafe { stream.launch_with_buffers(call, &[&kept, &released]) };
    assert!(matches!(refused, Err(Error::Memory(MemoryError::Released { .. }))), "{refused:?}");
    assert!(stream.is_quiet());
}

#[test]
fn a_launch_with_a_buffer_of_another_runtime_is_refused() {
    let [ours, theirs] = [(); 2].map(|()| Machine::cpu(1));
    let (buffer, stream) = (theirs.runtime.zeros(8, CPU).unwrap(), ours.stream());
    let refused = launch(&stream, &buffer);
    assert!(
        matches!(refused, Err(Error::Runtime(RuntimeError::OtherRuntime { what: "a buffer", .. }))),
        "{refused:?}"
    );
    assert_eq!(buffer.read_to_vec().unwrap(), [0; 8]);
}
