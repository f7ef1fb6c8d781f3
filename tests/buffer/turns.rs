//! Threads of the host that use one buffer's bytes take turns, and tasks stand behind them.
//!
//! A reading thread is held inside of its copy, so whoever writes has to wait for its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use accelrt::Buffer;
use accelrt_testing::fault::Method;

use crate::support::{CPU, Machine, finishes};

fn idle() {
    std::thread::sleep(Duration::from_millis(10)); // what is held back stays idle
}

/// Keeps this thread for so long that another one would come between.
fn take_a_moment() {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(3) {
        std::thread::yield_now();
    }
}

/// A thread that reads the bytes, and is inside of its copy until the sender is dropped.
fn held_reader<'scope>(
    machine: &Machine,
    threads: &'scope Scope<'scope, '_>,
    buffer: &'scope Buffer,
) -> (ScopedJoinHandle<'scope, Vec<u8>>, Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (held, ends) = mpsc::channel();
    machine.backend.plan_callback(Method::Copy, 1, move || {
        begun.send(()).unwrap();
        let _ = ends.recv(); // until it is dropped
    });
    let reader = threads.spawn(|| buffer.read_to_vec().unwrap());
    begins.recv().unwrap();
    (reader, held)
}

#[test]
fn threads_that_write_the_bytes_are_inside_one_at_a_time_behind_one_that_reads_them() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let buffer = machine.runtime.zeros(64, CPU).unwrap();
        machine.home().synchronize().unwrap();
        let inside = Arc::new(AtomicUsize::new(1));
        std::thread::scope(|threads| {
            let (reader, held) = held_reader(&machine, threads, &buffer);
            for call in [1, 2] {
                let inside = Arc::clone(&inside);
                machine.backend.plan_callback(Method::Copy, call, move || {
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "others are inside");
                    take_a_moment();
                    inside.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let buffer = &buffer;
            let writers = [1, 2]
                .map(|byte| threads.spawn(move || buffer.write_from_slice(&[byte; 64]).unwrap()));
            idle();
            inside.fetch_sub(1, Ordering::Relaxed);
            drop(held);
            assert_eq!(reader.join().unwrap(), [0; 64]);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        assert_eq!(inside.load(Ordering::Relaxed), 0);
        let bytes = buffer.read_to_vec().unwrap();
        assert!([[1; 64], [2; 64]].iter().any(|written| bytes == written), "{bytes:?}");
    });
}

#[test]
fn threads_take_turns_also_where_no_stream_has_used_the_bytes() {
    // Goal: who comes second waits, whatever the memory's past is. Method: a thread is held inside
    // of its copy to fresh memory; another one that uses the bytes is not inside meanwhile.
    finishes(|| {
        for writes in [true, false] {
            let machine = Machine::cpu(1);
            let buffer = machine.runtime.empty(64, CPU).unwrap();
            std::thread::scope(|threads| {
                let ((begun, begins), (held, ends)) = (mpsc::channel(), mpsc::channel::<()>());
                machine.backend.plan_callback(Method::Copy, 1, move || {
                    begun.send(()).unwrap();
                    let _ = ends.recv(); // until it is dropped
                });
                let first = threads.spawn(|| buffer.write_from_slice(&[1; 64]).unwrap());
                begins.recv().unwrap();
                let (enter, entered) = mpsc::channel();
                machine.backend.plan_callback(Method::Copy, 1, move || enter.send(()).unwrap());
                let second = threads.spawn(|| {
                    if writes {
                        buffer.write_from_slice(&[2; 64]).unwrap();
                    } else {
                        assert_eq!(buffer.read_to_vec().unwrap(), [1; 64]);
                    }
                });
                let is_beside = entered.recv_timeout(Duration::from_millis(100)).is_ok();
                drop(held);
                first.join().unwrap();
                second.join().unwrap();
                assert!(!is_beside, "two threads are inside at once");
            });
            let last = if writes { 2 } else { 1 };
            assert_eq!(buffer.read_to_vec().unwrap(), [last; 64]);
        }
    });
}

/// A thread waits to write bytes, and a task that reads them comes: what did it read? One that
/// reads other bytes runs meanwhile. The thread may also come late, behind the task.
fn read_behind_a_writer(machine: &Machine) -> Vec<u8> {
    let whole = machine.runtime.zeros(128, CPU).unwrap();
    let [written, other] = [0..64, 64..128].map(|bytes| whole.slice(bytes).unwrap());
    let streams = [machine.stream(), machine.stream()];
    machine.home().synchronize().unwrap();
    std::thread::scope(|threads| {
        let (reader, held) = held_reader(machine, threads, &written);
        let writer = threads.spawn(|| written.write_from_slice(&[7; 64]).unwrap());
        idle();
        let behind = written.copy_to_host(vec![1; 64], &streams[0]).unwrap();
        let beside = other.copy_to_host(vec![1; 64], &streams[1]).unwrap();
        assert_eq!(beside.wait().unwrap(), [0; 64]);
        idle();
        drop(held);
        assert_eq!(reader.join().unwrap(), [0; 64]);
        writer.join().unwrap();
        behind.wait().unwrap()
    })
}

#[test]
fn a_task_stands_behind_a_thread_that_waits_to_write_its_bytes_and_beside_one_of_other_bytes() {
    finishes(|| {
        let machine = Machine::cpu(1);
        assert!((0..20).any(|_| read_behind_a_writer(&machine) == [7; 64]));
    });
}
