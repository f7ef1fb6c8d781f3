//! Tests of frontiers and histories: against vector clocks, and their sizes.

use super::*;
use crate::numbers::Numbers;
use crate::seed::seed;

fn stream(key: u64) -> (Arc<Progress>, Arc<History>) {
    let progress = Progress::new(key, true);
    (Arc::clone(&progress), History::new(progress))
}

fn point(progress: &Arc<Progress>, ticket: u64) -> Point {
    Point { progress: Arc::clone(progress), ticket }
}

fn orders(history: &History, ticket: u64, before: &Point) -> bool {
    history.at(ticket).is_some_and(|frontier| frontier.dominates(before))
}

#[test]
fn a_join_holds_from_its_wait_on_and_is_transitive() {
    let (a, a_history) = stream(1);
    let (b, b_history) = stream(2);
    let (c, c_history) = stream(3);
    b_history.join(5, &point(&a, 3), a_history.at(3).as_deref());
    c_history.join(2, &point(&b, 6), b_history.at(6).as_deref());
    assert!(orders(&c_history, 2, &point(&b, 6)));
    assert!(orders(&c_history, 9, &point(&a, 3)), "through b");
    assert!(!orders(&c_history, 1, &point(&a, 3)), "before the wait");
    assert!(!orders(&c_history, 9, &point(&a, 4)));
    assert!(!orders(&c_history, 9, &point(&c, 1)), "a stream is not in its own frontier");
}

#[test]
fn a_record_before_the_wait_does_not_carry_its_join() {
    let (a, _) = stream(1);
    let (b, b_history) = stream(2);
    let (_, c_history) = stream(3);
    b_history.join(5, &point(&a, 3), None);
    c_history.join(1, &point(&b, 4), b_history.at(4).as_deref());
    assert!(!orders(&c_history, 1, &point(&a, 3)), "b's record 4 is before b's wait 5");
}

#[test]
fn out_of_order_join_updates_later_versions() {
    let (a, _) = stream(1);
    let (b, _) = stream(2);
    let (_, history) = stream(3);
    history.join(7, &point(&a, 1), None);
    history.join(4, &point(&b, 1), None);
    assert!(orders(&history, 4, &point(&b, 1)) && !orders(&history, 4, &point(&a, 1)));
    assert!(orders(&history, 7, &point(&b, 1)) && orders(&history, 7, &point(&a, 1)));
}

#[test]
fn streams_before_includes_adjacent_waits() {
    let [a, b, c] = [1, 2, 3].map(|key| stream(key).0);
    let (_, history) = stream(4);
    let before = |ticket| {
        let mut keys = history.streams_before(ticket);
        keys.sort_unstable();
        keys
    };
    assert!(before(9).is_empty());
    for (ticket, source, until) in [(5, &a, 7), (6, &b, 1), (7, &a, 8), (9, &c, 1)] {
        history.join(ticket, &point(source, until), None);
    }
    let pending = [4, 5, 6, 8, 9, 20].map(before);
    let expected: [&[u64]; 6] = [&[], &[1], &[1, 2], &[1, 2], &[1, 2, 3], &[1, 2, 3]];
    assert_eq!(pending, expected);
    b.retire(1);
    assert_eq!(before(6), [1]);
}

#[test]
fn streams_before_follows_later_joins() {
    let [(_, a), (b, b_history), (c, c_history)] = [1, 2, 3].map(stream);
    let (d, _) = stream(4);
    a.join(5, &point(&b, 7), None);
    c_history.join(2, &point(&d, 1), None);
    b_history.join(6, &point(&c, 3), None);
    b_history.join(9, &point(&d, 5), None);
    let mut before = a.streams_before(5);
    before.sort_unstable();
    assert_eq!(before, [2, 3, 4], "by b's wait 6 and c's wait 2");
    assert_eq!(b_history.streams_before(5), [0_u64; 0]);
}

#[test]
fn done_points_are_pruned_at_the_next_join() {
    let (a, _) = stream(1);
    let (b, _) = stream(2);
    let (own, history) = stream(3);
    for ticket in 1..=100 {
        history.join(ticket, &point(&a, ticket), None);
        own.retire(ticket);
    }
    assert!(history.versions.lock().len() <= 3);
    a.retire(100);
    history.join(101, &point(&b, 1), None);
    let latest = history.latest().unwrap();
    assert_eq!(latest.0.len(), 1, "a's points are done: {latest:?}");
}

#[test]
fn dropped_streams_are_left_out_of_a_frontier() {
    let (_, history) = stream(1);
    for key in 2..200 {
        // No thread polls a dropped stream of a driver, so its point never counts as done.
        let gone = Progress::new(key, false);
        history.join(key, &point(&gone, 1), None);
        gone.end();
    }
    let there = [1000, 1001].map(|key| Progress::new(key, false));
    for (ticket, there) in (300..).zip(&there) {
        history.join(ticket, &point(there, 1), None);
    }
    let latest = history.latest().unwrap();
    assert_eq!(latest.0.len(), 2, "{latest:?}");
    assert!(there.iter().all(|there| orders(&history, 400, &point(there, 1))));
}

#[test]
fn the_subscriptions_of_a_stream_do_not_grow() {
    // Each round subscribes one queue again and a new queue, which the end of the round drops.
    let streams = [1, 2].map(|key| Progress::new(key, true));
    let ended = Arc::new(Ended::new());
    for _ in 0..1000 {
        let gone = Arc::new(Ended::new());
        for progress in &streams {
            progress.subscribe(&ended, 7);
            progress.subscribe(&gone, 7);
        }
    }
    for progress in &streams {
        assert!(progress.targets.lock().capacity() <= 16);
        progress.finish();
        assert_eq!((ended.pop(), ended.pop()), (Some(7), None));
        assert!(progress.targets.lock().is_empty());
    }
}

#[test]
fn finish_notifies_every_subscription() {
    let progress = Progress::new(1, true);
    let ended = [Arc::new(Ended::new()), Arc::new(Ended::new())];
    for number in 0..100 {
        for ended in &ended {
            progress.subscribe(ended, number);
        }
    }
    progress.finish();
    for ended in ended {
        let mut told: Vec<u32> = std::iter::from_fn(|| ended.pop()).collect();
        told.sort_unstable();
        assert_eq!(told, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn histories_agree_with_whole_vector_clocks() {
    // Goal: a frontier has exactly the points before its task: from the wait on, transitively, the
    // last of each stream. Method: five streams with random records and waits, often adjacent; the
    // model copies whole clocks. Each ticket is compared, at the last point before it and behind
    // that. Between adjacent waits there is no record, so no frontier is asked for there.
    let mut random = Numbers::new(seed());
    for _ in 0..60 {
        let streams: Vec<_> = (1..6).map(stream).collect();
        // Of each stream the clocks behind its waits, by ticket, and the tickets of its records.
        let mut clocks = vec![vec![(0, [0_u64; 5])]; 5];
        let mut records = vec![Vec::new(); 5];
        let mut tickets = [0_u64; 5];
        for _ in 0..40 {
            let [own, other] = [0; 2].map(|_| random.below(5));
            tickets[own] += 1;
            if own == other || records[other].is_empty() {
                records[own].push(tickets[own]);
                continue;
            }
            let until = records[other][random.below(records[other].len())];
            let before = streams[other].1.at(until);
            let joined = point(&streams[other].0, until);
            streams[own].1.join(tickets[own], &joined, before.as_deref());
            let mut clock = clock_at(&clocks[other], until);
            clock[other] = until;
            let known = clock_at(&clocks[own], u64::MAX);
            (0..5).for_each(|it| clock[it] = clock[it].max(known[it]));
            clock[own] = 0; // a stream is not in its own frontier
            clocks[own].push((tickets[own], clock));
        }
        for (own, clocks) in clocks.iter().enumerate() {
            let is_wait = |ticket| clocks.iter().any(|(wait, _)| *wait == ticket);
            let asked = (1..tickets[own] + 2).filter(|it| !is_wait(*it) || !is_wait(it + 1));
            for ticket in asked {
                let clock = clock_at(clocks, ticket);
                for (other, (progress, _)) in streams.iter().enumerate() {
                    let orders = |last| orders(&streams[own].1, ticket, &point(progress, last));
                    let last = clock[other];
                    assert!(last == 0 || orders(last), "{last} of {other}, {ticket} of {own}");
                    assert!(!orders(last + 1), "{last} of {other}, {ticket} of {own}");
                }
            }
        }
    }
}

/// The clock of a stream's task `ticket`: that of the last wait up to it.
fn clock_at(clocks: &[(u64, [u64; 5])], ticket: u64) -> [u64; 5] {
    clocks.iter().rev().find(|(wait, _)| *wait <= ticket).expect("the first").1
}

#[test]
fn a_full_frontier_has_its_limit_of_points() {
    // Goal: up to the limit no point is left out; above it the last joined point is kept.
    for count in [1, MAX_POINTS - 1, MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS] {
        let (_, history) = stream(1);
        let others: Vec<_> = (0..count).map(|key| stream(key as u64 + 2).0).collect();
        for (ticket, other) in (1..).zip(&others) {
            history.join(ticket, &point(other, 1), None);
            assert!(orders(&history, ticket, &point(other, 1)), "{ticket} of {count}");
        }
        let last = history.latest().unwrap();
        let known = others.iter().filter(|other| last.dominates(&point(other, 1))).count();
        assert_eq!(known, count.min(MAX_POINTS));
    }
}
