//! Events: what a record and a query cost (E1).

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use accelrt::{Device, Event, Runtime, Stream};

use crate::measure::{in_turns, ns_each, ns_per_round};
use crate::peers::{Gate, Lane};
use crate::table::Table;

const BURST: usize = 4_096;
const BURSTS: usize = 32;
const RECORDS: usize = 200_000;
const QUERIES: usize = 2_000_000;

pub(crate) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    let (event, done) = (Event::new(), Event::new());
    stream.record(&done).expect("the first record");
    done.synchronize().expect("no task fails");
    let [alone, beside, query] = in_turns([
        &mut || record_alone_ns(&stream, &event),
        &mut || record_beside_consumer_ns(&stream, &event),
        &mut || ns_per_round(QUERIES, || assert!(black_box(&done).query(), "it is done")),
    ]);
    table.row("E1", alone)?;
    table.row("E1.beside", beside)?;
    table.row("E1.query", query)
}

/// Per record, of bursts onto a stream whose consumer stands still.
fn record_alone_ns(stream: &Stream, event: &Event) -> f64 {
    let mut time = Duration::ZERO;
    for _ in 0..BURSTS {
        let gate = Gate::shut(stream);
        let started = Instant::now();
        (0..BURST).for_each(|_| stream.record(event).expect("an event of this stream"));
        time += started.elapsed();
        gate.open();
        stream.finish();
    }
    ns_each(time, BURSTS * BURST)
}

/// Per record while a worker passes them.
fn record_beside_consumer_ns(stream: &Stream, event: &Event) -> f64 {
    Gate::shut(stream).open();
    let ns = ns_per_round(RECORDS, || stream.record(event).expect("an event of this stream"));
    stream.finish();
    ns
}
