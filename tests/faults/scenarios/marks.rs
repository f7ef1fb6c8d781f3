//! Marks: events and waits across streams and devices, parked and not; elapsed time.

use accelrt::{Error, Event, RuntimeError, Stream, StreamError};
use accelrt_testing::fault::Method;

use crate::ledger::TaskId;
use crate::world::World;

/// Takes a driver that fills in earnest some milliseconds.
const LONG_FILL_BYTES: usize = 32 << 20;

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        timed(world, &world.streams(*device, 2));
    }
    let all: Vec<_> = world.devices.iter().flat_map(|device| world.streams(*device, 2)).collect();
    ordered_records(world, &all);
    chain(world, &all);
    parked(world, &all);
    neighbour(world, &all);
    rerecorded(world, &all);
}

/// Two records of a stream, the time between them, and one of another stream.
fn timed(world: &World, streams: &[Stream]) {
    let [first, second] = streams else { return };
    let [start, end, other] = [(); 3].map(|()| Event::timed());
    world.note(first.record(&start));
    world.task(first);
    world.note(first.record(&end));
    world.note(second.wait_event(&end));
    world.note(second.record(&other));
    for event in [&start, &end, &other] {
        world.see(event);
    }
    for (from, to) in [(&start, &end), (&end, &other), (&other, &start)] {
        world.note(from.elapsed_ms(to));
    }
    completed(world, first, &[start, end]);
    completed(world, second, &[other]);
}

/// A task on `stream` behind another stream's record, with what it is ordered behind.
fn behind(
    world: &World,
    event: Option<&Event>,
    stream: &Stream,
    before: Option<TaskId>,
) -> Option<TaskId> {
    let waits = event.and_then(|event| world.note(stream.wait_event(event)));
    let task = world.task(stream);
    if waits.is_some() {
        world.ledger.order(before, task);
    }
    task
}

/// Each stream waits for the one before.
fn chain(world: &World, streams: &[Stream]) {
    let (mut event, mut before) = (None, None);
    for stream in streams {
        before = behind(world, event.as_ref(), stream, before);
        event = world.note(stream.record_event());
    }
    if let Some(event) = &event {
        world.see(event);
    }
}

/// As [`chain`] without tasks: on a driver the devices wait, and nobody asks before the end. A
/// device that is quick is not done by then: the first record is behind a long fill.
fn ordered_records(world: &World, streams: &[Stream]) {
    let _long = streams.first().filter(|_| !world.runs_on_host()).and_then(|first| {
        let buffer = world.note(world.runtime.empty(LONG_FILL_BYTES, first.device()))?;
        world.transfer(buffer.fill(1, first))?;
        Some(buffer)
    });
    let mut records: Vec<(Event, bool)> = Vec::new();
    for stream in streams {
        let last = records.last();
        let waits = last.and_then(|(event, _)| world.note(stream.wait_event(event)));
        let event = world.note(stream.record_event());
        records.extend(event.map(|event| (event, waits.is_some())));
    }
    if let Some((last, _)) = records.last() {
        world.note(last.synchronize());
    }
    // A device that cannot be asked is not known to be done.
    let can_tell = || world.backend().failures(Method::MarkDone) == 0;
    for pair in records.windows(2) {
        let [(before, _), (event, waits)] = pair else { continue };
        let is_early = *waits && event.is_done() && !before.is_done();
        assert!(!is_early || !can_tell(), "a record is complete before what its stream waits for");
    }
}

/// As [`chain`], while the first stream is held: every wait parks.
fn parked(world: &World, streams: &[Stream]) {
    let Some((first, rest)) = streams.split_first() else { return };
    let held = world.hold(first);
    let (mut event, mut before) = (world.note(first.record_event()), held.id);
    for stream in rest {
        before = behind(world, event.as_ref(), stream, before);
        event = world.note(stream.record_event());
    }
    held.let_go();
    for stream in rest {
        completed(world, stream, &[]);
    }
    completed(world, first, &[]);
}

/// A synchronise that was not refused completes every record before it.
fn completed(world: &World, stream: &Stream, events: &[Event]) {
    let last = world.note(stream.record_event());
    let synchronized = stream.synchronize();
    let is_through = matches!(synchronized, Ok(()) | Err(Error::Stream(StreamError::Failed(_))));
    world.note(synchronized);
    if is_through {
        assert!(events.iter().chain(&last).all(Event::is_done), "a record that is not complete");
    }
}

/// Streams of another runtime are refused.
fn neighbour(world: &World, streams: &[Stream]) {
    let [ours, ..] = streams else { return };
    let theirs = world.neighbour.stream(ours.device());
    let theirs = theirs.expect("the neighbour never fails");
    if let Some(event) = world.note(ours.record_event()) {
        let refused = theirs.wait_event(&event);
        assert!(
            matches!(refused, Err(Error::Runtime(RuntimeError::OtherRuntime { .. }))),
            "{refused:?}"
        );
    }
}

/// An event that is recorded again while a stream waits for its first record.
fn rerecorded(world: &World, streams: &[Stream]) {
    let [first, second, ..] = streams else { return };
    let event = Event::new();
    for _ in 0..2 {
        let task = world.task(first);
        let recorded = world.note(first.record(&event));
        let _ = (event.is_done(), second.is_ordered_after(&event));
        behind(world, recorded.map(|()| &event), second, task);
    }
    world.note(second.wait_stream(first));
    world.note(second.synchronize());
    world.see(&event);
}
