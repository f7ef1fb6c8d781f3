//! The semantics' own tests: small programs whose findings are known, and how often each is drawn.

use std::collections::BTreeMap;

use crate::numbers::Numbers;
use crate::semantics::machine::{Access, Actor, Finding, Machine, WaitedFor};
use crate::semantics::program::{Shape, draw};

/// Two streams of one device, two events, and memory of eight units, all of them written by the
/// first stream and waited for.
fn machine() -> Machine {
    let mut machine = Machine::new([0, 0], 2);
    let life = machine.allocate(0, 8);
    machine.task(Actor::Host, 0, &[write(life, 0..8)], false);
    machine.host_wait(WaitedFor::Stream(0));
    machine
}

fn write(life: usize, range: std::ops::Range<usize>) -> Access {
    Access { life, range, writes: true, is_recorded: true }
}

fn read(life: usize, range: std::ops::Range<usize>) -> Access {
    Access { writes: false, ..write(life, range) }
}

fn bare(access: Access) -> Access {
    Access { is_recorded: false, ..access }
}

fn task(machine: &mut Machine, stream: usize, access: Access) -> usize {
    machine.task(Actor::Host, stream, &[access], false)
}

#[test]
fn accesses_of_the_same_units_race_when_one_writes_and_nothing_orders_them() {
    for (first, second, is_race) in [
        (write(0, 0..4), write(0, 3..8), true),
        (read(0, 0..4), write(0, 3..8), true),
        (write(0, 0..4), read(0, 3..8), true),
        (read(0, 0..4), read(0, 0..4), false),
        (write(0, 0..4), write(0, 4..8), false),
    ] {
        let mut machine = machine();
        task(&mut machine, 0, first);
        task(&mut machine, 1, second);
        let race = Finding::Race { first: 1, second: 2 };
        assert_eq!(machine.findings, if is_race { vec![race] } else { vec![] });
    }
}

#[test]
fn a_wait_orders_what_was_recorded_before_it_and_nothing_else() {
    let mut machine = machine();
    task(&mut machine, 0, write(0, 0..1));
    machine.record(Actor::Host, 0, 0);
    task(&mut machine, 0, write(0, 1..2));
    machine.wait_event(1, 0);
    task(&mut machine, 1, read(0, 0..1));
    assert_eq!(machine.findings, []);
    task(&mut machine, 1, read(0, 1..2));
    assert_eq!(machine.findings, [Finding::Race { first: 2, second: 4 }]);
}

#[test]
fn a_wait_means_the_latest_record_at_that_moment() {
    let mut machine = machine();
    machine.record(Actor::Host, 0, 0);
    task(&mut machine, 0, write(0, 0..1));
    machine.wait_event(1, 0);
    machine.record(Actor::Host, 0, 0);
    task(&mut machine, 1, read(0, 0..1));
    assert_eq!(machine.findings, [Finding::Race { first: 1, second: 2 }]);
}

#[test]
fn order_is_transitive_and_what_the_host_waited_for_is_before_all_streams() {
    for wait in [WaitedFor::Stream(1), WaitedFor::Event(1), WaitedFor::Device(0)] {
        let mut machine = machine();
        let first = task(&mut machine, 0, write(0, 0..8));
        machine.wait_stream(1, 0);
        machine.record(Actor::Host, 1, 1);
        let unordered = machine.task(Actor::Host, 0, &[], false);
        machine.host_wait(wait);
        let last = machine.task(Actor::Host, 1, &[], false);
        assert!(machine.is_before(first, last));
        assert_eq!(machine.is_before(unordered, last), wait == WaitedFor::Device(0), "{wait:?}");
    }
}

#[test]
fn what_a_callable_enqueues_is_behind_what_is_before_the_callable_and_beside_it() {
    let mut machine = machine();
    let before = machine.task(Actor::Host, 0, &[], false);
    let callable = machine.task(Actor::Host, 0, &[], false);
    let inner = machine.task(Actor::Callable(callable), 1, &[], false);
    assert!(machine.is_before(before, inner));
    assert!(!machine.is_before(callable, inner));
}

#[test]
fn a_copy_and_the_host_wait_for_recorded_accesses_and_for_no_others() {
    for is_host in [false, true] {
        for is_recorded in [false, true] {
            let mut machine = machine();
            task(&mut machine, 0, Access { is_recorded, ..write(0, 0..4) });
            if is_host {
                machine.host_access(&read(0, 0..4));
            } else {
                machine.task(Actor::Host, 1, &[read(0, 0..4)], true);
            }
            let finding = if is_host {
                Finding::HostAccess { first: 1, second: 2 }
            } else {
                Finding::Race { first: 1, second: 2 }
            };
            assert_eq!(machine.findings, if is_recorded { vec![] } else { vec![finding] });
        }
    }
}

#[test]
fn a_free_is_behind_its_home_stream_and_recorded_accesses() {
    let mut machine = machine();
    task(&mut machine, 0, bare(read(0, 0..1)));
    task(&mut machine, 1, read(0, 0..1));
    machine.free(0);
    assert_eq!(machine.findings, []);
    task(&mut machine, 1, bare(read(0, 0..1)));
    assert_eq!(machine.findings, [Finding::UseAfterFree { access: 3 }]);
}

#[test]
fn a_free_misses_an_unrecorded_access_of_another_stream() {
    let mut machine = machine();
    task(&mut machine, 1, bare(read(0, 0..1)));
    machine.free(0);
    assert_eq!(machine.findings, [Finding::MissingRecordStream { access: 1 }]);
}

#[test]
fn reads_of_what_nothing_wrote_and_waits_for_what_nothing_recorded_are_found() {
    let mut machine = machine();
    let fresh = machine.allocate(0, 2);
    task(&mut machine, 0, write(fresh, 0..1));
    task(&mut machine, 0, read(fresh, 0..2));
    machine.wait_event(1, 1);
    let unrecorded = Finding::UnrecordedEvent { stream: 1, event: 1 };
    assert_eq!(machine.findings, [Finding::UninitializedRead { access: 2 }, unrecorded]);
}

/// Goal: what judges by these programs sees each finding often.
#[test]
fn random_programs_without_care_have_every_finding() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..1_000 {
        let mut numbers = Numbers::new(seed);
        let shape = Shape { bare_percent: 30, ..Shape::draw(&mut numbers, 50) };
        for finding in draw(shape, numbers).machine.findings {
            let text = format!("{finding:?}");
            let (name, _) = text.split_once(' ').expect("a name and its numbers");
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), 6, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 50), "{counts:?}");
}
