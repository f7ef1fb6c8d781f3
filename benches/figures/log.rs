//! What a profile that is on costs a task (V2).
//!
//! Beside it stands the same task that only reads the clock as often as the log does.

use std::hint::black_box;
use std::io;
use std::sync::mpsc;
use std::time::Instant;

use accelrt::{Device, Runtime, Stream};
use accelrt_observe::profiler::Profile;

use crate::measure::{in_pairs, ns_each, number};
use crate::peers::{Gate, Lane};
use crate::table::Table;

/// Tasks of a burst: several halves of the rings of both threads, so that collecting counts.
const BURST: usize = 8_192;
/// Bursts of a profile, and pairs of a repetition. The process has the memory for the records of a
/// short profile already; those of a long one are in memory that the system gives then.
const SHORT: (usize, usize) = (1, 9);
const LONG: (usize, usize) = (64, 1);

pub(crate) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    for (name, (bursts, pairs)) in [("V2", SHORT), ("V2.long", LONG)] {
        let mean_ns = |count, put: fn(&Stream, usize)| {
            (0..bursts).map(|_| task_ns(&stream, count, put)).sum::<f64>() / number(bursts)
        };
        let profiled_ns = |count| {
            let profile = Profile::start(runtime);
            let ns = mean_ns(count, |stream, number| stream.put(task(number)));
            drop(profile);
            ns
        };
        let pair = in_pairs(pairs, BURST, profiled_ns, |count| mean_ns(count, put_with_clock));
        table.pair(name, "its clock reads", pair)?;
    }
    Ok(())
}

#[inline]
fn task(number: usize) -> impl FnOnce() + Send + 'static {
    let payload = [number; 4];
    move || {
        black_box(payload);
    }
}

/// As the log: a reading on either side of the enqueue, and of the task.
fn put_with_clock(stream: &Stream, number: usize) {
    black_box(ticks());
    let task = task(number);
    stream.put(move || {
        black_box(ticks());
        task();
        black_box(ticks());
    });
    black_box(ticks());
}

/// The time that a task takes on the thread that enqueues it and on the one that runs it. The tasks
/// are enqueued while nobody runs them, so that neither thread waits for the other.
fn task_ns(stream: &Stream, count: usize, put: impl Fn(&Stream, usize)) -> f64 {
    let gate = Gate::shut(stream);
    let (tell, told) = mpsc::channel();
    let put_reading = |tell: mpsc::Sender<Instant>| {
        stream.put(move || tell.send(Instant::now()).expect("somebody waits"));
    };
    put_reading(tell.clone());
    let started = Instant::now();
    (0..count).for_each(|number| put(stream, number));
    let enqueued = started.elapsed();
    put_reading(tell);
    gate.open();
    let [begun, ended] = [(); 2].map(|()| told.recv().expect("the consumer runs"));
    stream.finish();
    ns_each(enqueued + (ended - begun), count)
}

/// Reads the clock as the log does where the kernel's clock is the processor's counter.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "reads the time stamp counter")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: requires SSE2, which every 64-bit x86 has.
    unsafe { std::arch::x86_64::_mm_lfence() };
    // SAFETY: requires the instruction, which every 64-bit x86 has, and permission in user mode,
    // which Linux grants.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the monotonic clock, which is the log's elsewhere.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> Instant {
    Instant::now()
}
