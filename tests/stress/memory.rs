//! Memory under load: buffers of many sizes change streams, threads and owners all the time.
//!
//! Goal: no byte of a buffer is anybody else's while its tasks run. Method: every buffer is filled
//! with a byte of its own, copied to a second one on another stream, and both are looked at in the
//! end; between that and the look, other threads allocate, free and reuse memory as fast as they
//! can. Some buffers are handed to other threads, which free them there, some are dropped while
//! their tasks are queued. Under the address sanitizer, memory that went back too early is seen
//! where it is touched.

use std::sync::mpsc;
use std::thread;

use accelrt::{Buffer, Event, Runtime, Stream, StreamGuard};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::{CPU, finishes, setting, workers};

const THREADS: usize = 8;
const STREAMS: usize = 64;
/// Buffers that a thread holds back to look at them later.
const HELD: usize = 16;

/// A buffer that has to hold one byte everywhere.
struct Marked {
    buffer: Buffer,
    byte: u8,
}

impl Marked {
    fn check(&self) {
        let bytes = self.buffer.read_to_vec().expect("no task fails");
        let other = bytes.iter().position(|byte| *byte != self.byte);
        assert_eq!(other, None, "{} bytes of {}", bytes.len(), self.byte);
    }
}

#[test]
fn buffers_keep_their_bytes_while_eight_threads_turn_memory_over_on_sixty_four_streams() {
    let rounds = setting("ACCELRT_TEST_STRESS_BUFFERS", 2_000);
    let seed = seed();
    finishes(move || {
        let runtime = workers(4);
        let streams: Vec<Stream> = (0..STREAMS).map(|_| runtime.stream(CPU).unwrap()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| mpsc::channel::<Marked>()).unzip();
        thread::scope(|scope| {
            for (own, received) in receivers.into_iter().enumerate() {
                let (runtime, streams, next) =
                    (&runtime, &streams, senders[(own + 1) % THREADS].clone());
                let numbers = Numbers::new(seed ^ own as u64);
                scope.spawn(move || turn_over(runtime, streams, numbers, rounds, &next, &received));
            }
            drop(senders);
        });
        runtime.synchronize(CPU).expect("no task fails");
    });
}

/// One thread: makes buffers and gives some to the next thread.
fn turn_over(
    runtime: &Runtime,
    streams: &[Stream],
    mut numbers: Numbers,
    rounds: u64,
    next: &mpsc::Sender<Marked>,
    received: &mpsc::Receiver<Marked>,
) {
    let mut held: Vec<Marked> = Vec::new();
    for _ in 0..rounds {
        let [home, other] = [(); 2].map(|()| &streams[numbers.below(STREAMS)]);
        let marked = copied(runtime, home, other, &mut numbers);
        match numbers.below(8) {
            0 => drop(marked),            // with its tasks queued
            1 => drop(next.send(marked)), // which a thread that has ended refuses: freed here
            _ => held.push(marked),
        }
        if held.len() > HELD {
            held.swap_remove(numbers.below(HELD)).check();
        }
        for marked in received.try_iter() {
            marked.check(); // and is freed here
        }
    }
    for marked in received.try_iter().chain(held) {
        marked.check();
    }
}

/// A buffer of `home` that is filled there, and its copy made by `other`; the first one is dropped.
fn copied(runtime: &Runtime, home: &Stream, other: &Stream, numbers: &mut Numbers) -> Marked {
    let magnitude = 4 + numbers.below(18);
    let bytes = 1 + numbers.below(1 << magnitude);
    let byte = u8::try_from(numbers.below(256)).expect("a byte");
    let first = empty_on(runtime, home, bytes);
    drop(first.fill(byte, home).expect("a fill"));
    let is_filled = Event::new();
    home.record(&is_filled).expect("an event of this kind");
    other.wait_event(&is_filled).expect("an event of this kind");
    let buffer = empty_on(runtime, other, bytes);
    drop(buffer.copy_from(&first, other).expect("buffers of one size"));
    Marked { buffer, byte }
}

/// A buffer whose home is a stream.
fn empty_on(runtime: &Runtime, home: &Stream, bytes: usize) -> Buffer {
    let _guard = StreamGuard::new(runtime, home).expect("a stream of this runtime");
    runtime.empty(bytes, CPU).expect("memory")
}
