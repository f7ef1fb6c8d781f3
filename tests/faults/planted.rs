//! Planted mistakes: each law finds the mistake that it is there for, so none is true by itself.

use std::sync::Mutex;

use accelrt::backend::contract::Backend;
use accelrt::{Error, Event, RuntimeError};

use crate::campaign::{ALONE, run_case};
use crate::scenarios::Scenario;
use crate::world::{Kind, World, locked};

const CPU: Kind = Kind::CPU;
const NULL: Kind = Kind::NULL_WHEN_ASKED;

/// Keeps something for good where a leak checker finds it.
fn keep(thing: impl Send + 'static) {
    static KEPT: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());
    locked(&KEPT).push(Box::new(thing));
}

/// Runs a scenario that makes a mistake; what the laws say must name it.
#[track_caller]
fn assert_found(kinds: &[Kind], run: fn(&World), expected: &str) {
    for kind in kinds {
        let violations = run_case(*kind, &Scenario::new("planted", run), None).violations;
        let is_found = violations.iter().any(|violation| violation.contains(expected));
        assert!(is_found, "{kind:?}: {violations:?}");
    }
}

#[test]
fn a_mark_that_is_not_given_back_is_found() {
    let leak = |world: &World| {
        let event = Event::timed();
        world.stream(world.devices[0]).unwrap().record(&event).unwrap();
        keep(event);
    };
    assert_found(&[CPU, NULL], leak, "mark_release was called");
}

#[test]
fn memory_that_is_not_given_back_is_found() {
    let leak = |world: &World| {
        keep(world.runtime.empty(100, world.devices[0]).unwrap());
    };
    assert_found(&[CPU, NULL], leak, "bytes are not back");
}

#[test]
fn a_stream_that_is_not_given_back_is_found() {
    let leak = |world: &World| keep(world.stream(world.devices[0]));
    assert_found(&[CPU, NULL], leak, "stream_destroy was called");
}

#[test]
fn pages_that_are_not_given_back_are_found() {
    let leak = |world: &World| {
        let pages = world.backend().virtual_memory(0).unwrap();
        pages.create(pages.granularity_bytes()).unwrap();
    };
    assert_found(&[CPU, NULL], leak, "bytes are not back");
}

#[test]
fn a_task_that_runs_twice_or_never_or_out_of_order_is_found() {
    let twice = |world: &World| {
        let token = world.ledger.task(&world.stream(world.devices[0]).unwrap(), 0);
        token.run();
        token.run();
    };
    assert_found(&[CPU], twice, "ran 2 times");
    let unreported = |world: &World| {
        drop(world.ledger.task(&world.stream(world.devices[0]).unwrap(), 0));
    };
    assert_found(&[CPU, NULL], unreported, "reported as not run");
    let lost = |world: &World| {
        let token = world.ledger.task(&world.stream(world.devices[0]).unwrap(), 0);
        token.run();
        keep(token);
    };
    assert_found(&[CPU], lost, "was dropped 0 times");
    let overtaking = |world: &World| {
        let stream = world.stream(world.devices[0]).unwrap();
        let tokens = [(); 2].map(|()| world.ledger.task(&stream, 0));
        tokens.iter().rev().for_each(crate::ledger::Token::run);
    };
    assert_found(&[CPU], overtaking, "ran before");
}

#[test]
fn a_task_before_what_it_waits_for_is_found() {
    let early = |world: &World| {
        let device = world.devices[0];
        let [earlier, later] =
            [(); 2].map(|()| world.ledger.task(&world.stream(device).unwrap(), 0));
        world.ledger.order(Some(earlier.id()), Some(later.id()));
        later.run();
        earlier.run();
    };
    assert_found(&[CPU], early, "did not run behind");
}

#[test]
fn an_error_without_a_failure_is_found() {
    let strange = |world: &World| {
        world.note(Err::<(), _>(Error::Runtime(RuntimeError::Interrupted)));
    };
    assert_found(&[CPU, NULL], strange, "somebody said");
}

#[test]
fn an_error_that_nobody_raises_is_found_at_the_end() {
    // Goal: the end is clean. Method: a task fails behind the last synchronise, in the second run.
    let fail = |world: &World| {
        let stream = world.runtime.default_stream(world.devices[0]).unwrap();
        stream.enqueue(|| Err::<(), _>("planted")).unwrap();
    };
    assert_found(&[CPU], fail, "planted");
}

#[test]
fn a_panic_on_another_thread_is_found() {
    let _alone = locked(&ALONE);
    let panics = |_: &World| drop(std::thread::spawn(|| panic!("planted")).join());
    assert_found(&[CPU], panics, "panics");
}
