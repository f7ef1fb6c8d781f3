//! Enqueueing (Q1) and whole pipelines (Q6): ours and channels of boxed closures in one situation.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use accelrt::{Device, Runtime};

use crate::measure::{Figure, REPETITIONS, WARM_UP, in_turns, ns_each, number, repeated};
use crate::opencl::Opencl;
use crate::peers::{Channel, Gate, Lane};
use crate::quiet::Watch;
use crate::table::Table;

/// Tasks of a burst that nobody drains: few enough to stay in a cache.
const BURST: usize = 4_096;
const BURSTS: usize = 16;
/// Tasks of a pipeline; far below the limit at which a stream holds its producers back.
const PIPELINE: usize = 200_000;

pub(crate) fn measure(
    runtime: &Runtime,
    opencl: Option<&Opencl>,
    table: &mut Table,
) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    let (crossbeam, std) = (Channel::of_crossbeam(), Channel::of_std());
    let mut rows = |name: &str, [ours, with_crossbeam, with_std]: [Figure; 3]| {
        table.row(name, ours)?;
        table.against(&format!("{name}.crossbeam"), ours, ("crossbeam", Some(with_crossbeam)))?;
        table.against(&format!("{name}.std"), ours, ("std", Some(with_std))).map(|()| ours)
    };
    let alone = in_turns([
        &mut |watch| enqueue_alone_ns(&stream, watch),
        &mut |watch| enqueue_alone_ns(&crossbeam, watch),
        &mut |watch| enqueue_alone_ns(&std, watch),
    ]);
    let ours = rows("Q1", alone)?;
    let beside = in_turns([
        &mut |watch| watch.once(|| enqueue_beside_consumer_ns(&stream)),
        &mut |watch| watch.once(|| enqueue_beside_consumer_ns(&crossbeam)),
        &mut |watch| watch.once(|| enqueue_beside_consumer_ns(&std)),
    ]);
    rows("Q1.beside", beside)?;
    for (name, producers) in [("Q6", 1), ("Q6.four", 4)] {
        let pipelines = in_turns([
            &mut |watch| watch.once(|| pipeline_ns(&stream, producers)),
            &mut |watch| watch.once(|| pipeline_ns(&crossbeam, producers)),
            &mut |watch| watch.once(|| pipeline_ns(&std, producers)),
        ]);
        rows(name, pipelines)?;
    }
    drop((crossbeam, std));
    let marker = opencl.map(|opencl| repeated(|watch| watch.once(|| opencl.enqueue_marker_ns())));
    table.against("Q1.opencl", ours, ("OpenCL marker", marker))?;
    let [young, old] = ageing_ns(runtime);
    table.against("Q6.flat", old, ("itself after 1e3 tasks", Some(young)))
}

/// A task of 40 bytes: the most that a stream keeps in its own slot.
#[inline]
fn task(number: usize) -> impl FnOnce() + Send + 'static {
    let payload = [number; 5];
    move || {
        black_box(payload);
    }
}

/// Per task, of bursts onto a lane whose consumer stands still.
fn enqueue_alone_ns(lane: &impl Lane, watch: &mut Watch<'_>) -> f64 {
    watch.blocks(BURSTS, BURST, |count| {
        let gate = Gate::shut(lane);
        (0..count / WARM_UP).for_each(|number| lane.put(task(number)));
        let started = Instant::now();
        (0..count).for_each(|number| lane.put(task(number)));
        let time = started.elapsed();
        gate.open();
        lane.finish();
        ns_each(time, count)
    })
}

/// Per task, as the producer sees it while a consumer runs what it puts.
fn enqueue_beside_consumer_ns(lane: &impl Lane) -> f64 {
    let gate = Gate::shut(lane);
    gate.open();
    let started = Instant::now();
    (0..PIPELINE).for_each(|number| lane.put(task(number)));
    let time = started.elapsed();
    lane.finish();
    ns_each(time, PIPELINE)
}

/// Per task, from the first one put to the last one run.
fn pipeline_ns(lane: &impl Lane, producers: usize) -> f64 {
    let each = PIPELINE / producers;
    let put = || (0..each).for_each(|number| lane.put(task(number)));
    if producers == 1 {
        let started = Instant::now();
        put();
        lane.finish();
        return ns_each(started.elapsed(), each);
    }
    let barrier = Barrier::new(producers);
    let produce = || {
        barrier.wait();
        let started = Instant::now();
        put();
        started
    };
    let started = thread::scope(|scope| {
        let producers: Vec<_> = (0..producers).map(|_| scope.spawn(produce)).collect();
        producers.into_iter().map(|one| one.join().expect("it only puts")).min()
    });
    lane.finish();
    ns_each(started.expect("a producer").elapsed(), each * producers)
}

/// Per task of a stream's pipeline, when 1e3 and when 1e7 tasks have passed through the stream.
fn ageing_ns(runtime: &Runtime) -> [Figure; 2] {
    const BATCH: usize = 1_000;
    const BATCHES: usize = 10_000;
    /// Batches that count, at either end.
    const COUNTED: usize = 100;
    let (mut young, mut old) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let stream = runtime.stream(Device::cpu(0)).expect("a stream");
        let batches = (0..=BATCHES + COUNTED).map(|_| {
            let started = Instant::now();
            (0..BATCH).for_each(|number| stream.put(task(number)));
            stream.finish();
            started.elapsed()
        });
        let times: Vec<_> = batches.collect();
        // Means of single batches vary with who won the stream, so sums of many are compared.
        let mean = |times: &[Duration]| {
            times.iter().sum::<Duration>().as_secs_f64() * 1e9 / number(BATCH * COUNTED)
        };
        young.push(mean(&times[1..=COUNTED]));
        old.push(mean(&times[BATCHES + 1..=BATCHES + COUNTED]));
    }
    [Figure::of(young), Figure::of(old)]
}
