//! Tests of the log of one stream's errors: their ranges, phases and bounds.

use super::*;
use crate::base::device::Device;

fn error(id: u64) -> Arc<StreamFailure> {
    StreamFailure::new(Device::cpu(0), id, None, FailureCause::Unfinished)
}

fn id_at(failures: &Failures, ticket: u64) -> Option<u64> {
    failures.at(ticket).map(|error| error.stream_id())
}

fn ids(errors: &[Arc<StreamFailure>]) -> Vec<u64> {
    errors.iter().map(|error| error.stream_id()).collect()
}

/// Opens an error for each round, and ends it by `end` five tickets later.
fn fail(
    failures: &Failures,
    rounds: std::ops::Range<u64>,
    mut end: impl FnMut(u64, &Arc<StreamFailure>),
) {
    for round in rounds {
        let error = error(round);
        assert!(failures.open(round * 10 + 1, &error));
        end(round * 10 + 6, &error);
    }
}

#[test]
fn error_extends_from_its_task_to_its_end() {
    let failures = Failures::new();
    failures.retain_cleared();
    assert!(failures.current().is_none());
    failures.open(5, &error(1));
    assert_eq!(failures.current().map(|error| error.stream_id()), Some(1));
    failures.clear(8);
    assert!(failures.current().is_none());
    let expected = [(4, None), (5, Some(1)), (7, Some(1)), (8, None)];
    for (ticket, expected) in expected {
        assert_eq!(id_at(&failures, ticket), expected, "ticket {ticket}");
    }
}

#[test]
fn error_is_found_by_any_task_that_it_covers() {
    let failures = Failures::new();
    failures.retain_cleared();
    failures.open(5, &error(1));
    failures.clear(8);
    for (first, last, is_covered) in
        [(0, 4, false), (0, 5, true), (5, 6, true), (6, 20, true), (7, 20, false)]
    {
        assert_eq!(failures.within(first, last).is_some(), is_covered, "{first} to {last}");
    }
}

#[test]
fn lookups_find_the_first_error_of_a_list() {
    // Goal: each lookup returns the oldest error that it asks for. Method: ranges of several
    // lengths and distances, compared with a list for all pairs of tickets.
    let failures = Failures::new();
    failures.retain_cleared();
    let mut list = Vec::new();
    let mut ticket = 2;
    for (id, (length, distance)) in (1..).zip([(1, 0), (3, 1), (1, 2), (4, 0), (2, 3)]) {
        failures.open(ticket, &error(id));
        failures.clear(ticket + length);
        list.push((id, ticket..ticket + length));
        ticket += length + distance;
    }
    for first in 0..ticket + 2 {
        let covers = |task| list.iter().find(|(_, range)| range.contains(&task));
        assert_eq!(id_at(&failures, first), covers(first).map(|(id, _)| *id), "{first}");
        for last in first + 1..ticket + 2 {
            let expected = (first + 1..=last).find_map(covers).map(|(id, _)| *id);
            let found = failures.within(first, last).map(|error| error.stream_id());
            assert_eq!(found, expected, "{first} to {last}");
        }
    }
}

#[test]
fn last_release_drops_synchronized_errors() {
    let failures = Failures::new();
    failures.retain_cleared();
    fail(&failures, 0..10, |ticket, _| failures.clear(ticket));
    assert_eq!(id_at(&failures, 2), Some(0));
    failures.open(200, &error(99));
    failures.release_cleared();
    assert_eq!(failures.log.lock().ranges.len(), 1);
    assert_eq!((id_at(&failures, 2), id_at(&failures, 300)), (None, Some(99)));
}

#[test]
fn received_errors_are_bounded() {
    let failures = Failures::new();
    fail(&failures, 0..20, |ticket, error| assert!(failures.end_received(error, ticket)));
    let found: Vec<_> = (0..20).filter_map(|round| id_at(&failures, round * 10 + 3)).collect();
    assert_eq!(found, (4..20).collect::<Vec<_>>());
    assert!(!failures.has_unraised(0));
    failures.forget_received(0);
    assert!(!failures.has_failed());
}

#[test]
fn set_aside_errors_are_bounded_and_counted() {
    let failures = Failures::new();
    fail(&failures, 0..20, |ticket, _| failures.reissue(ticket));
    assert!(failures.has_unraised(0) && failures.current().is_none());
    assert_eq!(failures.unraised().num_forgotten, 4);
    let taken = failures.synchronize(100);
    assert_eq!((ids(&taken.errors), taken.num_forgotten), ((10..20).collect(), 0));
    let taken = failures.synchronize(0);
    assert_eq!((ids(&taken.errors), taken.num_forgotten), ((4..10).collect(), 4));
    assert!(!failures.has_failed());
}

#[test]
fn dropped_cancellations_are_not_counted() {
    let failures = Failures::new();
    for ticket in (1..200).step_by(10) {
        let error = StreamFailure::new(Device::cpu(0), 0, None, FailureCause::Cancelled);
        assert!(failures.open(ticket, &error));
        failures.reissue(ticket + 5);
    }
    let UnraisedErrors { errors, num_forgotten, .. } = failures.unraised();
    assert_eq!((errors.len(), num_forgotten), (0, 0));
}

#[test]
fn cancellations_are_dropped_before_errors() {
    let failures = Failures::new();
    fail(&failures, 0..1, |ticket, _| failures.reissue(ticket));
    for ticket in (101..400).step_by(10) {
        let error = StreamFailure::new(Device::cpu(0), 0, None, FailureCause::Cancelled);
        assert!(failures.open(ticket, &error));
        failures.reissue(ticket + 5);
    }
    assert_eq!(ids(&failures.unraised().errors), [0]);
}

#[test]
fn count_of_dropped_errors_is_left_to_raise() {
    let failures = Failures::new();
    let mut kept = Vec::new();
    fail(&failures, 0..20, |ticket, error| {
        failures.reissue(ticket);
        kept.push((ticket, Arc::clone(error)));
    });
    for (ticket, error) in kept.drain(4..) {
        assert!(!failures.end_received(&error, ticket), "it was set aside");
    }
    failures.forget_received(0);
    assert!(failures.has_failed() && failures.has_unraised(0) && !failures.has_unraised(1));
    let UnraisedErrors { errors, num_forgotten, without_details } = failures.synchronize(0);
    assert_eq!((errors.len(), num_forgotten), (0, 4));
    assert!(without_details.is_some_and(|error| error.is_raised()), "no report shows it");
    assert!(!failures.has_failed());
}

#[test]
fn dropped_errors_count_until_raised() {
    let (source, failures) = (Failures::new(), Failures::new());
    let mut errors = Vec::new();
    for ticket in (1..200).step_by(10) {
        let root = error(ticket);
        assert!(source.open(ticket, &root));
        source.reissue(ticket + 5);
        let inherited = StreamFailure::inherited(Device::cpu(0), 7, &root);
        assert!(failures.open(ticket, &inherited));
        failures.reissue(ticket + 5);
        errors.push((root, inherited));
    }
    assert_eq!(failures.unraised().num_forgotten, 0, "the source has them");
    assert_eq!(source.unraised().num_forgotten, 4);
    errors[0].0.set_raised();
    errors[0].0.set_raised();
    assert_eq!(source.unraised().num_forgotten, 3);
    errors[1].1.set_raised();
    errors[19].0.set_raised();
    assert_eq!(source.unraised().num_forgotten, 2, "the root of an inherited error is raised");
    assert_eq!(source.synchronize(0).num_forgotten, 2);
    errors[2].0.set_raised();
    assert_eq!(source.unraised().num_forgotten, 0);
}

#[test]
fn surplus_errors_lose_cause_and_keep_range() {
    let failures = Failures::new();
    failures.retain_cleared();
    fail(&failures, 0..20, |ticket, _| failures.clear(ticket));
    for round in 0..20 {
        let covering = failures.at(round * 10 + 5).unwrap();
        let is_forgotten = matches!(covering.failure(), FailureCause::Forgotten);
        assert!(!is_forgotten || covering.is_raised(), "the errors were raised");
        assert_eq!(is_forgotten, round < 4, "round {round}");
        assert!(failures.at(round * 10 + 6).is_none());
    }
}

#[test]
fn receipt_of_other_error_has_no_effect() {
    let failures = Failures::new();
    let (earlier, current) = (error(1), error(2));
    failures.open(1, &earlier);
    failures.clear(3);
    failures.open(5, &current);
    assert!(!failures.end_received(&earlier, 7));
    assert!(failures.current().is_some());
    assert!(failures.end_received(&current, 8));
    assert!(failures.current().is_none());
}

#[test]
fn error_put_back_is_raised_once() {
    let (failures, error) = (Failures::new(), error(1));
    failures.retain_cleared();
    failures.open(5, &error);
    failures.clear(6);
    failures.set_aside(&error);
    assert_eq!(ids(&failures.unraised().errors), [1]);
    assert!(failures.unsynchronized_at(5).is_some());
    assert!(failures.open(8, &error));
    assert!(failures.synchronize(0).errors.is_empty());
    assert!(failures.current().is_some());
}

#[test]
fn error_put_back_after_a_later_one_is_not_lost() {
    let (failures, earlier, later) = (Failures::new(), error(1), error(2));
    failures.retain_cleared();
    failures.open(5, &earlier);
    failures.clear(6);
    failures.open(7, &later);
    failures.set_aside(&earlier);
    assert_eq!(ids(&failures.unraised().errors), [1, 2]);
    assert_eq!(ids(&failures.synchronize(0).errors), [1]);
}

#[test]
fn error_put_back_after_reissue_is_set_aside() {
    let failures = Failures::new();
    let earlier = error(1);
    failures.open(5, &earlier);
    failures.clear(6); // by a synchronise that is then given up
    assert!(!failures.note_reissue(7));
    assert!(!failures.open(8, &earlier));
    assert!(failures.current().is_none() && id_at(&failures, 9).is_none());
    assert!(failures.synchronize(7).errors.is_empty());
    assert_eq!(ids(&failures.synchronize(0).errors), [1]);
    // An error of a later task is the new holder's.
    assert!(failures.open(10, &error(2)));
}
