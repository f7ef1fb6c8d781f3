//! Tasks over views: what they see, what they stand behind, and what stands behind them.

use std::sync::mpsc;

use accelrt::{Config, Device, Runtime, TypedBuffer};

use crate::gate::Gate;
use crate::support::{CPU, finishes, streams, typed, workers};

#[test]
fn a_task_has_the_elements_of_each_view_in_the_form_that_it_was_given() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let bytes = typed(&runtime, &[1_u8, 2, 3]);
    let floats = typed(&runtime, &[0.5_f64, 1.5]);
    let pairs = typed(&runtime, &[[1_i16, -1], [2, -2]]);
    let sums = typed(&runtime, &[0_i64; 3]);
    let uses = (bytes.reads(), floats.reads(), pairs.reads(), sums.writes());
    stream
        .enqueue_with(uses, |(bytes, floats, pairs, sums)| {
            sums[0] = bytes.iter().copied().map(i64::from).sum();
            sums[1] = if floats == [0.5, 1.5] { 2 } else { 0 };
            sums[2] = pairs.iter().map(|[one, other]| i64::from(one - other)).sum();
        })
        .unwrap();
    assert_eq!(sums.read_to_vec().unwrap(), [6, 2, 6]);
    stream.enqueue_with(sums.writes(), |sums| sums[0] = 7).unwrap();
    stream.enqueue_with([sums.slice(1..2).unwrap().writes()], |[sum]| sum[0] = 8).unwrap();
    stream.enqueue_with((sums.slice(2..).unwrap().writes(),), |(sum,)| sum[0] = 9).unwrap();
    assert_eq!(sums.read_to_vec().unwrap(), [7, 8, 9]);
}

#[test]
fn tasks_of_two_streams_over_the_same_bytes_run_one_behind_the_other() {
    // Goal: no increment is lost although none is atomic. Method: two threads enqueue on streams of
    // their own, on two workers.
    const ROUNDS: usize = 2000;
    finishes(|| {
        let runtime = workers(2);
        let (count, streams) = (typed(&runtime, &[0_usize]), streams::<2>(&runtime));
        std::thread::scope(|scope| {
            for stream in &streams {
                let count = &count;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        stream.enqueue_with(count.writes(), |count| count[0] += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(count.read_to_vec().unwrap(), [2 * ROUNDS]);
    });
}

/// Enqueues a task over `buffer` that waits until it is let go, and then increments each element if
/// it writes.
fn hold(
    stream: &accelrt::Stream,
    buffer: &TypedBuffer<u32>,
    writes: bool,
) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    let (open, opened) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel();
    let wait = move || {
        let _ = enter.send(());
        let _ = opened.recv();
    };
    let enqueued = if writes {
        stream.enqueue_with(buffer.writes(), move |numbers| {
            wait();
            for number in numbers {
                *number += 1;
            }
        })
    } else {
        stream.enqueue_with(buffer.reads(), move |_| wait())
    };
    drop(enqueued.unwrap());
    (open, entered)
}

#[test]
fn what_conflicts_on_another_stream_waits_for_the_task_and_what_does_not_goes_on() {
    finishes(|| {
        let runtime = workers(3);
        let [holder, other, reader] = streams(&runtime);
        let numbers = typed(&runtime, &[1_u32; 8]);
        let [first, rest] = [0..4, 4..8].map(|range| numbers.slice(range).unwrap());
        let (open, entered) = hold(&holder, &first, true);
        entered.recv().unwrap();
        other.enqueue_with(rest.writes(), |rest| rest.fill(5)).unwrap().wait().unwrap();
        let copy = runtime.empty(16, CPU).unwrap();
        let copied = copy.copy_from(first.buffer(), &other).unwrap();
        let read = reader.enqueue_with(first.reads(), |first| assert_eq!(first, [2; 4])).unwrap();
        assert!(!copied.is_done() && !read.is_done());
        open.send(()).unwrap();
        read.wait().unwrap();
        assert_eq!(copy.typed::<u32>().unwrap().read_to_vec().unwrap(), [2; 4]);
        assert_eq!(numbers.read_to_vec().unwrap(), [2, 2, 2, 2, 5, 5, 5, 5]);
    });
}

#[test]
fn tasks_that_only_read_run_beside_each_other_and_a_writer_behind_them() {
    finishes(|| {
        let runtime = workers(3);
        let [holder, reader, writer] = streams(&runtime);
        let numbers = typed(&runtime, &[1_u32; 4]);
        let (open, entered) = hold(&holder, &numbers, false);
        entered.recv().unwrap();
        reader.enqueue_with(numbers.reads(), |_| ()).unwrap().wait().unwrap();
        let written = writer.enqueue_with(numbers.writes(), |numbers| numbers.fill(2)).unwrap();
        assert!(!written.is_done());
        open.send(()).unwrap();
        written.wait().unwrap();
        assert_eq!(numbers.read_to_vec().unwrap(), [2; 4]);
    });
}

#[test]
fn a_host_access_waits_for_the_task_and_sees_what_it_wrote() {
    finishes(|| {
        let runtime = workers(2);
        let [stream] = streams(&runtime);
        let numbers = typed(&runtime, &[1_u32; 4]);
        let (open, entered) = hold(&stream, &numbers, true);
        entered.recv().unwrap();
        std::thread::scope(|scope| {
            let read = scope.spawn(|| numbers.read_to_vec().unwrap());
            open.send(()).unwrap();
            assert_eq!(read.join().unwrap(), [2; 4]);
        });
    });
}

#[test]
fn a_task_stands_behind_the_earlier_life_of_its_memory() {
    // Goal: memory that its home stream still uses is written by no other stream before. Method:
    // the home's gate stands before a fill of the freed buffer whose memory comes back.
    finishes(|| {
        let runtime = workers(2);
        let [home, other] = streams(&runtime);
        let bytes = 1 << 20;
        let first = runtime.empty_on(bytes, &home).unwrap();
        let address = first.address().unwrap();
        let gate = Gate::shut(&home);
        first.fill(1, &home).unwrap();
        drop(first);
        let second = runtime.empty_on(bytes, &home).unwrap().typed::<u8>().unwrap();
        assert_eq!(second.buffer().address().unwrap(), address, "the memory is used again");
        let written = other.enqueue_with(second.writes(), |bytes| bytes.fill(2)).unwrap();
        assert!(!written.is_done());
        gate.open();
        written.wait().unwrap();
        assert!(second.read_to_vec().unwrap().iter().all(|byte| *byte == 2));
    });
}

#[test]
fn memory_that_is_dropped_or_released_right_after_the_call_is_free_behind_the_task() {
    finishes(|| {
        let runtime = workers(2);
        let [home, stream] = streams(&runtime);
        for is_released in [false, true] {
            let buffer = runtime.zeros_on(1 << 20, &home).unwrap();
            let address = buffer.address().unwrap();
            let numbers = buffer.typed::<u32>().unwrap();
            let (open, entered) = hold(&stream, &numbers, true);
            entered.recv().unwrap();
            if is_released {
                buffer.release().unwrap();
            }
            drop((numbers, buffer));
            let next = runtime.empty_on(1 << 20, &home).unwrap();
            assert_ne!(next.address().unwrap(), address, "the task still has it");
            open.send(()).unwrap();
            stream.synchronize().unwrap();
        }
    });
}

#[test]
fn a_task_over_views_without_bytes_runs() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let empty = runtime.empty(0, CPU).unwrap().typed::<u64>().unwrap();
    let (sender, receiver) = mpsc::channel();
    let lengths = (empty.reads(), empty.writes());
    let task = move |(one, other): (&[u64], &mut [u64])| sender.send(one.len() + other.len());
    stream.enqueue_with(lengths, task).unwrap().wait().unwrap();
    assert_eq!(receiver.recv().unwrap(), 0);
}

#[test]
fn an_error_or_a_panic_fails_the_stream_and_a_failed_stream_skips_the_task() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let numbers = typed(&runtime, &[1_u32]);
    let failures = [
        stream.enqueue_with(numbers.writes(), |_| Err::<(), _>("an error of it")).unwrap(),
        stream.enqueue_with(numbers.writes(), |numbers| numbers[0] = 2).unwrap(),
    ];
    for failed in failures {
        let error = failed.wait().unwrap_err();
        assert!(error.to_string().contains("an error of it"), "{error}");
    }
    stream.synchronize().unwrap(); // the receipt has ended the failure
    assert_eq!(numbers.read_to_vec().unwrap(), [1], "the second was skipped");
    let beyond = stream.enqueue_with(numbers.writes(), |numbers| numbers[1] = 2).unwrap();
    let error = beyond.wait().unwrap_err();
    assert!(error.to_string().contains("index out of bounds"), "{error}");
    stream.synchronize().unwrap();
}

#[test]
fn a_stream_of_one_cpu_device_has_the_memory_of_another_in_order() {
    finishes(|| {
        let config = Config::builder().cpu_devices(2).cpu_threads(1).build().unwrap();
        let runtime = Runtime::new(config).unwrap();
        let there = runtime.stream(Device::cpu(1)).unwrap();
        let [here] = streams(&runtime);
        let numbers = runtime.zeros_on(16, &there).unwrap().typed::<u32>().unwrap();
        let gate = Gate::shut(&there);
        there.enqueue_with(numbers.writes(), |numbers| numbers.fill(3)).unwrap();
        let doubled = here.enqueue_with(numbers.writes(), |numbers| {
            for number in numbers {
                *number *= 2;
            }
        });
        assert!(!doubled.as_ref().unwrap().is_done());
        gate.open();
        doubled.unwrap().wait().unwrap();
        assert_eq!(numbers.read_to_vec().unwrap(), [6; 4]);
    });
}
