//! Tests of a buffer that many streams use.
//!
//! Goal: the cost of a use does not grow with the number of streams, and dropped streams do not
//! accumulate. Method: streams that wait for one event use one buffer; the tests count steps and
//! recorded uses.

use std::ops::Range;
use std::sync::mpsc;

use crate::base::config::Config;
use crate::base::device::Device;
use crate::base::steps::steps_of;
use crate::engine::event::Event;
use crate::engine::stream::{Completion, Stream};
use crate::memory::buffer::Buffer;
use crate::memory::buffer::uses::{AccessedBytes, LastTasks, Task};
use crate::numbers::Numbers;
use crate::runtime::Runtime;
use crate::seed::seed;

fn runtime() -> Runtime {
    Runtime::new(Config::default()).unwrap()
}

fn stream(runtime: &Runtime) -> Stream {
    runtime.stream(Device::cpu(0)).unwrap()
}

/// Returns an event for streams to wait for, and the completion that lets these streams continue.
fn gate(runtime: &Runtime) -> (Event, Completion) {
    let (sender, begun) = mpsc::channel();
    let (stream, event) = (stream(runtime), Event::new());
    stream.enqueue_deferred(move |completion| sender.send(completion).unwrap()).unwrap();
    stream.record(&event).unwrap();
    (event, begun.recv().unwrap())
}

fn buffer(runtime: &Runtime) -> Buffer {
    runtime.empty(64, Device::cpu(0)).unwrap()
}

fn use_count(buffer: &Buffer) -> usize {
    let allocation = buffer.allocation();
    let state = allocation.lock().expect("it is not released");
    allocation.uses_in(&state).len()
}

/// A buffer that `count` dropped streams have used, and a live stream that used the buffer first.
fn used_by_ended_streams(runtime: &Runtime, count: usize) -> (Buffer, Stream) {
    let (event, closed) = gate(runtime);
    let (shared, known) = (buffer(runtime), stream(runtime));
    known.wait_event(&event).unwrap();
    shared.record_use(&known).unwrap();
    for _ in 0..count {
        let user = stream(runtime);
        user.wait_event(&event).unwrap();
        shared.record_use(&user).unwrap();
    }
    closed.finish(Ok(()));
    runtime.synchronize(Device::cpu(0)).unwrap();
    assert_eq!(use_count(&shared), count + 1, "no thread has looked");
    (shared, known)
}

#[test]
fn a_marked_use_conflicts_by_its_bytes_and_its_access() {
    let runtime = runtime();
    let stream = stream(&runtime);
    let part = buffer(&runtime).slice(16..32).unwrap();
    let conflict_of = |said: Option<bool>, bytes: Range<usize>, writes: bool| {
        let fresh = buffer(&runtime);
        let view = fresh.slice(part.bytes()).unwrap();
        fresh.access().unwrap().record_use(stream.core(), Task::marker(5), view.bytes(), said);
        let uses = fresh.allocation().uses();
        uses[0].last.conflict(&AccessedBytes::new(bytes, writes)).ticket
    };
    let expected = [
        // A use marked as a read conflicts only with writes of the same bytes.
        (Some(false), [5, 0, 0, 0]),
        (Some(true), [5, 5, 0, 0]),
        (None, [5, 5, 5, 5]),
    ];
    for (said, tickets) in expected {
        let touches = [(20..24, true), (20..24, false), (32..64, true), (0..16, false)];
        let found = touches.map(|(bytes, writes)| conflict_of(said, bytes, writes));
        assert_eq!(found, tickets, "{said:?}");
    }
}

#[test]
fn an_empty_use_conflicts_with_no_bytes() {
    let runtime = runtime();
    let (stream, fresh) = (stream(&runtime), buffer(&runtime));
    for (ticket, range) in [(5, 0..10), (6, 50..50)] {
        let view = fresh.slice(range).unwrap();
        fresh.access().unwrap().record_use(
            stream.core(),
            Task::marker(ticket),
            view.bytes(),
            Some(true),
        );
    }
    let uses = fresh.allocation().uses();
    for (bytes, ticket) in [(5..5, 0), (20..30, 0), (10..64, 0), (9..10, 6)] {
        let accessed = AccessedBytes::new(bytes.clone(), true);
        assert_eq!(uses[0].last.conflict(&accessed).ticket, ticket, "{bytes:?}");
        assert_eq!(accessed.conflicts(&AccessedBytes::UNKNOWN), !bytes.is_empty(), "{bytes:?}");
    }
}

#[test]
fn recording_a_use_takes_no_more_steps_among_2000_streams_than_among_10() {
    let steps_among = |count: usize| {
        let runtime = runtime();
        let (event, closed) = gate(&runtime);
        let shared = buffer(&runtime);
        let streams: Vec<Stream> = (0..count).map(|_| stream(&runtime)).collect();
        for user in &streams {
            user.wait_event(&event).unwrap();
            shared.record_use(user).unwrap();
        }
        let more = stream(&runtime);
        more.wait_event(&event).unwrap();
        let ((), first) = steps_of(|| shared.record_use(&more).unwrap());
        let ((), again) = steps_of(|| shared.record_use(&streams[count / 2]).unwrap());
        assert_eq!(use_count(&shared), count + 1, "all of them may still use it");
        closed.finish(Ok(()));
        (first, again)
    };
    let (few, many) = (steps_among(10), steps_among(2000));
    assert!(many.0 <= few.0 && many.1 <= few.1, "{many:?} against {few:?}");
}

#[test]
fn a_buffer_forgets_ended_streams_including_failed_ones() {
    let runtime = runtime();
    let shared = buffer(&runtime);
    for round in 0..300 {
        let user = stream(&runtime);
        if round % 2 == 0 {
            user.enqueue(|| Err::<(), _>("it fails")).unwrap();
        }
        shared.record_use(&user).unwrap();
        assert_eq!(user.synchronize().is_err(), round % 2 == 0, "the error ends here");
        assert!(use_count(&shared) <= 2, "{} uses of a buffer that is idle", use_count(&shared));
    }
}

#[test]
fn pending_uses_are_retained_and_finished_ones_are_forgotten_in_turns() {
    let runtime = runtime();
    let (event, closed) = gate(&runtime);
    let shared = buffer(&runtime);
    for _ in 0..500 {
        let user = stream(&runtime);
        user.wait_event(&event).unwrap();
        shared.record_use(&user).unwrap();
    }
    assert_eq!(use_count(&shared), 500);
    closed.finish(Ok(()));
    runtime.synchronize(Device::cpu(0)).unwrap();
    for _ in 0..100 {
        shared.record_use(&stream(&runtime)).unwrap();
    }
    assert!(use_count(&shared) <= 4, "{} uses", use_count(&shared));
}

/// A name for messages, a function that uses a buffer on a stream, and the number of its calls.
type Way<'a> = (&'a str, &'a dyn Fn(&Buffer, &Stream), usize);

#[test]
fn uses_of_ended_streams_are_forgotten_without_a_new_stream() {
    // Goal: the cost of a use does not depend on the number of dropped streams. Method: the home
    // stream, or a stream that used the buffer before, uses the buffer again in each of the `ways`.
    let runtime = runtime();
    let home = runtime.default_stream(Device::cpu(0)).unwrap();
    let task = |shared: &Buffer, user: &Stream| shared.fill(1, user).map(drop).unwrap();
    let note = |shared: &Buffer, user: &Stream| shared.record_use(user).unwrap();
    let host = |shared: &Buffer, _: &Stream| shared.read_to_vec().map(drop).unwrap();
    // A task and a wait of the host read every use, so one call checks all. A record checks a few.
    let ways: [Way<'_>; 3] = [("a task", &task, 1), ("a note", &note, 100), ("the host", &host, 1)];
    for (name, way, times) in ways {
        for is_home in [true, false] {
            let (shared, known) = used_by_ended_streams(&runtime, 500);
            let user = if is_home { &home } else { &known };
            (0..times).for_each(|_| way(&shared, user));
            let count = use_count(&shared);
            assert!(count <= 3, "{count} uses behind {name}, at home: {is_home}");
            shared.wait_for_host().unwrap();
        }
    }
}

#[test]
fn some_failed_uses_of_ended_streams_are_retained_for_the_next_wait() {
    let runtime = runtime();
    let shared = buffer(&runtime);
    for _ in 0..1000 {
        let user = stream(&runtime);
        user.enqueue(|| Err::<(), _>("it fails")).unwrap();
        shared.record_use(&user).unwrap();
        while !user.is_done() {
            std::thread::yield_now();
        }
    }
    assert!(use_count(&shared) <= 200, "{} uses", use_count(&shared));
    shared.wait_for_host().unwrap_err();
    runtime.synchronize(Device::cpu(0)).unwrap_err();
}

/// All ranges of bytes below `end`, none of them empty.
fn ranges(end: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..end).flat_map(move |first| (first + 1..=end).map(move |behind| first..behind))
}

#[test]
fn accesses_conflict_by_shared_bytes_and_a_write() {
    for (own, other) in ranges(5).flat_map(|own| ranges(5).map(move |other| (own.clone(), other))) {
        let shares = own.clone().any(|byte| other.contains(&byte));
        for (writes, other_writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let [a, b] = [(&own, writes), (&other, other_writes)]
                .map(|(bytes, writes)| AccessedBytes::new(bytes.clone(), writes));
            assert_eq!(a.conflicts(&b), shares && (writes || other_writes), "{a:?} {b:?}");
        }
    }
}

#[test]
fn last_tasks_agree_with_a_list_of_accesses() {
    // Goal: an access waits for the last task, or the last writer, of a stream whose bytes it
    // meets. Method: random accesses to six bytes, also with tickets out of order; `done` is often
    // the last ticket or next to it, which decides whether the range of bytes restarts.
    let mut random = Numbers::new(seed());
    let all: Vec<Range<usize>> = ranges(6).collect();
    for _ in 0..300 {
        let mut last = LastTasks::default();
        let (mut newest, mut writer, mut hull) = (0, 0, 0..0);
        for _ in 0..12 {
            let bytes = all[random.below(all.len())].clone();
            let accessed = AccessedBytes::new(bytes.clone(), random.below(2) == 0);
            let ticket = (newest + random.below(3) as u64).saturating_sub(1).max(1);
            let done = (newest + random.below(4) as u64).saturating_sub(2);
            last.note(Task::any(ticket), &accessed, done);
            let restarts = newest <= done;
            hull =
                if restarts { bytes } else { hull.start.min(bytes.start)..hull.end.max(bytes.end) };
            newest = newest.max(ticket);
            writer = if accessed.writes { writer.max(ticket) } else { writer };
            for (bytes, writes) in all.iter().flat_map(|it| [(it, true), (it, false)]) {
                let meets = bytes.clone().any(|byte| hull.contains(&byte));
                let expected = [0, if writes { newest } else { writer }][usize::from(meets)];
                let found = last.conflict(&AccessedBytes::new(bytes.clone(), writes));
                assert_eq!(found.ticket, expected, "{bytes:?} {writes} of {last:?}");
            }
        }
    }
}
