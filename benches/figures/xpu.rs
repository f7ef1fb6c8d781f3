//! The xpu kind (D1 to D3): enqueues, round trips and copies, beside the raw calls of its driver.

use std::io;
use std::time::Instant;

use accelrt::{Buffer, Config, Device, DeviceKind, Event, Runtime, Stream};

use crate::measure::{WARM_UP, in_pairs, in_turns, ns_each, ns_per_round, warm_ns_per_round};
use crate::raw_opencl::{Marker, Raw};
use crate::table::Table;

/// Enqueues while the device stands still.
const BURST: usize = 512;
/// Of copies, which take three times as long.
const COPIES: usize = 192;
const BURSTS: usize = 9;
/// Records beside the device.
const ROUNDS: usize = 2_000;
/// Round trips.
const TRIPS: usize = 100;
const BLOCKS: usize = 20;
const PEER: &str = "raw OpenCL";
const ROWS: [&str; 6] = ["D1", "D1.copy", "D1.beside", "D2", "D3.4KiB", "D3.64MiB"];

pub(crate) fn measure(table: &mut Table) -> io::Result<()> {
    accelrt_opencl::register().expect("no other crate has a backend of kind xpu");
    let config =
        Config::builder().accelerator(DeviceKind::XPU).build().expect("the settings are right");
    let runtime = Runtime::new(config).expect("the settings are right");
    let device = Device::new(DeviceKind::XPU, 0).expect("an index");
    let Ok(stream) = runtime.stream(device) else {
        let reason = "no OpenCL runtime with unified shared memory";
        return ROWS.iter().try_for_each(|name| table.unmeasured(name, reason));
    };
    let native = stream.native_handle().expect("a queue");
    let raw = Raw::beside(native).expect("the loader that ours uses");
    let event = Event::new();
    let pair = Pair::new(&runtime, device, 64, &stream);
    held_rows(&Held { stream: &stream, raw: &raw }, &event, &pair, table)?;
    running_rows(&stream, &raw, &event, table)?;
    for (name, bytes, copies) in [(ROWS[4], 4 << 10, 5_000), (ROWS[5], 64 << 20, 4)] {
        let pair = Pair::new(&runtime, device, bytes, &stream);
        let [ours, theirs] = in_turns([
            &mut |watch| {
                watch.once(|| {
                    let started = Instant::now();
                    (0..copies).for_each(|_| pair.copy(&stream));
                    stream.synchronize().expect("no task fails");
                    ns_each(started.elapsed(), copies)
                })
            },
            &mut |watch| {
                watch.once(|| {
                    let started = Instant::now();
                    (0..copies).for_each(|_| pair.copy_raw(&raw));
                    raw.finish();
                    ns_each(started.elapsed(), copies)
                })
            },
        ]);
        table.against(name, ours, (PEER, Some(theirs)))?;
    }
    Ok(())
}

/// While nothing runs: by differences to the peer.
fn held_rows(held: &Held<'_>, event: &Event, pair: &Pair, table: &mut Table) -> io::Result<()> {
    let Held { stream, raw } = held;
    let records = in_pairs(
        BURSTS,
        BURST,
        |count| held.ns(count, || stream.record(event).expect("an event of it")),
        |count| {
            let mut markers = Markers::of(raw, count);
            held.ns(count, || markers.place())
        },
    );
    table.pair(ROWS[0], PEER, records)?;
    let copies = in_pairs(
        BURSTS,
        COPIES,
        |count| held.ns(count, || pair.copy(stream)),
        |count| held.ns(count, || pair.copy_raw(raw)),
    );
    table.pair(ROWS[1], PEER, copies)
}

/// While the device goes on.
fn running_rows(stream: &Stream, raw: &Raw, event: &Event, table: &mut Table) -> io::Result<()> {
    let records_ns = || {
        let ns = ns_per_round(ROUNDS, || stream.record(event).expect("an event of it"));
        stream.synchronize().expect("no task fails");
        ns
    };
    let markers_ns = || {
        let mut markers = Markers::of(raw, ROUNDS);
        let ns = ns_per_round(ROUNDS, || markers.place());
        raw.finish();
        ns
    };
    let [record, marker, trip, raw_trip] = in_turns([
        &mut |watch| watch.once(records_ns),
        &mut |watch| watch.once(markers_ns),
        &mut |watch| {
            watch.blocks(BLOCKS, TRIPS, |count| {
                warm_ns_per_round(count, || round_trip(stream, event))
            })
        },
        &mut |watch| {
            watch.blocks(BLOCKS, TRIPS, |count| warm_ns_per_round(count, || raw_round_trip(raw)))
        },
    ]);
    table.against(ROWS[2], record, (PEER, Some(marker)))?;
    table.against(ROWS[3], trip, (PEER, Some(raw_trip)))
}

/// Two buffers of one size, and where they are: the peer does not ask for that each time.
struct Pair {
    to: Buffer,
    from: Buffer,
    addresses: [u64; 2],
}

impl Pair {
    fn new(runtime: &Runtime, device: Device, bytes: usize, stream: &Stream) -> Self {
        let [to, from] = [1, 2].map(|byte| {
            let buffer = runtime.empty(bytes, device).expect("memory");
            buffer.fill(byte, stream).expect("a fill").wait().expect("no task fails");
            buffer
        });
        let addresses = [&to, &from].map(|buffer| buffer.address().expect("it is not released"));
        Self { to, from, addresses }
    }

    fn copy(&self, stream: &Stream) {
        self.to.copy_from(&self.from, stream).expect("buffers of one size");
    }

    /// As ours, which tells the device of each copy.
    fn copy_raw(&self, raw: &Raw) {
        let [to, from] = self.addresses;
        raw.copy(to, from, self.to.nbytes());
        raw.flush();
    }
}

/// Both queues while the device stands still.
struct Held<'a> {
    stream: &'a Stream,
    raw: &'a Raw,
}

impl Held<'_> {
    /// Per enqueue, to whichever queue: the same is done before and after it.
    fn ns(&self, count: usize, enqueue: impl FnMut()) -> f64 {
        let gate = self.raw.hold();
        let ns = warm_ns_per_round(count, enqueue);
        gate.open();
        self.stream.synchronize().expect("no task fails");
        self.raw.finish();
        ns
    }
}

/// Markers of which the device was told. Ours are given back when the device has passed them, so
/// here too that is not timed.
struct Markers<'a> {
    raw: &'a Raw,
    placed: Vec<Marker>,
}

impl<'a> Markers<'a> {
    fn of(raw: &'a Raw, count: usize) -> Self {
        Self { raw, placed: Vec::with_capacity(count + count / WARM_UP) }
    }

    fn place(&mut self) {
        self.placed.push(self.raw.marker());
        self.raw.flush();
    }
}

impl Drop for Markers<'_> {
    fn drop(&mut self) {
        for marker in self.placed.drain(..) {
            self.raw.release(marker);
        }
    }
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
