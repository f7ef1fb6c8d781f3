//! The order of tasks that use one buffer on several streams: none of them races with another.
//!
//! A held stream stands in a deferred task that the test finishes, on every kind. What has to stay
//! behind it is not done after a while in which it could have been; what need not is waited for.
#![expect(unsafe_code, reason = "forms whose order the caller promises")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use accelrt::{Buffer, Completion, Config, Error, MemoryError, Stream, Transfer};
use accelrt_testing::fault::Method;

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::steps::Steps;
use crate::support::{CPU, Machine, enqueue_failure, finishes, stream_error};

/// A stream that is held until the completion is finished or dropped.
struct Held {
    told: mpsc::Receiver<Completion>,
    steps: Steps,
}

fn hold(stream: &Stream) -> Held {
    let (tell, told) = mpsc::channel();
    stream.enqueue_deferred(move |completion| drop(tell.send(completion))).unwrap();
    Held { told, steps: Steps::of(stream) }
}

fn let_go(held: &Held) {
    held.steps.receive(&held.told).expect("the task begins").finish(Ok(()));
}

fn idle() {
    std::thread::sleep(Duration::from_millis(10)); // what is held back stays idle
}

/// Keeps this thread for a moment.
fn take_a_moment() {
    let started = Instant::now();
    while started.elapsed() < Duration::from_micros(300) {
        std::thread::yield_now();
    }
}

/// A stream with a task behind it: a driver's next one goes past its queue, which the first cannot.
fn used_stream(machine: &Machine) -> Stream {
    let (stream, buffer) = (machine.stream(), machine.runtime.zeros(8, machine.device()).unwrap());
    buffer.fill(1, &stream).unwrap();
    stream.synchronize().unwrap();
    stream
}

type Enqueue = fn(&Buffer, &Buffer, &Stream) -> Transfer;

/// Tasks that write the first buffer, and tasks that read it; the second one is for them alone.
const WRITES: [Enqueue; 3] = [
    |buffer, _, stream| buffer.fill(1, stream).unwrap(),
    |buffer, other, stream| buffer.copy_from(other, stream).unwrap(),
    |buffer, _, stream| buffer.copy_from_host(vec![2; buffer.nbytes()], stream).unwrap(),
];
const READS: [Enqueue; 1] = [|buffer, other, stream| other.copy_from(buffer, stream).unwrap()];

/// A task behind a held stream, and one on another stream.
struct Pair {
    held: Held,
    first: Transfer,
    second: Transfer,
}

impl Pair {
    /// Each on its part of one buffer.
    fn new(machine: &Machine, tasks: [Enqueue; 2], parts: [(usize, usize); 2]) -> Self {
        let (device, streams) = (machine.device(), [(); 2].map(|()| used_stream(machine)));
        let buffer = machine.runtime.zeros(400, device).unwrap();
        let others = [(); 2].map(|()| machine.runtime.zeros(400, device).unwrap());
        machine.home().synchronize().unwrap();
        let held = hold(&streams[0]);
        let [first, second] = [0, 1].map(|which: usize| {
            let (begin, end) = parts[which];
            let [one, other] = [&buffer, &others[which]].map(|it| it.slice(begin..end).unwrap());
            tasks[which](&one, &other, &streams[which])
        });
        Self { held, first, second }
    }

    /// The second task runs when the first one has.
    fn assert_ordered(self) {
        idle();
        assert!(!self.second.is_done(), "it ran in front of what it conflicts with");
        let_go(&self.held);
        self.second.wait().unwrap();
        assert!(self.first.is_done());
    }

    /// The second task runs while the first one is held.
    fn assert_side_by_side(self) {
        self.second.wait().unwrap();
        assert!(!self.first.is_done());
        let_go(&self.held);
        self.first.wait().unwrap();
    }
}

const WHOLE: [(usize, usize); 2] = [(0, 400); 2];

#[test]
fn tasks_of_two_streams_that_write_the_same_bytes_run_one_behind_the_other() {
    finishes(|| {
        for machine in Machine::each() {
            for write in WRITES {
                for other in WRITES.into_iter().chain(READS) {
                    Pair::new(&machine, [write, other], WHOLE).assert_ordered();
                    Pair::new(&machine, [other, write], WHOLE).assert_ordered();
                }
            }
        }
    });
}

#[test]
fn tasks_that_only_read_or_use_other_bytes_are_side_by_side() {
    finishes(|| {
        for machine in Machine::each() {
            Pair::new(&machine, [READS[0]; 2], WHOLE).assert_side_by_side();
            for write in WRITES {
                Pair::new(&machine, [write; 2], [(0, 200), (200, 400)]).assert_side_by_side();
                Pair::new(&machine, [write; 2], [(0, 201), (200, 400)]).assert_ordered();
            }
        }
    });
}

#[test]
fn a_task_runs_behind_all_that_a_stream_reads_of_a_buffer_and_not_its_last_part_alone() {
    // Goal: no read that stands in its queue is overtaken. Method: a held stream reads two parts,
    // one after the other; tasks of other streams write one of them each.
    finishes(|| {
        for machine in Machine::each() {
            let device = machine.device();
            let [reader, first, second] = [(); 3].map(|()| used_stream(&machine));
            let [buffer, target] = [(); 2].map(|()| machine.runtime.zeros(128, device).unwrap());
            let part = |of: &Buffer, half: usize| of.slice(64 * half..64 * (half + 1)).unwrap();
            machine.home().synchronize().unwrap();
            let held = hold(&reader);
            for half in [0, 1] {
                part(&target, half).copy_from(&part(&buffer, half), &reader).unwrap();
            }
            let writes = [(0, &first), (1, &second)]
                .map(|(half, stream)| part(&buffer, half).fill(1, stream).unwrap());
            idle();
            assert_eq!(writes.each_ref().map(Transfer::is_done), [false; 2]);
            let_go(&held);
            for write in writes {
                write.wait().unwrap();
            }
            reader.synchronize().unwrap();
            if machine.runs_on_host() {
                assert_eq!(target.read_to_vec().unwrap(), [0; 128]);
            }
        }
    });
}

#[test]
fn an_unordered_task_waits_for_its_own_stream_alone() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let unordered: [Enqueue; 4] = [
            // SAFETY: in this test the two tasks are one behind the other, by what it waits for.
            |buffer, _, stream| unsafe { buffer.fill_unordered(1, stream) }.unwrap(),
            // SAFETY: as above.
            |buffer, other, stream| unsafe { buffer.copy_from_unordered(other, stream) }.unwrap(),
            |buffer, _, stream| {
                let owner = vec![1; buffer.nbytes()];
                let (from, bytes) = (owner.as_ptr(), owner.len());
                // SAFETY: as above; the bytes are in the owner's heap, which moves with it.
                unsafe { buffer.copy_from_host_range(from, bytes, owner, stream) }.unwrap()
            },
            |buffer, _, stream| {
                let mut owner = vec![0; buffer.nbytes()];
                let (to, bytes) = (owner.as_mut_ptr(), owner.len());
                // SAFETY: as above.
                unsafe { buffer.copy_to_host_range(to, bytes, owner, stream) }.unwrap()
            },
        ];
        for task in unordered {
            Pair::new(&machine, [WRITES[0], task], WHOLE).assert_side_by_side();
            Pair::new(&machine, [task, WRITES[0]], WHOLE).assert_ordered(); // its use is known
        }
    });
}

#[test]
fn a_task_runs_behind_uses_that_the_runtime_was_told_of() {
    finishes(|| {
        for machine in Machine::each() {
            let [told, stream] = [machine.stream(), machine.stream()];
            let buffer = machine.runtime.zeros(64, machine.device()).unwrap();
            machine.home().synchronize().unwrap();
            let held = hold(&told);
            buffer.record_use(&told).unwrap();
            let copy = buffer.copy_to_host(vec![0; 64], &stream).unwrap();
            buffer.fill(1, &stream).unwrap();
            idle();
            assert!(!copy.is_done());
            let_go(&held);
            copy.wait().unwrap();
            stream.synchronize().unwrap();
        }
    });
}

#[test]
fn a_task_on_another_stream_runs_behind_the_earlier_life_of_the_memory() {
    finishes(|| {
        for machine in Machine::each() {
            let (device, home, other) = (machine.device(), machine.home(), machine.stream());
            let first = machine.runtime.empty(4096, device).unwrap();
            let address = first.address().unwrap();
            let held = hold(&home);
            first.fill(1, &home).unwrap();
            drop(first);
            let second = machine.runtime.empty(4096, device).unwrap();
            assert_eq!(second.address().unwrap(), address, "the memory is used again");
            let filled = second.fill(2, &other).unwrap();
            idle();
            assert!(!filled.is_done());
            let_go(&held);
            filled.wait().unwrap();
            if machine.runs_on_host() {
                assert_eq!(second.read_to_vec().unwrap(), [2; 4096]);
            }
        }
    });
}

#[test]
fn an_order_takes_no_failure_over() {
    let machine = Machine::cpu(1);
    let [failed, stream] = [machine.stream(), machine.stream()];
    let buffer = machine.runtime.zeros(64, CPU).unwrap();
    let held = hold(&failed);
    enqueue_failure(&failed);
    buffer.fill(1, &failed).unwrap();
    let filled = buffer.fill(2, &stream).unwrap();
    let_go(&held);
    filled.wait().unwrap();
    stream.synchronize().unwrap();
    stream_error(failed.synchronize());
    assert_eq!(buffer.read_to_vec().unwrap(), [2; 64]);
}

#[test]
fn streams_of_two_kinds_run_one_behind_the_other_on_memory_of_the_host() {
    // Goal: what no device can wait for is parked and resumed. Method: a driver's stream reads what
    // a stream of the host's writes, and the other way round.
    use accelrt_testing::null::CompletionMode::{AtOnce, WhenAsked};
    finishes(|| {
        for completion in [AtOnce, WhenAsked { polls: 2 }] {
            let machine = Machine::null(completion);
            let cpu = machine.runtime.stream(CPU).unwrap();
            let device = machine.stream();
            let on_host = machine.runtime.zeros(256, CPU).unwrap();
            let there = machine.runtime.empty(256, machine.device()).unwrap();
            for turn in 0..20 {
                let held = hold(&cpu);
                on_host.fill(turn, &cpu).unwrap();
                let read = there.copy_from(&on_host, &device).unwrap();
                let written = on_host.fill(turn + 1, &cpu).unwrap();
                assert!(!read.is_done() && !written.is_done());
                let_go(&held);
                written.wait().unwrap();
                assert!(read.is_done(), "the host's stream has written behind it");
            }
        }
    });
}

/// A megabyte: long enough for another thread to come between.
const BYTES: usize = 1 << 20;

/// Asserts that the bytes are those of one fill.
#[track_caller]
fn assert_whole(bytes: &[u8]) {
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "bytes of two fills");
}

#[test]
fn threads_that_use_two_buffers_on_their_own_streams_see_no_fill_in_part() {
    // Goal: no order of calls, by any threads, is a data race or a deadlock. Method: every task
    // writes a buffer as a whole, so bytes that differ are of two tasks at once.
    let seed = seed();
    finishes(move || {
        let machine = Machine::cpu(1);
        let buffers = [(); 2].map(|()| machine.runtime.zeros(BYTES, CPU).unwrap());
        std::thread::scope(|threads| {
            for number in 0..4 {
                let (stream, buffers) = (machine.stream(), &buffers);
                let mut numbers = Numbers::new(seed + number);
                threads.spawn(move || {
                    for _ in 0..40 {
                        let which = numbers.below(2);
                        let (buffer, other) = (&buffers[which], &buffers[1 - which]);
                        let byte = u8::try_from(numbers.below(256)).unwrap();
                        match numbers.below(6) {
                            0 => drop(buffer.fill(byte, &stream).unwrap()),
                            1 => drop(buffer.copy_from(other, &stream).unwrap()),
                            2 => drop(buffer.copy_from_host(vec![byte; BYTES], &stream).unwrap()),
                            3 => buffer.write_from_slice(&vec![byte; BYTES]).unwrap(),
                            4 => assert_whole(&buffer.read_to_vec().unwrap()),
                            _ => {
                                let copy = buffer.copy_to_host(vec![0; BYTES], &stream).unwrap();
                                assert_whole(&copy.wait().unwrap());
                            }
                        }
                    }
                    stream.synchronize().unwrap();
                });
            }
        });
        for buffer in buffers {
            assert_whole(&buffer.read_to_vec().unwrap());
        }
    });
}

#[test]
fn a_released_buffer_is_refused_by_every_form_and_nothing_is_enqueued() {
    let machine = Machine::cpu(1);
    let (stream, other) = (machine.stream(), machine.runtime.zeros(64, CPU).unwrap());
    let buffer = machine.runtime.zeros(64, CPU).unwrap();
    buffer.release().unwrap();
    for refused in [
        buffer.fill(1, &stream),
        buffer.copy_from(&other, &stream),
        other.copy_from(&buffer, &stream),
        buffer.copy_from_host(vec![0; 64], &stream),
    ] {
        assert!(matches!(refused, Err(Error::Memory(MemoryError::Released { .. }))), "{refused:?}");
    }
    stream.synchronize().unwrap();
    assert_eq!(stream.enqueue_deferred(|done| done.finish(Ok(()))).unwrap(), 1);
}

/// Has threads read a buffer so that always one of them is inside, up to `most` times, for as long
/// as `act` takes.
fn while_some_thread_reads(machine: &Machine, buffer: &Buffer, most: u64, act: impl FnOnce()) {
    let (entered, is_over) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    for call in 1..=most {
        let entered = Arc::clone(&entered);
        machine.backend.plan_callback(Method::Copy, call, move || {
            let own = entered.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            take_a_moment();
            // Until the next one is inside, or is not coming.
            while entered.load(Ordering::Relaxed) == own + 1 && started.elapsed() < LONG {
                std::thread::yield_now();
            }
        });
    }
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_whole(&buffer.read_to_vec().unwrap());
                }
            });
        }
        while entered.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        act();
        let count = entered.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        machine.backend.clear();
        assert!(count < most, "those who came later were first, {count} of them");
    });
}

/// How long a reader waits for the next one.
const LONG: Duration = Duration::from_millis(200);

#[test]
fn a_task_is_enqueued_and_runs_while_other_threads_keep_reading_the_bytes() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let [buffer, other] = [(); 2].map(|()| machine.runtime.zeros(4096, CPU).unwrap());
        let stream = machine.stream();
        machine.home().synchronize().unwrap();
        while_some_thread_reads(&machine, &buffer, 2000, || {
            for write in [WRITES[0], WRITES[0]] {
                write(&buffer, &other, &stream).wait().unwrap();
            }
        });
        assert_eq!(buffer.read_to_vec().unwrap(), [1; 4096]);
    });
}

#[test]
fn a_thread_writes_the_bytes_while_others_keep_reading_them() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let buffer = machine.runtime.zeros(4096, CPU).unwrap();
        machine.home().synchronize().unwrap();
        let write = || buffer.write_from_slice(&[7; 4096]).unwrap();
        while_some_thread_reads(&machine, &buffer, 2000, write);
        assert_eq!(buffer.read_to_vec().unwrap(), [7; 4096]);
    });
}

#[test]
fn a_thread_reads_and_writes_the_bytes_while_tasks_that_write_them_keep_coming() {
    // Goal: the thread comes before tasks that are enqueued later. Method: each fill enqueues the
    // next one on the other stream before it is done, so there is always one to wait for.
    const MOST: u64 = 2000;
    finishes(|| {
        let machine = Machine::cpu(1);
        let buffer = machine.runtime.zeros(4096, CPU).unwrap();
        machine.runtime.synchronize(CPU).unwrap();
        let streams = [machine.stream(), machine.stream()];
        let count = Arc::new(AtomicU64::new(0));
        for call in 1..=MOST {
            let (buffer, streams, count) = (buffer.clone(), streams.clone(), Arc::clone(&count));
            machine.backend.plan_callback(Method::Fill, call, move || {
                let own = count.fetch_add(1, Ordering::Relaxed);
                take_a_moment();
                buffer.fill(5, &streams[usize::from(own % 2 == 0)]).unwrap();
            });
        }
        buffer.fill(5, &streams[0]).unwrap();
        for _ in 0..3 {
            assert_whole(&buffer.read_to_vec().unwrap());
            buffer.write_from_slice(&[1; 4096]).unwrap();
        }
        let count = count.load(Ordering::Relaxed);
        machine.backend.clear();
        assert!(count < MOST, "those that came later were first, {count} of them");
    });
}

/// A thread wants to write a buffer, has waited for a first task and then meets a held one that
/// reads: does a later read run behind the thread, and not beside that task? The thread may also
/// come late, and wait for both tasks before it takes its place.
fn is_behind_who_waits(machine: &Machine) -> bool {
    let cpu = || machine.runtime.stream(CPU).unwrap();
    let [buffer, target] = [(); 2].map(|()| machine.runtime.zeros(64, CPU).unwrap());
    let there = machine.runtime.empty(64, machine.device()).unwrap();
    machine.runtime.synchronize(CPU).unwrap();
    let (streams, later) = ([cpu(), cpu()], used_stream(machine));
    let held = [hold(&streams[0]), hold(&streams[1])];
    buffer.fill(1, &streams[0]).unwrap();
    let was_pending = std::thread::scope(|threads| {
        let writer = threads.spawn(|| buffer.write_from_slice(&[3; 64]).unwrap());
        idle();
        target.copy_from(&buffer, &streams[1]).unwrap();
        let_go(&held[0]);
        idle();
        let read = there.copy_from(&buffer, &later).unwrap();
        idle();
        let was_pending = !read.is_done();
        let_go(&held[1]);
        writer.join().unwrap();
        read.wait().unwrap();
        was_pending
    });
    assert_eq!(target.read_to_vec().unwrap(), [1; 64]);
    if !machine.runs_on_host() {
        return was_pending;
    }
    // A read that is only late has what was there before: the bytes say where it was.
    let bytes = there.read_to_vec().unwrap();
    assert!(bytes == [1; 64] || was_pending && bytes == [3; 64], "{bytes:?}");
    bytes == [3; 64]
}

#[test]
fn a_task_that_comes_later_runs_behind_a_thread_that_waits_for_its_turn() {
    finishes(|| {
        for machine in Machine::each() {
            assert!((0..20).any(|_| is_behind_who_waits(&machine)), "{:?}", machine.device());
        }
    });
}

#[test]
fn a_thread_is_held_back_by_a_streams_limit_also_where_every_task_stands_behind_another_streams() {
    // Goal: queued work is bounded. Method: two streams fill a buffer in turns, and one is held, so
    // that each fill has a wait in front of it; a thread enqueues until it comes no further.
    const LIMIT: u64 = 64;
    const MOST: u64 = 2000;
    finishes(|| {
        let machine =
            Machine::cpu_with(&Config::builder().stream_task_limit(LIMIT).build().unwrap());
        let buffer = machine.runtime.zeros(64, CPU).unwrap();
        let streams = [machine.stream(), machine.stream()];
        machine.home().synchronize().unwrap();
        let held = hold(&streams[0]);
        let count = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let producer = threads.spawn(|| {
                for turn in 0..MOST {
                    buffer.fill(1, &streams[usize::from(turn % 2 == 1)]).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            let (mut before, mut since) = (0, Instant::now());
            while !producer.is_finished() && since.elapsed() < LONG {
                let now = count.load(Ordering::Relaxed);
                if now > before {
                    (before, since) = (now, Instant::now());
                }
                std::thread::yield_now();
            }
            let ahead = count.load(Ordering::Relaxed);
            let_go(&held);
            producer.join().unwrap();
            assert!(ahead <= 4 * LIMIT, "{ahead} fills were queued");
        });
    });
}
