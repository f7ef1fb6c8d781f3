//! The hot paths whose instructions are counted: each in a function of its own, and nothing random.
//!
//! The only worker stands in a gate throughout, so this thread alone works. `make counts` runs each
//! path with two counts and takes the difference: what one more round costs.

use std::hint::black_box;
use std::io;

use accelrt::{Config, Device, Event, Runtime, Stream};

use crate::peers::{Gate, Lane};

/// Runs a path `count` times.
pub(crate) fn run(name: &str, count: &str) -> io::Result<()> {
    let path: fn(&Stream, &Event, u64) = match name {
        "enqueue" => counted_enqueue,
        "round_trip" => counted_round_trip,
        "record" => counted_record,
        "query" => counted_query,
        _ => return Err(io::Error::other(format!("there is no path {name}"))),
    };
    let count = count.parse().map_err(io::Error::other)?;
    let config = Config { cpu_threads: Some(1), ..Config::default() };
    let runtime = Runtime::new(config).expect("the settings are right");
    let [held, free] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).expect("a stream"));
    let gate = Gate::shut(&held);
    // Enqueueing and recording are counted on a stream that somebody is responsible for already, as
    // in the middle of a program; a round trip on one that this thread drains.
    let stream = if name == "round_trip" { &free } else { &held };
    let event = Event::new();
    if name == "query" {
        free.record(&event).expect("the first record");
        free.finish();
    }
    path(stream, &event, count);
    gate.open();
    held.finish();
    Ok(())
}

#[inline(never)]
fn counted_enqueue(stream: &Stream, _: &Event, count: u64) {
    for number in 0..count {
        let payload = [number; 5];
        stream.put(move || {
            black_box(payload);
        });
    }
}

#[inline(never)]
fn counted_round_trip(stream: &Stream, _: &Event, count: u64) {
    for _ in 0..count {
        stream.put(|| {
            black_box(());
        });
        stream.finish();
    }
}

#[inline(never)]
fn counted_record(stream: &Stream, event: &Event, count: u64) {
    for _ in 0..count {
        stream.record(event).expect("an event of this stream");
    }
}

#[inline(never)]
fn counted_query(_: &Stream, event: &Event, count: u64) {
    for _ in 0..count {
        assert!(black_box(event).query(), "it is done");
    }
}
