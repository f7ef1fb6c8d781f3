//! Many streams (G): what is known of them, and what is left of those that are gone.

use std::fs;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use accelrt::{Buffer, Completion, Config, Device, Event, Runtime, Stream, StreamGuard};

use crate::measure::{Figure, in_turns, ns_each, number};
use crate::table::Table;

const CPU: Device = Device::cpu(0);
const FEW: usize = 10;
const MANY: usize = 16_000;
/// Streams that are measured beside those that are known.
const MORE: usize = 128;
/// Streams one after the other, and those at the beginning and at the end that are compared.
const GONE: usize = 1_000_000;
const COMPARED: usize = 100_000;

pub(crate) fn measure(table: &mut Table) -> io::Result<()> {
    let (few, many) = (World::new(FEW), World::new(MANY));
    let [few_ns, many_ns] = in_turns([&mut |watch| watch.once(|| few.use_ns()), &mut |watch| {
        watch.once(|| many.use_ns())
    }]);
    table.against("G1", many_ns, ("among 10", Some(few_ns)))?;
    let (few, many) = (World::new(FEW), World::new(MANY));
    few.free_behind_each();
    many.free_behind_each();
    let [few_ns, many_ns] = in_turns([&mut |watch| watch.once(|| few.free_ns()), &mut |watch| {
        watch.once(|| many.free_ns())
    }]);
    table.against("G2", many_ns, ("among 10", Some(few_ns)))?;
    let (few, many) = (World::new(FEW), World::new(MANY));
    let _kept = [few.one_of_each(), many.one_of_each()];
    let [few_ns, many_ns] = in_turns([&mut |watch| watch.once(|| few.first_ns()), &mut |watch| {
        watch.once(|| many.first_ns())
    }]);
    table.against("G3", many_ns, ("among 10", Some(few_ns)))?;
    measure_gone(table)
}

/// Streams that wait for one event.
struct World {
    runtime: Runtime,
    streams: Vec<Stream>,
    more: Vec<Stream>,
    gate: Option<Completion>,
}

impl World {
    fn new(count: usize) -> Self {
        let config =
            Config::builder().cpu_memory_bytes(64 << 30).build().expect("the settings are right");
        let runtime = Runtime::new(config).expect("settings of a device");
        let (sender, begun) = mpsc::channel();
        let (first, event) = (stream(&runtime), Event::new());
        let hold = move |completion| sender.send(completion).expect("it is waited for");
        first.enqueue_deferred(hold).expect("a task");
        first.record(&event).expect("a record");
        let waiting = |_| {
            let stream = stream(&runtime);
            stream.wait_event(&event).expect("a wait");
            stream
        };
        let streams = (0..count).map(waiting).collect();
        let more = (0..MORE).map(waiting).collect();
        let gate = Some(begun.recv().expect("the task begins"));
        Self { runtime, streams, more, gate }
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.runtime.empty(bytes, CPU).expect("memory")
    }

    /// G1: a use of a buffer by one more stream.
    fn use_ns(&self) -> f64 {
        let shared = self.buffer(64);
        let note = |stream: &Stream| shared.record_use(stream).expect("a use");
        self.streams.iter().for_each(note);
        let started = Instant::now();
        self.more.iter().for_each(note);
        ns_each(started.elapsed(), MORE)
    }

    fn free_behind_each(&self) {
        for stream in &self.streams {
            self.buffer(64 << 10).record_use(stream).expect("a use");
        }
    }

    /// G2: a request, a use on a stream that is late, and the free that waits for it.
    fn free_ns(&self) -> f64 {
        let started = Instant::now();
        for stream in &self.more {
            self.buffer(64 << 10).record_use(stream).expect("a use");
        }
        ns_each(started.elapsed(), MORE)
    }

    fn first_of(&self, stream: &Stream) -> (Buffer, Duration) {
        let _current = StreamGuard::new(&self.runtime, stream).expect("a stream of this runtime");
        let started = Instant::now();
        let buffer = self.buffer(64 << 10);
        (buffer, started.elapsed())
    }

    fn one_of_each(&self) -> Vec<Buffer> {
        self.streams.iter().map(|stream| self.first_of(stream).0).collect()
    }

    /// G3: the first request of a stream.
    fn first_ns(&self) -> f64 {
        let streams: Vec<_> = (0..MORE).map(|_| stream(&self.runtime)).collect();
        let first = streams.iter().map(|stream| self.first_of(stream));
        let (_kept, times): (Vec<Buffer>, Vec<Duration>) = first.unzip();
        ns_each(times.iter().sum(), MORE)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.finish(Ok(()));
        }
        self.runtime.synchronize(CPU).expect("no task fails");
    }
}

fn stream(runtime: &Runtime) -> Stream {
    runtime.stream(CPU).expect("a stream")
}

/// G4: streams that are made, used and dropped, one after the other.
fn measure_gone(table: &mut Table) -> io::Result<()> {
    let runtime = Runtime::new(Config::default()).expect("the default settings are right");
    let turn = |count: usize| {
        let started = Instant::now();
        for _ in 0..count {
            let stream = stream(&runtime);
            let _current = StreamGuard::new(&runtime, &stream).expect("of this runtime");
            let buffer = runtime.empty(1000, CPU).expect("memory");
            drop(buffer.fill(1, &stream).expect("a fill"));
            drop(buffer);
            stream.synchronize().expect("no task fails");
        }
        Figure::exact(ns_each(started.elapsed(), count))
    };
    turn(COMPARED / 10);
    let first = turn(COMPARED);
    let (bytes, mappings) = (resident_bytes()?, mappings()?);
    turn(GONE - 2 * COMPARED);
    let last = turn(COMPARED);
    let bytes = resident_bytes()?.saturating_sub(bytes);
    let mappings = self::mappings()?.saturating_sub(mappings);
    table.against("G4", last, ("the first ones", Some(first)))?;
    table.row_in("bytes", "G4.memory", Figure::exact(number(bytes) / number(GONE - COMPARED)))?;
    table.row_in("mappings", "G4.mappings", Figure::exact(number(mappings)))
}

/// What the process has in memory.
fn resident_bytes() -> io::Result<usize> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("the kernel does not say"))
}

fn mappings() -> io::Result<usize> {
    Ok(fs::read_to_string("/proc/self/maps")?.lines().count())
}
