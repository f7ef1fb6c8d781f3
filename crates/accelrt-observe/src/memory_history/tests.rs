//! Tests of histories and tags.
//!
//! Goal: a history tells what allocators did, in the order in which memory changed hands, and tags
//! count what is in use. Method: small programs whose events are known, and threads that turn
//! memory over at random, whose events are played again: no byte has two owners, each lies in
//! memory from the device, and what is left is what the snapshot has.

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;

use accelrt::allocator::snapshot::TraceAction;
use accelrt::internal::{StackId, exchange_stack};
use accelrt::size::MIB;
use accelrt::{
    Buffer, Config, Device, DeviceKind, MemPool, PoolOptions, Runtime, Stream, StreamGuard,
};
use accelrt_testing::null::{NullBackend, NullConfig};

use super::played_events::PlayedEvents;
use super::{MemoryEvent, MemoryHistory, memory_tag};
use crate::numbers::Numbers;
use crate::seed::seed;

const POLICIES: [&str; 3] =
    ["policy:native", "policy:torch", "policy:torch,expandable_segments:True"];

/// A runtime over a device of numbers.
fn runtime(settings: &str) -> (Runtime, Device) {
    let backend = NullBackend::new(NullConfig::default());
    let runtime = Runtime::with_backends(Config::default(), [backend as _]).unwrap();
    runtime.set_allocator_settings(settings).unwrap();
    (runtime, Device::new(DeviceKind::NULL, 0).unwrap())
}

/// The runtime on the machine's cores, where tasks take their time.
fn on_cores(settings: &str) -> (Runtime, Device) {
    let runtime = Runtime::new(Config::builder().cpu_memory_bytes(64 * MIB).build().unwrap());
    let runtime = runtime.unwrap();
    runtime.set_allocator_settings(settings).unwrap();
    (runtime, Device::cpu(0))
}

fn actions(events: &[MemoryEvent]) -> Vec<TraceAction> {
    events.iter().map(|it| it.event.action).collect()
}

#[test]
fn a_history_tells_what_happens_to_a_buffer_and_its_memory() {
    use TraceAction::*;
    for (settings, taken, given) in [
        ("policy:native", SegmentMap, SegmentUnmap),
        ("policy:torch", SegmentAlloc, SegmentFree),
        ("policy:torch,expandable_segments:True", SegmentMap, SegmentUnmap),
    ] {
        let (runtime, device) = runtime(settings);
        let history = MemoryHistory::start(&runtime, 100);
        for _ in 0..2 {
            drop(runtime.empty(3 * MIB, device).unwrap());
        }
        runtime.allocator(device).unwrap().empty_cache();
        let events = history.events(device);
        let expected = [
            taken,
            Alloc,
            FreeRequested,
            FreeCompleted,
            Alloc,
            FreeRequested,
            FreeCompleted,
            given,
        ];
        assert_eq!(actions(&events), expected, "{settings}");
        let [miss, hit] = [1, 4].map(|index| &events[index]);
        assert_eq!([miss.is_miss, hit.is_miss], [true, false], "{settings}");
        assert!(miss.block_bytes >= 3 * MIB && miss.event.bytes == 3 * MIB, "{settings}");
        assert_eq!(events[0].event.bytes, events[7].event.bytes, "{settings}");
        assert!(events.is_sorted_by_key(|it| it.time), "{settings}");
    }
}

#[test]
fn a_free_is_complete_when_no_stream_uses_the_block() {
    for settings in ["policy:native", "policy:torch"] {
        let (runtime, device) = on_cores(settings);
        let history = MemoryHistory::start(&runtime, 100);
        let stream = runtime.stream(device).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        stream.enqueue(move || _ = gate.recv()).unwrap();
        let tag = memory_tag("borrowed");
        let buffer = runtime.empty(3 * MIB, device).unwrap();
        drop(tag);
        buffer.fill(1, &stream).unwrap();
        drop(buffer);
        let allocator = runtime.allocator(device).unwrap();
        let freed = |events: &[MemoryEvent]| {
            let freed = events.iter().filter(|it| it.event.action != TraceAction::SegmentMap);
            freed.map(|it| (it.event.action, it.tag.to_string())).skip(1).collect::<Vec<_>>()
        };
        let requested = (TraceAction::FreeRequested, "borrowed".to_owned());
        let events = history.events(device);
        assert_eq!(freed(&events).pop(), Some(requested), "{settings}");
        assert_eq!(allocator.known_blocks().len(), 1, "{settings}: streams use it");
        assert_eq!(allocator.tag_statistics()[0].1.current, 0, "{settings}: but it is freed");
        open.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(allocator.statistics().active_bytes.all.current, 0);
        let last = history.events(device).pop().unwrap();
        let expected = (TraceAction::FreeCompleted, "borrowed");
        assert_eq!((last.event.action, &*last.tag), expected, "{settings}");
        assert!(allocator.known_blocks().is_empty(), "{settings}");
    }
}

/// Allocates, hands over and frees at random. Buffers of a thread have its tag. With a stream some
/// buffers are freed while it uses them. Returns what the threads have left.
fn turn_over(runtime: &Runtime, device: Device, seed: u64, user: Option<&Stream>) -> Vec<Buffer> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        let threads = receivers.into_iter().enumerate().map(|(index, received)| {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut random = Numbers::new(seed + index as u64);
                let _tag = (index > 0).then(|| memory_tag(["", "even", "odd"][index]));
                let mut own: Vec<Buffer> = Vec::new();
                for step in 0..600 {
                    own.extend(received.try_iter());
                    let bytes = 1 << random.below(23);
                    let bytes = bytes + random.below(bytes);
                    let buffer = runtime.empty(bytes, device).unwrap();
                    if let Some(user) = user.filter(|_| random.below(4) == 0) {
                        buffer.slice(..bytes.min(100)).unwrap().fill(1, user).unwrap();
                    }
                    own.push(buffer);
                    while own.len() > 20 || !own.is_empty() && random.below(3) == 0 {
                        let buffer = own.swap_remove(random.below(own.len()));
                        if random.below(3) == 0 {
                            let _ = senders[random.below(3)].send(buffer);
                        }
                    }
                    if step % 97 == 96 {
                        runtime.allocator(device).unwrap().trim();
                    }
                }
                drop(senders);
                own.extend(received.iter());
                own
            })
        });
        let threads: Vec<_> = threads.collect();
        drop(senders);
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
    })
}

#[test]
fn events_of_threads_are_in_the_order_in_which_memory_changed_hands() {
    let seed = seed();
    for settings in POLICIES {
        let (runtime, device) = runtime(settings);
        let history = MemoryHistory::start(&runtime, usize::MAX);
        let left = turn_over(&runtime, device, seed, None);
        let events = history.events(device);
        assert_eq!(history.num_dropped_events(), 0);
        let hint = format!("{settings}, seed {seed}");
        assert!(events.iter().any(|it| it.is_miss) && events.iter().any(|it| !it.is_miss));
        let snapshot = runtime.allocator(device).unwrap().snapshot();
        PlayedEvents::of(&events, &hint).check_ends_in(&snapshot.segments, &hint);
        drop(left);
    }
}

/// Goal: the events of a snapshot end in its segments, whatever threads do meanwhile. Method:
/// threads that turn memory over, some of it in use by another stream, while this one takes
/// snapshots and plays their events.
#[test]
fn the_first_of_many_moments_has_the_events_before_it() {
    // Goal: events up to the first moment are kept, however many there are up to the last one.
    // Method: each moment adds an event, and there are more of them than the history keeps.
    let (runtime, device) = runtime("policy:native");
    let allocator = runtime.allocator(device).unwrap();
    let history = MemoryHistory::start(&runtime, 20);
    let buffer = runtime.empty(4096, device).unwrap();
    let before = history.events(device).len();
    assert!((1..20).contains(&before), "{before}");
    let (moments, _) = history.moments(&[&*allocator; 100]);
    for (index, (_, events)) in moments.iter().enumerate() {
        let last = events.last().map(|it| it.event.action);
        assert_eq!((last, events.len()), (Some(TraceAction::Snapshot), before + 1 + index));
    }
    drop(buffer);
}

#[test]
fn snapshots_beside_threads_are_of_one_moment() {
    let seed = seed();
    for (settings, on_cores) in POLICIES.iter().flat_map(|it| [(it, false), (it, true)]) {
        let (runtime, device) = if on_cores {
            let config = Config::builder().cpu_memory_bytes(1024 * MIB).build().unwrap();
            (Runtime::new(config).unwrap(), Device::cpu(0))
        } else {
            runtime(settings)
        };
        runtime.set_allocator_settings(settings).unwrap();
        let user = on_cores.then(|| runtime.stream(device).unwrap());
        let allocator = runtime.allocator(device).unwrap();
        let history = MemoryHistory::start(&runtime, usize::MAX);
        let newest = MemoryHistory::start(&runtime, 20);
        thread::scope(|scope| {
            let run = || turn_over(&runtime, device, seed, user.as_ref());
            let running = scope.spawn(run);
            let mut count = 0;
            while !running.is_finished() || count < 3 {
                count += 1;
                let hint = format!("{settings}, on cores: {on_cores}, seed {seed}, {count}");
                let (moment, events) = history.moments(&[&allocator]).0.remove(0);
                PlayedEvents::of(&events, &hint).check_ends_in(&moment.segments, &hint);
                let (_, events) = newest.moments(&[&allocator]).0.remove(0);
                let last = events.last().map(|it| it.event.action);
                assert_eq!(
                    (last, events.len()),
                    (Some(TraceAction::Snapshot), 20.min(events.len()))
                );
            }
            running.join().unwrap()
        });
        assert_eq!(history.num_dropped_events(), 0);
    }
}

#[test]
fn tags_count_what_is_in_use_with_a_history_and_without() {
    let seed = seed();
    for (settings, is_recorded) in POLICIES.iter().flat_map(|it| [(it, true), (it, false)]) {
        let (runtime, device) = runtime(settings);
        let history = is_recorded.then(|| MemoryHistory::start(&runtime, 1));
        let left = turn_over(&runtime, device, seed, None);
        let allocator = runtime.allocator(device).unwrap();
        let known = allocator.known_blocks();
        for (tag, stat) in allocator.tag_statistics() {
            let of_tag = known.iter().filter(|(_, block)| block.context.tag.text() == tag);
            let bytes: usize = of_tag.map(|(_, block)| block.bytes).sum();
            let hint = format!("{tag} under {settings}, seed {seed}");
            assert_eq!(stat.current, bytes as u64, "{hint}");
            assert_eq!(stat.allocated - stat.freed, stat.current, "{hint}");
            assert!(stat.peak >= stat.current && stat.allocated > MIB as u64, "{hint}");
        }
        let tags: Vec<_> = allocator.tag_statistics().into_iter().map(|it| it.0).collect();
        assert_eq!(tags, ["even".into(), "odd".into()]);
        drop((left, history));
        assert!(allocator.known_blocks().is_empty(), "{settings}, seed {seed}");
        assert!(allocator.tag_statistics().iter().all(|(_, stat)| stat.current == 0));
    }
}

#[test]
fn the_innermost_tag_counts_and_ends_with_its_guard() {
    let (runtime, device) = runtime("policy:native");
    let current = |name: &str| {
        let tags = runtime.allocator(device).unwrap().tag_statistics();
        tags.into_iter().find(|(tag, _)| &**tag == name).map_or(0, |(_, stat)| stat.current)
    };
    let empty = || runtime.empty(1024, device).unwrap();
    let mut kept = vec![empty(), empty()]; // the thread's cache has some of this size
    drop(kept.pop());
    let outer = memory_tag("outer");
    kept.push(empty());
    {
        let _inner = memory_tag("inner");
        kept.push(empty());
        kept.push(empty());
    }
    {
        let _none = memory_tag("");
        kept.push(empty());
    }
    drop(kept.remove(0)); // its free passes the thread's cache, which keeps no tag from then on
    kept.push(empty());
    drop(outer);
    kept.push(empty());
    assert_eq!([current("outer"), current("inner")], [2048, 2048]);
    drop(kept);
    assert_eq!([current("outer"), current("inner")], [0, 0]);
}

#[test]
fn a_history_keeps_the_newest_events_and_counts_the_others() {
    let (runtime, device) = runtime("policy:native");
    let history = MemoryHistory::start(&runtime, 3);
    let buffers: Vec<_> = (0..5).map(|_| runtime.empty(MIB, device).unwrap()).collect();
    drop(buffers);
    let events = history.events(device);
    assert_eq!(events.len(), 3);
    assert_eq!(events[2].event.action, TraceAction::FreeCompleted);
    assert!(history.num_dropped_events() >= 12, "five of each, and the device's");
    history.clear();
    assert_eq!((history.events(device).len(), history.num_dropped_events()), (0, 0));
}

#[test]
fn events_that_newer_ones_replace_between_two_looks_are_counted() {
    let (runtime, device) = runtime("policy:native");
    drop(runtime.empty(MIB, device).unwrap()); // the device has given its memory
    let history = MemoryHistory::start(&runtime, 4);
    for expected in [0, 2, 5, 8] {
        drop(runtime.empty(MIB, device).unwrap()); // three events
        assert_eq!(history.num_dropped_events(), expected);
    }
}

#[test]
fn an_event_has_its_stream_and_its_pool() {
    for settings in POLICIES {
        let (runtime, device) = runtime(settings);
        let stream = runtime.stream(device).unwrap();
        let pool = MemPool::new(&runtime, device, PoolOptions::default()).unwrap();
        let history = MemoryHistory::start(&runtime, 100);
        let _guards = (StreamGuard::new(&runtime, &stream).unwrap(), pool.enter());
        drop(runtime.empty(MIB, device).unwrap());
        let segment = &pool.segments()[0];
        assert_ne!(segment.stream, 0, "{settings}: the default stream");
        let events = history.events(device);
        assert!(events.len() >= 4, "{settings}: a segment, a request and a free");
        for MemoryEvent { event, .. } in events {
            let place = (event.stream, event.pool);
            assert_eq!(place, (segment.stream, pool.id()), "{settings}: {event:?}");
        }
    }
}

#[test]
fn a_stack_that_is_left_from_a_recording_is_of_no_later_block() {
    let (runtime, device) = runtime("policy:native");
    let before = exchange_stack(StackId(7));
    let _tag = memory_tag("later");
    let stack_of = |is_recorded: bool| {
        let _history = is_recorded.then(|| MemoryHistory::start(&runtime, 100));
        let _buffer = runtime.empty(MIB, device).unwrap();
        runtime.allocator(device).unwrap().known_blocks()[0].1.context.stack
    };
    assert_eq!([true, false].map(stack_of), [StackId(7), StackId::NONE]);
    exchange_stack(before);
}

#[test]
fn the_statistics_of_tags_are_reset_with_those_of_their_allocator() {
    let (runtime, device) = runtime("policy:native");
    let _tag = memory_tag("reset");
    let kept = runtime.empty(MIB, device).unwrap();
    drop(runtime.empty(MIB, device).unwrap());
    let allocator = runtime.allocator(device).unwrap();
    let stat = || {
        let stat = allocator.tag_statistics()[0].1;
        [stat.current, stat.peak, stat.allocated, stat.freed].map(|bytes| bytes / MIB as u64)
    };
    assert_eq!(stat(), [1, 2, 2, 1]);
    allocator.reset_peak_statistics();
    assert_eq!(stat(), [1, 1, 2, 1]);
    allocator.reset_accumulated_statistics();
    assert_eq!(stat(), [1, 1, 0, 0]);
    drop(kept);
}

#[test]
fn a_request_that_fails_is_told_with_what_the_device_has_free() {
    let (runtime, device) = on_cores("policy:native");
    let history = MemoryHistory::start(&runtime, 100);
    let _tag = memory_tag("too much");
    let _kept = [MIB, 2 * MIB].map(|bytes| runtime.empty(bytes, device).unwrap());
    let text = runtime.empty(1 << 30, device).unwrap_err().to_string();
    let expected = " In use by tag: 'too much' 3.00 MiB in 2 blocks. The request lacks 963.00 MiB.";
    assert!(text.ends_with(expected), "{text}");
    let text = runtime.empty(62 * MIB, device).unwrap_err().to_string();
    let expected = "The request lacks 1.00 MiB, and 'too much' alone has that.";
    assert!(text.ends_with(expected), "{text}");
    let event = history.events(device).pop().unwrap();
    assert_eq!((event.event.action, event.event.bytes), (TraceAction::OutOfMemory, 62 << 20));
    assert_eq!((event.event.address, &*event.tag), (60 << 20, "too much"));
}

#[test]
fn an_error_names_tags_by_what_they_have_in_use() {
    let (runtime, device) = on_cores("policy:native");
    let stream = runtime.stream(device).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    stream.enqueue(move || _ = gate.recv()).unwrap();
    let mut held = Vec::new();
    for (tag, count) in [("few", 1), ("many", 5), ("two", 2), ("freed", 7), ("three", 3)] {
        let _tag = memory_tag(tag);
        held.extend((0..count).map(|_| (tag, runtime.empty(MIB, device).unwrap())));
    }
    for (_, buffer) in held.extract_if(.., |(tag, _)| *tag == "freed") {
        buffer.fill(1, &stream).unwrap();
    }
    let text = runtime.empty(1 << 30, device).unwrap_err().to_string();
    let expected = "'many' 5.00 MiB in 5 blocks, 'three' 3.00 MiB in 3 blocks, 'two' 2.00 MiB in";
    assert!(text.contains(expected) && !text.contains("few"), "{text}");
    open.send(()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn nothing_is_recorded_behind_the_end_of_the_last_history() {
    let (runtime, device) = runtime("policy:native");
    let first = MemoryHistory::start(&runtime, 100);
    let second = MemoryHistory::start(&runtime, 100);
    drop(first);
    drop(runtime.empty(MIB, device).unwrap());
    assert!(!second.events(device).is_empty(), "one of them is left");
    let allocator = runtime.allocator(device).unwrap();
    assert!(allocator.is_recorded());
    drop(second);
    assert!(!allocator.is_recorded());
}

#[test]
fn a_history_counts_events_alone_not_the_threads_that_cause_them() {
    let (runtime, device) = runtime("policy:native");
    let all = MemoryHistory::start(&runtime, usize::MAX);
    let newest = MemoryHistory::start(&runtime, 8);
    for _ in 0..4 {
        // Each begins a ring of its own.
        thread::scope(|scope| _ = scope.spawn(|| drop(runtime.empty(MIB, device).unwrap())));
    }
    let num_events = all.events(device).len();
    assert!(num_events > 8 && newest.events(device).len() == 8);
    assert_eq!(newest.num_dropped_events(), num_events as u64 - 8);
}

#[test]
fn the_newest_events_are_kept_in_whatever_order_threads_are_read() {
    // The ring of this thread is read first, and has the newer events.
    let (runtime, device) = runtime("policy:native");
    let history = MemoryHistory::start(&runtime, 4);
    let turn_over = |name| {
        let _tag = memory_tag(name);
        (0..4).for_each(|_| drop(runtime.empty(MIB, device).unwrap()));
    };
    turn_over("first");
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            turn_over("old");
            tell.send(()).unwrap();
            let _ = ended.recv(); // its ring stays until the events are read
        });
        told.recv().unwrap();
        turn_over("new");
        let tags: Vec<_> = history.events(device).iter().map(|it| it.tag.to_string()).collect();
        assert_eq!(tags, ["new"; 4]);
        drop(end);
    });
}

#[test]
fn what_a_thread_frees_as_its_last_act_is_recorded() {
    thread_local! {
        static KEPT: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
    }
    for settings in POLICIES {
        let (runtime, device) = runtime(settings);
        let history = MemoryHistory::start(&runtime, 100);
        let keep = || {
            // Begun before the thread's ring is, and so dropped behind it.
            KEPT.with_borrow_mut(|kept| kept.push(runtime.empty(3 * MIB, device).unwrap()));
        };
        thread::scope(|scope| scope.spawn(keep).join().unwrap());
        let events = history.events(device);
        let end = [TraceAction::FreeRequested, TraceAction::FreeCompleted];
        assert!(actions(&events).ends_with(&end), "{settings}: {events:?}");
    }
}

#[test]
fn what_a_request_lacks_counts_what_the_device_has_left_under_each_policy() {
    for settings in POLICIES {
        let (runtime, device) = on_cores(settings);
        let _tag = memory_tag("one\n'half'");
        let _kept = runtime.empty(32 * MIB, device).unwrap();
        let text = runtime.empty(40 * MIB, device).unwrap_err().to_string();
        let tag = r"'one\n\'half\''"; // of one line
        // Expandable segments take pages of 20 MiB: 8 MiB are free, two are needed, 24 are left.
        let lacks = if settings.contains("expandable") { "16.00" } else { "8.00" };
        let lacks = format!("32.00 MiB in 1 block. The request lacks {lacks} MiB");
        let expected = format!(" In use by tag: {tag} {lacks}, and {tag} alone has that.");
        assert!(text.ends_with(&expected), "{settings}: {text}");
    }
}
