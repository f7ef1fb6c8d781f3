//! The sanitizer and the arguments of callables, and the advice of its findings.

use std::sync::mpsc;

use accelrt::Buffer;
use accelrt::internal::order_watch::Told;
use accelrt::internal::{NextUses, order_watch};

use crate::sanitizer::case_tests::{BYTES, World, write};
use crate::sanitizer::finding::FindingKind::{HostAccess, Race};
use crate::sanitizer::watch::OpenAccess;

/// Says that the stream's next task keeps the buffer, as an argument of a callable.
fn keep(buffer: &Buffer, writes: bool) {
    let kept = vec![buffer.used_bytes(Some(writes))];
    order_watch::declare(Some(NextUses { kept, ..NextUses::NONE }));
}

#[test]
fn advice_orders_the_task_that_was_enqueued_later() {
    let _alone = crate::sanitizer::alone();
    for is_lasting in [false, true] {
        let world = World::new(BYTES);
        let [writer, reader] = &world.streams;
        world.write(0);
        reader.wait_stream(writer).unwrap();
        let (open, opened) = mpsc::channel::<()>();
        let used = world.buffer.used_bytes(Some(false));
        let read = move || {
            opened.recv().unwrap();
            if is_lasting {
                drop(OpenAccess::begin(used));
            } else {
                order_watch::tell(Told::HostAccess(used));
            }
        };
        reader.enqueue(read).unwrap();
        world.write(0);
        open.send(()).unwrap();
        reader.synchronize().unwrap();
        let found = &world.watch.findings(0)[..];
        let [found] = found else { panic!("{found:?}") };
        assert_eq!(found.kind, Race);
        let ids =
            [found.first.as_ref().unwrap().stream, found.second.stream].map(|it| it.unwrap().1);
        assert_eq!(ids, [reader.id(), writer.id()]);
        let expected = format!("let stream {} of cpu wait for stream {}", writer.id(), reader.id());
        let fix = found.fix().replace("cpu:0", "cpu");
        assert!(fix.starts_with(&expected), "{fix}");
    }
}

#[test]
fn a_view_waits_for_no_argument_of_a_callable() {
    let _alone = crate::sanitizer::alone();
    for (writes, expected) in [(true, &[HostAccess][..]), (false, &[])] {
        let World { watch, streams: [stream, _], buffer, runtime: _runtime } = World::new(BYTES);
        let found = || watch.findings(0).iter().map(|found| found.kind).collect::<Vec<_>>();
        let (open, opened) = mpsc::channel::<()>();
        keep(&buffer, writes);
        stream.enqueue(move || opened.recv().unwrap()).unwrap();
        buffer.wait_for_host().unwrap(); // as each view does
        assert_eq!(found(), expected, "writes: {writes}");
        open.send(()).unwrap();
        stream.synchronize().unwrap();
        buffer.wait_for_host().unwrap();
        assert_eq!(found(), expected, "behind the callable");
    }
}

#[test]
fn a_view_inside_a_callable_is_its_own_use() {
    let _alone = crate::sanitizer::alone();
    let World { watch, streams: [stream, _], buffer, runtime: _runtime } = World::new(BYTES);
    let own = buffer.clone();
    keep(&buffer, true);
    stream.enqueue(move || own.wait_for_host().unwrap()).unwrap();
    stream.synchronize().unwrap();
    drop(buffer);
    let found = watch.findings(0);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn arguments_of_a_callable_are_its_uses() {
    let _alone = crate::sanitizer::alone();
    for (writes, of_writer, expected) in [
        (false, true, &[Race][..]),
        (true, true, &[Race]),
        (true, false, &[Race]),
        (false, false, &[]),
    ] {
        let World { watch, streams: [writer, reader], buffer, runtime } = World::new(BYTES);
        write(&writer, &buffer);
        reader.wait_stream(&writer).unwrap();
        let (kept, (open, opened)) = (buffer.clone(), mpsc::channel::<()>());
        keep(&buffer, writes);
        let run = move || {
            opened.recv().unwrap();
            drop(kept); // the buffer's free
        };
        reader.enqueue(run).unwrap();
        if of_writer {
            write(&writer, &buffer);
        } else {
            keep(&buffer, false);
            writer.enqueue(|| ()).unwrap();
        }
        writer.synchronize().unwrap();
        drop(buffer);
        open.send(()).unwrap();
        reader.synchronize().unwrap();
        let found: Vec<_> = watch.findings(0).iter().map(|found| found.kind).collect();
        assert_eq!(found, expected, "{writes}, {of_writer}");
        drop(runtime);
    }
}

#[test]
fn an_argument_of_a_callable_may_be_unwritten() {
    let _alone = crate::sanitizer::alone();
    let world = World::new(BYTES);
    keep(&world.buffer, false);
    world.streams[0].enqueue(|| ()).unwrap();
    assert_eq!(world.found(), []);
}
