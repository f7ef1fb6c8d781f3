//! The xpu kind (D1 to D3): enqueues, round trips and copies, beside the raw calls of its driver.

use std::io;
use std::time::{Duration, Instant};

use accelrt::{Buffer, Config, Device, DeviceKind, Event, Runtime, Stream};

use crate::measure::{in_turns, ns_each, ns_per_round};
use crate::raw_opencl::Raw;
use crate::table::Table;

const BURST: usize = 512;
const BURSTS: usize = 8;
const ROUNDS: usize = 2_000;
const PEER: &str = "raw OpenCL";
const ROWS: [&str; 6] = ["D1", "D1.copy", "D1.beside", "D2", "D3.4KiB", "D3.64MiB"];

pub(crate) fn measure(table: &mut Table) -> io::Result<()> {
    let config = Config { accelerator: Some(DeviceKind::Xpu), ..Config::default() };
    let runtime = Runtime::new(config).expect("the settings are right");
    let device = Device::new(DeviceKind::Xpu, 0).expect("an index");
    let Ok(stream) = runtime.dedicated_stream(device, 0) else {
        let reason = "no OpenCL runtime with unified shared memory";
        return ROWS.iter().try_for_each(|name| table.unmeasured(name, reason));
    };
    let native = stream.native_handle().expect("a queue");
    let raw = Raw::beside(native).expect("the loader that ours uses");
    let event = Event::new();
    let pair = Pair::new(&runtime, device, 64, &stream);
    let [record, marker, copy, memcpy] = in_turns([
        &mut || held_ns(&stream, &raw, || stream.record(&event).expect("an event of it")),
        &mut || raw_markers_ns(&raw, true),
        &mut || held_ns(&stream, &raw, || pair.copy(&stream)),
        &mut || raw_copies_ns(&raw, &pair),
    ]);
    table.against(ROWS[0], record, (PEER, Some(marker)))?;
    table.against(ROWS[1], copy, (PEER, Some(memcpy)))?;
    let [record, marker, round, raw_round] = in_turns([
        &mut || {
            let record = || stream.record(&event).expect("an event of it");
            let ns = ns_per_round(ROUNDS, record);
            stream.synchronize().expect("no task fails");
            ns
        },
        &mut || raw_markers_ns(&raw, false),
        &mut || ns_per_round(ROUNDS, || round_trip(&stream, &event)),
        &mut || ns_per_round(ROUNDS, || raw_round_trip(&raw)),
    ]);
    table.against(ROWS[2], record, (PEER, Some(marker)))?;
    table.against(ROWS[3], round, (PEER, Some(raw_round)))?;
    for (name, bytes, copies) in [(ROWS[4], 4 << 10, 5_000), (ROWS[5], 64 << 20, 4)] {
        let pair = Pair::new(&runtime, device, bytes, &stream);
        let [ours, theirs] = in_turns([
            &mut || {
                let started = Instant::now();
                (0..copies).for_each(|_| pair.copy(&stream));
                stream.synchronize().expect("no task fails");
                ns_each(started.elapsed(), copies)
            },
            &mut || {
                let started = Instant::now();
                (0..copies).for_each(|_| pair.copy_raw(&raw));
                raw.finish();
                ns_each(started.elapsed(), copies)
            },
        ]);
        table.against(name, ours, (PEER, Some(theirs)))?;
    }
    Ok(())
}

/// Two buffers of one size.
struct Pair([Buffer; 2]);

impl Pair {
    fn new(runtime: &Runtime, device: Device, bytes: usize, stream: &Stream) -> Self {
        let pair = [1, 2].map(|byte| {
            let buffer = runtime.empty(bytes, device).expect("memory");
            buffer.fill(byte, stream).expect("a fill").wait().expect("no task fails");
            buffer
        });
        Self(pair)
    }

    fn copy(&self, stream: &Stream) {
        self.0[0].copy_from(&self.0[1], stream).expect("buffers of one size");
    }

    /// As ours, which tells the device of each copy.
    fn copy_raw(&self, raw: &Raw) {
        let [to, from] = &self.0;
        let [to_address, from_address] =
            [to, from].map(|buffer| buffer.address().expect("it is not released"));
        raw.copy(to_address, from_address, to.nbytes());
        raw.flush();
    }
}

/// Per enqueue while the device stands still.
fn held_ns(stream: &Stream, raw: &Raw, mut enqueue: impl FnMut()) -> f64 {
    let mut time = Duration::ZERO;
    for _ in 0..BURSTS {
        let gate = raw.hold();
        let started = Instant::now();
        (0..BURST).for_each(|_| enqueue());
        time += started.elapsed();
        gate.open();
        stream.synchronize().expect("no task fails");
        raw.finish();
    }
    ns_each(time, BURSTS * BURST)
}

/// Per marker that the device is told of, while it stands still or not. Ours are given back when
/// the device has passed them, so here too that is not timed.
fn raw_markers_ns(raw: &Raw, is_held: bool) -> f64 {
    let mut time = Duration::ZERO;
    let mut markers = Vec::with_capacity(BURST);
    for _ in 0..BURSTS {
        let gate = is_held.then(|| raw.hold());
        let started = Instant::now();
        for _ in 0..BURST {
            markers.push(raw.marker());
            raw.flush();
        }
        time += started.elapsed();
        if let Some(gate) = gate {
            gate.open();
        }
        raw.finish();
        markers.drain(..).for_each(|marker| raw.release(marker));
    }
    ns_each(time, BURSTS * BURST)
}

fn raw_copies_ns(raw: &Raw, pair: &Pair) -> f64 {
    let mut time = Duration::ZERO;
    for _ in 0..BURSTS {
        let gate = raw.hold();
        let started = Instant::now();
        (0..BURST).for_each(|_| pair.copy_raw(raw));
        time += started.elapsed();
        gate.open();
        raw.finish();
    }
    ns_each(time, BURSTS * BURST)
}

fn round_trip(stream: &Stream, event: &Event) {
    stream.record(event).expect("an event of it");
    event.synchronize().expect("no task fails");
}

fn raw_round_trip(raw: &Raw) {
    let marker = raw.marker();
    raw.flush();
    raw.wait_for(&marker);
    raw.release(marker);
}
