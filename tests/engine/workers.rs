//! Workers: lazy, idle without cost, with blocked signals and deep stacks, spare ones when needed.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use accelrt::Device;

use crate::gate::Gate;
use crate::processors::{allowed_cpus, pin};
use crate::support::thread::{IDLE, sleeping_workers};
use crate::support::{
    CPU, devices, enqueue_notice, enqueue_question, finishes, stream, streams,
    wait_without_helping, workers,
};
use crate::thread_id::ThreadId;

#[test]
fn idle_workers_use_no_processor() {
    // Goal: workers spin briefly, then sleep. Method: their own processor time over an idle half
    // second after all have worked.
    finishes(|| {
        let runtime = workers(4);
        let threads = sleeping_workers(&runtime, 4);
        ThreadId::assert_asleep(&threads, IDLE);
    });
}

#[test]
fn a_worker_on_its_submitters_processor_does_not_look_for_work() {
    // Goal: a look for more work keeps nobody from submitting it. Method: this thread and the
    // worker share one processor of several; the worker's time by task, of which a look takes tens
    // of microseconds.
    finishes(|| {
        let runtime = workers(1);
        pin(&allowed_cpus()[..1]); // the worker, which this thread starts, too
        let stream = stream(&runtime);
        let [worker] = sleeping_workers(&runtime, 1)[..] else { unreachable!("one worker") };
        // The least of three: what the machine does beside the worker lengthens one of them.
        let used = (0..3).map(|_| {
            let (rounds, before) = (100, worker.cpu_time());
            for _ in 0..rounds {
                let notice = enqueue_notice(&stream);
                while notice.try_recv().is_err() {} // awake: a sleeper that is woken ends a look
            }
            worker.cpu_time().saturating_sub(before) / rounds
        });
        let used = used.min().unwrap();
        assert!(used < Duration::from_micros(40), "{used:?} a task");
    });
}

#[test]
fn workers_of_devices_with_parked_streams_use_no_processor() {
    finishes(|| {
        let runtime = devices(2, 2);
        let source = runtime.stream(Device::cpu(1)).unwrap();
        let gate = Gate::enqueue(&source);
        let inside = gate.wait_until_inside();
        let waiting = streams(&runtime, 20);
        for stream in &waiting {
            stream.wait_stream(&source).unwrap();
        }
        let mut threads = sleeping_workers(&runtime, 2);
        threads.push(inside);
        ThreadId::assert_asleep(&threads, IDLE);
    });
}

#[test]
fn a_host_thread_that_waits_uses_no_processor() {
    // Goal: a wait sleeps. Method: the processor time of three threads, each asleep in one form of
    // wait; being asked for interrupts every 50 ms costs a little.
    finishes(|| {
        let runtime = workers(1);
        let stream = stream(&runtime);
        let gate = Gate::shut(&stream);
        let event = stream.record_event().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = |wait: Box<dyn FnOnce() + Send>| {
            let tell = tell.clone();
            std::thread::spawn(move || {
                tell.send(ThreadId::current()).unwrap();
                wait();
            })
        };
        let (waited, polled) = (stream.clone(), event.clone());
        let waits = [
            thread(Box::new(move || waited.synchronize().unwrap())),
            thread(Box::new(move || event.synchronize().unwrap())),
            thread(Box::new(move || polled.synchronize_unless(&mut || false).unwrap())),
        ];
        let threads: Vec<_> = (0..3).map(|_| told.recv().unwrap()).collect();
        for thread in &threads {
            thread.wait_until_asleep();
        }
        ThreadId::assert_asleep(&threads, 2 * IDLE);
        gate.open();
        for thread in waits {
            thread.join().unwrap();
        }
    });
}

#[test]
fn workers_block_all_signals_but_of_their_own_faults_and_the_starting_thread_does_not() {
    finishes(|| {
        let runtime = workers(1);
        let mask = |thread: ThreadId| u64::from_str_radix(&thread.status("SigBlk"), 16).unwrap();
        let before = mask(ThreadId::current());
        let worker = enqueue_question(&stream(&runtime), ThreadId::current);
        let blocked = mask(worker.recv().unwrap());
        let set = |signals: &[u32]| signals.iter().map(|number| 1_u64 << (number - 1)).sum::<u64>();
        // KILL 9 and STOP 19 cannot be blocked; 32 and 33 are the C library's own.
        let may_stay_open = set(&[9, 19, 32, 33]);
        // ILL 4, TRAP 5, BUS 7, FPE 8, SEGV 11, SYS 31: who prints where a thread fell hears it.
        let own_faults = set(&[4, 5, 7, 8, 11, 31]);
        assert_eq!(!blocked & !may_stay_open, own_faults, "signals left open");
        assert_eq!(mask(ThreadId::current()), before);
    });
}

/// Calls itself until the stack is `bytes` deep, seen from the address `top`.
#[inline(never)]
fn descend(top: usize, bytes: usize) -> usize {
    let room = [0_u8; 4096];
    let depth = top.abs_diff(std::ptr::from_ref(black_box(&room)).addr());
    if depth >= bytes { depth } else { black_box(descend(top, bytes)) }
}

#[test]
fn a_task_has_a_stack_of_eight_mebibytes() {
    // Goal: native functions find what a main thread has. Method: nearly all of it is used; a
    // smaller stack would kill the process.
    finishes(|| {
        let runtime = workers(1);
        let nearly_all = (8 << 20) - (256 << 10);
        let task = move || {
            let top = [0_u8; 1];
            descend(std::ptr::from_ref(black_box(&top)).addr(), nearly_all)
        };
        let depth = enqueue_question(&stream(&runtime), task);
        assert!(depth.recv().unwrap() >= nearly_all);
    });
}

#[test]
fn a_blocking_task_occupies_its_worker_and_starts_no_spare_one() {
    finishes(|| {
        let runtime = workers(1);
        let [held, behind] = [stream(&runtime), stream(&runtime)];
        let gate = Gate::enqueue(&held);
        let worker = gate.wait_until_inside();
        let runs_on = enqueue_question(&behind, ThreadId::current);
        gate.open();
        assert_eq!(runs_on.recv().unwrap(), worker);
        assert_eq!(runtime.counters().num_spare_workers, 0);
    });
}

#[test]
fn a_task_that_waits_for_another_stream_executes_it_itself() {
    // Goal: helping to depth one. Method: one worker; both tasks run on it, and nobody else is
    // started.
    finishes(|| {
        let runtime = workers(1);
        let [outer, inner] = [stream(&runtime), stream(&runtime)];
        let task = move || {
            let below = enqueue_question(&inner, ThreadId::current);
            inner.synchronize().unwrap();
            (ThreadId::current(), below.recv().unwrap())
        };
        let (outer_on, inner_on) = enqueue_question(&outer, task).recv().unwrap();
        assert_eq!(outer_on, inner_on);
        assert_eq!(runtime.counters().num_spare_workers, 0);
        assert!(runtime.counters().num_helped_tasks > 0);
    });
}

#[test]
fn deeper_waits_inside_tasks_start_spare_workers() {
    // Goal: no deadlock when all workers wait inside tasks. Method: one worker; a chain of ten
    // tasks, each waiting inside for the next one's stream.
    finishes(|| {
        let runtime = workers(1);
        let chain = streams(&runtime, 10);
        let depth = Arc::new(AtomicUsize::new(0));
        let task = nested_wait(chain[1..].to_vec(), Arc::clone(&depth));
        let notice = enqueue_question(&chain[0], task);
        notice.recv().unwrap();
        assert_eq!(depth.load(Ordering::Relaxed), 9);
        let spare = runtime.counters().num_spare_workers;
        assert!((1..=9).contains(&spare), "{spare}");
    });
}

fn nested_wait(
    mut rest: Vec<accelrt::Stream>,
    depth: Arc<AtomicUsize>,
) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        if rest.is_empty() {
            return;
        }
        let next = rest.remove(0);
        depth.fetch_add(1, Ordering::Relaxed);
        next.enqueue(nested_wait(rest, depth)).unwrap();
        next.synchronize().unwrap();
    })
}

#[test]
fn a_spare_worker_runs_other_streams_while_the_only_one_waits_inside_a_task() {
    // Goal: the wait itself starts it. Method: the task waits for an event of another device that
    // this thread opens only when a stream behind it on the same device has run.
    finishes(|| {
        let runtime = devices(2, 1);
        let elsewhere = runtime.stream(Device::cpu(1)).unwrap();
        let gate = Gate::shut(&elsewhere);
        let event = elsewhere.record_event().unwrap();
        let waits_inside = stream(&runtime);
        let task = move || event.synchronize().unwrap();
        let notice = enqueue_question(&waits_inside, task);
        wait_without_helping(&stream(&runtime));
        assert!(notice.try_recv().is_err());
        assert_eq!(runtime.counters().num_spare_workers, 1);
        gate.open();
        notice.recv().unwrap();
    });
}

#[test]
fn spare_workers_go_when_the_wait_is_over() {
    // Goal: the number of workers falls back. Method: of the worker that waited and the spare one,
    // one must end.
    finishes(|| {
        let runtime = devices(2, 1);
        let elsewhere = runtime.stream(Device::cpu(1)).unwrap();
        let gate = Gate::shut(&elsewhere);
        let event = elsewhere.record_event().unwrap();
        let task = move || {
            event.synchronize().unwrap();
            ThreadId::current()
        };
        let waited = enqueue_question(&stream(&runtime), task);
        let spare = enqueue_question(&stream(&runtime), ThreadId::current).recv().unwrap();
        gate.open();
        let workers = [waited.recv().unwrap(), spare];
        assert_ne!(workers[0], workers[1]);
        while workers.iter().all(|thread| thread.is_alive()) {
            wait_without_helping(&stream(&runtime));
        }
    });
}

#[test]
fn each_runnable_stream_gets_a_worker_while_there_are_workers() {
    // Goal: an edge wakes a worker, and a worker that leaves work behind wakes the next. Method:
    // tasks that need each other's presence, again and again, from sleep and from bustle.
    finishes(|| {
        let runtime = workers(3);
        let all = streams(&runtime, 3);
        for round in 0..200 {
            let meeting = Arc::new(std::sync::Barrier::new(3));
            let enqueue = |stream: &accelrt::Stream| {
                let meeting = Arc::clone(&meeting);
                stream
                    .enqueue(move || {
                        let _ = meeting.wait();
                    })
                    .unwrap();
            };
            all.iter().for_each(enqueue);
            let notices: Vec<_> = all.iter().map(enqueue_notice).collect();
            for notice in &notices {
                notice.recv().unwrap();
            }
            if round % 20 == 0 {
                sleeping_workers(&runtime, 3);
            }
        }
    });
}

#[test]
fn a_worker_that_takes_a_stream_and_sees_another_wakes_the_next() {
    // Goal: as said, without a push to do it. Method: one task makes two streams runnable and
    // stays; both must be executed at once by the two other workers.
    finishes(|| {
        let runtime = workers(3);
        for _ in 0..50 {
            sleeping_workers(&runtime, 3);
            let meeting = Arc::new(std::sync::Barrier::new(3));
            let others = streams(&runtime, 2);
            let first = stream(&runtime);
            let task = move || {
                for stream in &others {
                    let meeting = Arc::clone(&meeting);
                    stream
                        .enqueue(move || {
                            let _ = meeting.wait();
                        })
                        .unwrap();
                }
                meeting.wait();
            };
            enqueue_question(&first, task).recv().unwrap();
        }
    });
}

#[test]
fn a_shut_down_runtime_has_no_threads_left() {
    finishes(|| {
        let runtime = workers(3);
        let threads = sleeping_workers(&runtime, 3);
        assert!(runtime.shutdown().is_clean());
        // Joined: only the kernel's list may lag.
        while threads.iter().any(|thread| thread.is_alive()) {
            std::thread::yield_now();
        }
        assert!(runtime.stream(CPU).is_err());
    });
}
