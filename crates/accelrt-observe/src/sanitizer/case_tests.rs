//! The sanitizer where random programs do not lead: small programs whose findings are known.
//!
//! Goal: what no wait has ended, what `record_stream` says, an address at the end of a buffer,
//! a second watch and full tables each tell what they should. Method: each program is enqueued by
//! one thread, so that its findings do not depend on when its tasks run; where a task must be
//! pending, a gate holds its stream.
#![expect(unsafe_code, reason = "launches a function that touches none of its arguments")]

use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use accelrt::backend::contract::Address;
use accelrt::internal::order_watch::Told;
use accelrt::internal::{
    Checked, Class, Command, Details, MemoryAccess, NextUses, OperationKind, Place, TaskContext,
    UsedBytes, order_watch,
};
use accelrt::{Buffer, Config, Device, FfiCall, Runtime, Stream};

use crate::sanitizer::detector::Detector;
use crate::sanitizer::finding::FindingKind;
use crate::sanitizer::finding::FindingKind::{HostAccess, Race};
use crate::sanitizer::streams::{MOST_STREAMS, Streams};
use crate::sanitizer::watch;
use crate::sanitizer::watch::{OpenAccess, Sanitizer};

pub(super) const BYTES: usize = 512;

/// Two streams of a runtime that is watched, and memory that nothing has used.
pub(super) struct World {
    pub(super) watch: Sanitizer,
    pub(super) streams: [Stream; 2],
    pub(super) buffer: Buffer,
    pub(super) runtime: Runtime,
}

impl World {
    pub(super) fn new(bytes: usize) -> Self {
        let config = Config::builder().cpu_devices(1).cpu_threads(2).build().unwrap();
        let runtime = Runtime::new(config).unwrap();
        let watch = Sanitizer::begin(&runtime);
        let streams = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
        let buffer = runtime.empty(bytes, Device::cpu(0)).unwrap();
        Self { watch, streams, buffer, runtime }
    }

    /// A task of a stream that writes all of the buffer.
    pub(super) fn write(&self, stream: usize) {
        write(&self.streams[stream], &self.buffer);
    }

    pub(super) fn found(&self) -> Vec<FindingKind> {
        self.watch.findings(0).iter().map(|found| found.kind).collect()
    }
}

extern "C" fn nothing() {}

pub(super) fn write(stream: &Stream, buffer: &Buffer) {
    let call = FfiCall::new(nothing as *const _, &[]).unwrap();
    // SAFETY: the function takes any arguments, as it touches none.
    unsafe { stream.launch_with_uses(call, &[(buffer, Some(true))]) }.unwrap();
}

fn use_address(stream: &Stream, address: u64) {
    let call = FfiCall::new(nothing as *const _, &[address.into()]).unwrap();
    // SAFETY: as in `write`.
    unsafe { stream.launch_with_uses(call, &[]) }.unwrap();
}

#[test]
fn a_query_or_a_wait_that_ends_before_the_task_orders_nothing() {
    let _alone = crate::sanitizer::alone();
    let ways: [fn(&World); 7] = [
        |world| assert!(world.buffer.wait_for_host_timeout(Duration::ZERO).is_err()),
        |world| assert!(world.buffer.wait_for_host_unless(&mut || true).is_err()),
        |world| assert!(world.streams[0].synchronize_unless(&mut || true).is_err()),
        |world| assert!(!world.streams[0].is_done()),
        |world| assert!(!world.streams[0].record_event().unwrap().is_done()),
        |world| assert!(world.streams[0].synchronize_timeout(Duration::ZERO).is_err()),
        |world| {
            let event = world.streams[0].record_event().unwrap();
            assert!(event.synchronize_timeout(Duration::ZERO).is_err());
        },
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
        let world = World::new(BYTES);
        let gate = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap();
        };
        world.streams[0].enqueue(gate).unwrap();
        entered.recv().unwrap(); // else a wait would run the gate itself
        world.write(0);
        way(&world);
        world.write(1);
        assert_eq!(world.found(), [Race], "way {number}");
        open.send(()).unwrap();
    }
}

#[test]
fn record_stream_hides_no_use_of_the_stream() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    world.write(0);
    world.buffer.record_use(&world.streams[0]).unwrap();
    world.write(1);
    assert_eq!(world.found(), [Race]);
}

#[test]
fn the_address_behind_the_last_byte_is_no_use_of_a_buffer() {
    let _alone = crate::sanitizer::alone();
    for (offset, expected) in [(BYTES - 101, &[Race][..]), (BYTES - 100, &[])] {
        let world = World::new(BYTES - 100); // no other buffer begins at its end
        world.write(0);
        use_address(&world.streams[1], world.buffer.address().unwrap() + offset as u64);
        assert_eq!(world.found(), expected, "offset {offset}");
    }
}

/// A task that says that it writes so many bytes at an address.
struct Writes(Address, usize);

impl Command<TaskContext> for Writes {
    const CLASS: Class = Class::Ffi;
    const OPERATION: OperationKind = OperationKind::Launch;

    fn details(&self) -> Details {
        let access = MemoryAccess { address: self.0, bytes: Some(self.1), writes: Some(true) };
        Details { accesses: [access].into_iter().collect(), ..Details::default() }
    }

    fn run(self, _context: &mut TaskContext) {}
}

#[test]
fn an_access_of_no_bytes_races_with_nothing() {
    let _alone = crate::sanitizer::alone();
    for (bytes, expected) in [(1, &[Race][..]), (0, &[])] {
        let world = World::new(BYTES);
        world.write(0);
        let address = Address(world.buffer.address().unwrap() + 8);
        world.streams[1].core().enqueue(Writes(address, bytes), Checked).unwrap();
        assert_eq!(world.found(), expected, "{bytes} bytes");
    }
}

#[test]
fn what_a_callable_uses_after_it_has_enqueued_a_task_races_with_that_task() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let (other, buffer) = (world.streams[1].clone(), world.buffer.clone());
    let callable = move || {
        write(&other, &buffer);
        drop(OpenAccess::begin(buffer.used_bytes(Some(true))));
    };
    world.streams[0].enqueue(callable).unwrap();
    world.streams[0].synchronize().unwrap();
    assert_eq!(world.found(), [Race]);
}

/// What is found when a callable of a stream does something with the other stream and the buffer.
fn found_inside(act: impl FnOnce(&Stream, &Buffer) + Send + 'static) -> Vec<FindingKind> {
    let world = World::new(BYTES);
    let (other, buffer) = (world.streams[1].clone(), world.buffer.clone());
    world.streams[0].enqueue(move || act(&other, &buffer)).unwrap();
    world.streams[0].synchronize().unwrap();
    world.found()
}

fn access(buffer: &Buffer) -> OpenAccess {
    OpenAccess::begin(buffer.used_bytes(Some(true)))
}

#[test]
fn a_wait_for_the_uses_of_a_buffer_ends_no_access_of_the_host_that_lasts() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let lasting = access(&world.buffer);
    order_watch::tell(Told::HostWaitForUses(world.buffer.used_bytes(None), false));
    world.write(0);
    assert_eq!(world.found(), [HostAccess]);
    drop(lasting);
}

#[test]
fn what_a_callable_has_used_before_it_enqueues_a_task_is_before_that_task() {
    let _alone = crate::sanitizer::alone();
    let found = found_inside(|other, buffer| {
        drop(access(buffer));
        write(other, buffer);
    });
    assert_eq!(found, []);
    let found = found_inside(|other, buffer| {
        buffer.write_from_slice(&[1_u8; BYTES]).unwrap();
        write(other, buffer);
        other.synchronize().unwrap();
        drop(access(buffer));
        write(other, buffer);
    });
    assert_eq!(found, []);
    let found = found_inside(|other, buffer| {
        drop(access(buffer));
        write(other, buffer);
        drop(access(buffer)); // behind the first one, and beside the task
    });
    assert_eq!(found, [Race]);
}

#[test]
fn what_a_callable_uses_while_it_enqueues_a_task_races_with_that_task() {
    let _alone = crate::sanitizer::alone();
    let found = found_inside(|other, buffer| {
        let outer = access(buffer);
        drop(access(buffer)); // which does not end the outer one
        write(other, buffer);
        drop(outer);
    });
    assert_eq!(found, [Race]);
}

#[test]
fn what_a_callable_is_given_races_with_what_it_enqueues_whatever_it_has_ended() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let (other, buffer) = (world.streams[1].clone(), world.buffer.clone());
    let callable = move || {
        drop(access(&buffer));
        write(&other, &buffer);
    };
    let uses = vec![world.buffer.used_bytes(Some(true))];
    order_watch::declare(Some(NextUses { uses, ..NextUses::NONE }));
    world.streams[0].enqueue(callable).unwrap();
    world.streams[0].synchronize().unwrap();
    assert_eq!(world.found(), [Race]);
}

#[test]
fn a_watch_goes_on_when_another_one_ends() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    drop(Sanitizer::begin(&world.runtime));
    world.write(0);
    world.write(1);
    assert_eq!(world.found(), [Race]);
}

#[test]
fn a_watch_knows_nothing_of_other_runtimes() {
    let _alone = crate::sanitizer::alone();
    let [world, other] = [(); 2].map(|()| World::new(BYTES));
    other.write(0);
    other.write(1);
    other.runtime.synchronize(Device::cpu(0)).unwrap();
    let lasting = access(&other.buffer);
    other.write(0);
    use_address(&world.streams[0], other.buffer.address().unwrap()); // of nothing that it knows
    drop(lasting);
    assert_eq!((world.found(), other.found()), (vec![], vec![Race, HostAccess]));
}

#[test]
fn an_access_of_the_host_ends_in_every_watch() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let second = Sanitizer::begin(&world.runtime);
    drop(access(&world.buffer));
    world.write(0);
    assert_eq!((world.found(), second.num_findings()), (vec![], 0));
}

#[test]
fn findings_of_each_kind_of_memory_know_where_it_was_made() {
    let world = World::new(BYTES);
    let device = Device::cpu(0);
    let buffers = [
        world.runtime.empty(BYTES, device).unwrap(),
        world.runtime.empty_aligned(BYTES, 4096, device).unwrap(),
        world.runtime.empty_pinned(BYTES).unwrap(),
        world.runtime.empty_shared(BYTES, device).unwrap(),
    ];
    for (index, buffer) in buffers.iter().enumerate() {
        for stream in &world.streams {
            write(stream, buffer);
        }
        let findings = world.watch.findings(index);
        assert_eq!(findings.len(), 1, "buffer {index}");
        assert_eq!(findings[0].kind, Race);
        assert!(findings[0].buffer.unwrap().made.is_some(), "buffer {index}");
    }
}

#[test]
fn record_stream_counts_for_each_stream() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let ([first, second], address) = (&world.streams, world.buffer.address().unwrap());
    use_address(first, address);
    second.wait_stream(first).unwrap();
    use_address(second, address);
    for stream in [second, first] {
        world.buffer.record_use(stream).unwrap();
    }
    let World { watch, buffer, runtime: _runtime, .. } = world;
    drop(buffer);
    assert_eq!(watch.num_findings(), 0, "{:?}", watch.findings(0));
}

#[test]
fn a_copy_is_behind_no_access_that_lasts() {
    let _alone = crate::sanitizer::alone();
    let found = found_inside(|other, buffer| {
        let halves = [0..BYTES / 2, BYTES / 2..BYTES];
        let [source, target] = halves.map(|range| buffer.slice(range).unwrap());
        let outer = access(&source);
        drop(target.copy_from(&source, other).unwrap());
        drop(outer);
    });
    assert_eq!(found, [Race]);
}

#[test]
fn foreign_order_leads_from_the_first_stream_to_the_second_alone() {
    let _alone = crate::sanitizer::alone();
    for (first, expected) in [(0, &[][..]), (1, &[Race])] {
        let world = World::new(BYTES);
        world.write(first);
        watch::order(world.streams[0].core(), world.streams[1].core());
        world.write(1 - first);
        assert_eq!(world.found(), expected, "stream {first} first");
    }
}

#[test]
fn a_stream_whose_synchronise_a_worker_has_ended_leaves_without_a_loss() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let stream = &world.streams[0];
    let ((enter, entered), (open, opened)) = (mpsc::channel(), mpsc::channel::<()>());
    let task = move || {
        enter.send(()).unwrap();
        opened.recv().unwrap();
    };
    stream.enqueue(task).unwrap();
    entered.recv().unwrap(); // on a worker, so that this thread does not run it
    thread::scope(|scope| {
        scope.spawn(move || {
            while stream.core().pushed() == 1 {
                thread::yield_now(); // the synchronise has still to enqueue its own task
            }
            open.send(()).unwrap();
        });
        stream.synchronize().unwrap();
    });
    world.watch.ask(|detector| detector.streams().forget_some()).unwrap();
    assert_eq!(world.watch.num_forgotten(), 0);
}

/// Goal: a watch knows of memory that is older. Method: uses by the bare address, of a buffer that
/// no call names; of one that is freed before the watch nothing is known.
#[test]
fn an_address_in_a_buffer_that_is_older_than_the_watch_is_seen() {
    let _alone = crate::sanitizer::alone();
    let World { streams, buffer, runtime, watch } = World::new(BYTES);
    let freed = runtime.empty(2 * BYTES, Device::cpu(0)).unwrap();
    let address = buffer.address().unwrap();
    let freed_address = freed.address().unwrap();
    drop((watch, freed));
    let watch = Sanitizer::begin(&runtime);
    for used in [address + 8, freed_address] {
        for stream in &streams {
            use_address(stream, used);
        }
    }
    let found = watch.findings(0);
    assert_eq!(found.iter().map(|it| it.kind).collect::<Vec<_>>(), [Race]);
    let of = found[0].buffer.expect("a race is about memory");
    assert_eq!((of.address, of.bytes, of.made), (address, BYTES, None));
    write(&streams[0], &buffer); // named, it is the same one, and so is what used it
    assert_eq!(watch.num_findings(), 2);
    watch.ask(|detector| detector.know(address, BYTES)).unwrap();
    write(&streams[1], &buffer);
    assert_eq!(watch.num_findings(), 3, "what is known is not forgotten");
}

#[test]
fn uses_that_find_no_room_are_counted() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(2 * 1025);
    for number in 0..1025 {
        assert_eq!(world.watch.num_forgotten(), 0, "use {number}");
        let range = 2 * number..2 * number + 2;
        write(&world.streams[0], &world.buffer.slice(range).unwrap());
    }
    assert_eq!(world.watch.num_forgotten(), 512); // the older half
}

type Way<'a> = &'a dyn Fn(&World, Range<usize>);

#[test]
fn written_ranges_that_find_no_room_are_counted() {
    let _alone = crate::sanitizer::alone();
    let takes_view = |world: &World, range| {
        let used = world.buffer.slice(range).unwrap().used_bytes(None);
        order_watch::tell(Told::HostWaitForUses(used, true));
    };
    let writes = |world: &World, range| {
        write(&world.streams[0], &world.buffer.slice(range).unwrap());
        world.streams[0].synchronize().unwrap(); // so that the uses themselves find room
    };
    let ways: [Way<'_>; 2] = [&writes, &takes_view];
    for (number, way) in ways.into_iter().enumerate() {
        let world = World::new(2 * 1025);
        for range in 0..1025 {
            assert_eq!(world.watch.num_forgotten(), 0, "way {number}, range {range}");
            way(&world, 2 * range..2 * range + 1);
        }
        way(&world, 0..1); // the last task is known to be over now
        assert_eq!(world.watch.num_forgotten(), 1024, "way {number}"); // the gaps between them
    }
}

#[test]
fn waits_that_find_no_room_are_counted() {
    let mut streams = Streams::default();
    let [waits, source] = [1, 2].map(|key| streams.slot(key, None));
    for ticket in 1..=1024 {
        assert_eq!(streams.num_forgotten, 0, "wait {ticket}");
        let awaited = streams.enqueue(source, ticket, 0);
        streams.wait(waits, awaited, true);
        streams.enqueue(waits, ticket, 0);
    }
    assert_eq!(streams.num_forgotten, 1); // the first past, of no wait, had a place too
}

/// More streams than a watch knows at a time.
const MANY: usize = 2 * MOST_STREAMS + 1;

impl World {
    fn new_stream(&self) -> Stream {
        self.runtime.stream(Device::cpu(0)).unwrap()
    }

    fn assert_streams_are_bounded(&self) {
        let size = self.watch.ask(|detector| detector.streams().size()).unwrap();
        assert!(size.0.max(size.1) <= MOST_STREAMS + 2, "{size:?}");
    }
}

#[test]
fn streams_that_the_host_has_waited_for_leave_without_a_loss() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let kept: Vec<_> = (0..MOST_STREAMS / 2).map(|_| world.new_stream()).collect();
    let other = world.runtime.empty(BYTES, Device::cpu(0)).unwrap();
    world.write(0); // which no wait ends: the one that must stay known
    for number in 0..MANY {
        let new = world.new_stream();
        let stream = kept.get(number % MOST_STREAMS).unwrap_or(&new);
        write(stream, &other);
        stream.synchronize().unwrap();
    }
    world.assert_streams_are_bounded();
    assert_eq!((world.found(), world.watch.num_forgotten()), (vec![], 0));
    world.write(1);
    assert_eq!(world.found(), [Race]);
}

#[test]
fn streams_that_find_no_room_are_counted_and_make_no_finding() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    let streams: Vec<_> = (0..MANY).map(|_| world.new_stream()).collect();
    for pair in streams.windows(2).chain([&[streams[MANY - 1].clone(), streams[0].clone()][..]]) {
        write(&pair[0], &world.buffer);
        pair[1].wait_event(&pair[0].record_event().unwrap()).unwrap();
    }
    write(&streams[0], &world.buffer);
    world.assert_streams_are_bounded();
    assert_eq!(world.found(), []);
    assert!(world.watch.num_forgotten() > 0);
}

#[test]
fn what_a_task_uses_beside_too_many_streams_makes_no_finding() {
    let _alone = crate::sanitizer::alone();
    for waits_for_the_task in [true, false] {
        let world = World::new(BYTES);
        let (user, holder, last) = (&world.streams[0], &world.streams[1], world.new_stream());
        let gates = [user, holder].map(|stream| {
            let ((open, opened), buffer) = (mpsc::channel::<()>(), world.buffer.clone());
            let is_user = stream == user;
            let callable = move || {
                opened.recv().unwrap();
                (0..2).filter(|_| is_user).for_each(|_| drop(access(&buffer)));
            };
            stream.enqueue(callable).unwrap();
            (open, stream.record_event().unwrap())
        });
        let others: Vec<_> = (0..MANY).map(|_| world.new_stream()).collect();
        for stream in &others {
            // None of them is over, and the user is told of again, or is the first to leave.
            stream.wait_event(&gates[usize::from(!waits_for_the_task)].1).unwrap();
        }
        last.wait_event(&gates[0].1).unwrap();
        write(&last, &world.buffer);
        for (open, _) in &gates {
            open.send(()).unwrap();
        }
        world.runtime.synchronize(Device::cpu(0)).unwrap();
        assert_eq!(world.found(), [], "{waits_for_the_task}");
        assert!(world.watch.num_forgotten() > 0);
        world.write(0);
        world.write(1); // both are known again
        assert_eq!(world.found(), [Race]);
    }
}

#[test]
fn of_streams_with_uses_the_one_that_was_told_of_last_leaves_last() {
    let mut streams = Streams::default();
    let told = |streams: &mut Streams, key| {
        let slot = streams.slot(key, None);
        streams.enqueue(slot, 1, 0);
    };
    for key in 1..=MOST_STREAMS as u64 {
        told(&mut streams, key);
        told(&mut streams, 0);
    }
    assert!(streams.is_full());
    streams.forget_some();
    assert_eq!([0, 1].map(|key| streams.known_slot(key).is_some()), [true, false]);
}

#[test]
fn waits_for_many_streams_that_find_no_room_are_counted() {
    let mut streams = Streams::default();
    let slots: Vec<_> = (0..1000).map(|key| streams.slot(key, None)).collect();
    for ticket in 1..=32 {
        for (source, waits) in slots[1..].iter().map(|source| (*source, slots[0])) {
            let awaited = streams.enqueue(source, ticket, 0);
            streams.wait(waits, awaited, true);
        }
        streams.enqueue(slots[0], ticket, 0);
    }
    assert_eq!(streams.num_forgotten, 1 + 32 - (1 << 14) / 999); // one of no wait, as above
}

#[test]
fn buffers_that_find_no_room_are_counted() {
    let mut detector = Detector::default();
    for number in 0..=1 << 16 {
        assert_eq!(detector.num_forgotten(), 0, "buffer {number}");
        let (address, range) = (number * BYTES as u64, 0..BYTES);
        let used = UsedBytes { runtime: 0, home: 0, address, bytes: BYTES, range, writes: None };
        detector.tell(Told::Allocation(used), Place::default());
    }
    assert_eq!(detector.num_forgotten(), 1);
}

/// Goal: bytes that only skipped tasks were to write count as unwritten. Method: a failed stream
/// skips a write; after the error has ended, another stream reads the bytes.
#[test]
fn skipped_write_leaves_bytes_unwritten() {
    let _alone = crate::sanitizer::alone();
    for is_written_again in [false, true] {
        let world = World::new(BYTES);
        let [first, second] = &world.streams;
        first.enqueue(|| Err::<(), _>("planned")).unwrap();
        world.write(0);
        first.synchronize().unwrap_err();
        if is_written_again {
            world.write(0);
            first.synchronize().unwrap();
        }
        let call = FfiCall::new(nothing as *const _, &[]).unwrap();
        // SAFETY: as in `write`.
        unsafe { second.launch_with_uses(call, &[(&world.buffer, Some(false))]) }.unwrap();
        second.synchronize().unwrap();
        let expected = if is_written_again { vec![] } else { vec![FindingKind::UninitializedRead] };
        assert_eq!(world.found(), expected, "written again: {is_written_again}");
    }
}
