//! Events: what a record and a query cost (E1).

use std::hint::black_box;
use std::io;

use accelrt::{Device, Event, Runtime, Stream};

use crate::measure::{in_turns, ns_per_round, warm_ns_per_round};
use crate::peers::{Gate, Lane};
use crate::quiet::Watch;
use crate::table::Table;

const BURST: usize = 4_096;
const BURSTS: usize = 16;
const RECORDS: usize = 200_000;
const QUERIES: usize = 100_000;
const QUERY_BLOCKS: usize = 10;

pub(crate) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    let (event, done) = (Event::new(), Event::new());
    stream.record(&done).expect("the first record");
    done.synchronize().expect("no task fails");
    let [alone, beside, query] = in_turns([
        &mut |watch| record_alone_ns(&stream, &event, watch),
        &mut |watch| watch.once(|| record_beside_consumer_ns(&stream, &event)),
        &mut |watch| {
            let query = || assert!(black_box(&done).is_done(), "it is done");
            watch.blocks(QUERY_BLOCKS, QUERIES, |count| warm_ns_per_round(count, query))
        },
    ]);
    table.row("E1", alone)?;
    table.row("E1.beside", beside)?;
    table.row("E1.query", query)
}

/// Per record, of bursts onto a stream whose consumer stands still.
fn record_alone_ns(stream: &Stream, event: &Event, watch: &mut Watch<'_>) -> f64 {
    watch.blocks(BURSTS, BURST, |count| {
        let gate = Gate::shut(stream);
        let ns =
            warm_ns_per_round(count, || stream.record(event).expect("an event of this stream"));
        gate.open();
        stream.finish();
        ns
    })
}

/// Per record while a worker passes them.
fn record_beside_consumer_ns(stream: &Stream, event: &Event) -> f64 {
    Gate::shut(stream).open();
    let ns = ns_per_round(RECORDS, || stream.record(event).expect("an event of this stream"));
    stream.finish();
    ns
}
