//! Round trips: by helping (Q3), through a worker that looks (Q4), through one that sleeps (Q5).

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use accelrt::{Config, Device, Runtime, Stream};

use crate::measure::{
    Figure, in_turns, ns_each, ns_per_round, number, repeated, warm_ns_per_round,
};
use crate::opencl::Opencl;
use crate::peers::{Gate, Lane};
use crate::ping_pong::{Ball, rested_rounds_ns, sleeping_ns, spinning_ns};
use crate::processors::{allowed_cpus, pin};
use crate::table::Table;

const HELPED_ROUNDS: usize = 5_000;
const HELPED_BLOCKS: usize = 20;
const AWAKE_ROUNDS: usize = 100_000;
const ASLEEP_ROUNDS: usize = 60;
const FIRST_ROUNDS: usize = 20;

pub(crate) fn measure(
    runtime: &Runtime,
    opencl: Option<&Opencl>,
    table: &mut Table,
) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    // Not in turns with those after idleness: this one is of a warm loop.
    let helped = repeated(|watch| {
        watch.blocks(HELPED_BLOCKS, HELPED_ROUNDS, |n| warm_ns_per_round(n, || round(&stream)))
    });
    let first = repeated(|watch| watch.once(|| first_after_idleness_ns(&stream)));
    table.row("Q3", helped)?;
    let marker = opencl.map(|opencl| repeated(|watch| opencl.round_trip_ns(watch)));
    table.against("Q3.opencl", helped, ("OpenCL marker", marker))?;
    table.row("Q3.first", first)?;
    match allowed_cpus()[..] {
        [caller_cpu, worker_cpu, ..] => through_workers(caller_cpu, worker_cpu, table),
        _ => ["Q4", "Q5", "Q5.wakes"]
            .iter()
            .try_for_each(|name| table.unmeasured(name, "needs two processors")),
    }
}

/// An empty task there and back.
fn round(stream: &Stream) {
    stream.put(|| {
        black_box(());
    });
    stream.finish();
}

/// A round trip after a millisecond in which nothing happened.
fn first_after_idleness_ns(stream: &Stream) -> f64 {
    let mut time = Duration::ZERO;
    for _ in 0..FIRST_ROUNDS {
        thread::sleep(Duration::from_millis(1));
        let started = Instant::now();
        round(stream);
        time += started.elapsed();
    }
    ns_each(time, FIRST_ROUNDS)
}

/// Caller and workers pinned as the two threads of the ping-pongs are.
fn through_workers(caller_cpu: usize, worker_cpu: usize, table: &mut Table) -> io::Result<()> {
    let everywhere = allowed_cpus();
    let runtime = Runtime::new(Config::default()).expect("the default settings are right");
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    pin(&[worker_cpu]);
    start_every_worker(&runtime, everywhere.len());
    pin(&[caller_cpu]);
    let ball = Arc::new(Ball::new());

    let [ours, spinning] = in_turns([
        &mut |watch| {
            watch.once(|| ns_per_round(AWAKE_ROUNDS, || through_looking_worker(&stream, &ball)))
        },
        &mut |watch| watch.once(|| spinning_ns(worker_cpu, AWAKE_ROUNDS)),
    ]);
    table.against("Q4", ours, ("spin ping-pong", Some(spinning)))?;

    let mut wakes = Vec::new();
    let [ours, sleeping] = in_turns([
        &mut |watch| {
            watch.once(|| {
                let before = runtime.counters().num_worker_wakes;
                let ns =
                    rested_rounds_ns(ASLEEP_ROUNDS, || through_sleeping_worker(&stream, &ball));
                let woken = runtime.counters().num_worker_wakes - before;
                let woken = usize::try_from(woken).expect("a count");
                wakes.push(number(woken) / number(ASLEEP_ROUNDS));
                ns
            })
        },
        &mut |watch| watch.once(|| sleeping_ns(worker_cpu, ASLEEP_ROUNDS)),
    ]);
    pin(&everywhere);
    table.against("Q5", ours, ("futex ping-pong", Some(sleeping)))?;
    table.row_in("wakes", "Q5.wakes", Figure::of(wakes))
}

/// Has every worker that may exist started by this thread, whose processor it inherits.
fn start_every_worker(runtime: &Runtime, cpu_count: usize) {
    let workers = cpu_count.max(2);
    let streams: Vec<_> =
        (0..workers).map(|_| runtime.stream(Device::cpu(0)).expect("a stream")).collect();
    let gates: Vec<_> = streams.iter().map(Gate::shut).collect();
    gates.into_iter().for_each(Gate::open);
    streams.iter().for_each(Lane::finish);
}

/// The caller only looks at a word, so the worker, which has not gone to sleep since the last
/// round, runs the task.
fn through_looking_worker(stream: &Stream, ball: &Arc<Ball>) {
    ball.set(Ball::THERE);
    let own = Arc::clone(ball);
    stream.put(move || own.set(Ball::HERE));
    ball.spin_until(Ball::HERE);
}

/// As the futex ping-pong: the worker sleeps before, the caller sleeps until the task wakes it.
fn through_sleeping_worker(stream: &Stream, ball: &Arc<Ball>) {
    ball.set(Ball::THERE);
    let own = Arc::clone(ball);
    stream.put(move || own.set_and_wake(Ball::HERE));
    ball.sleep_while(Ball::THERE);
}
