//! Tests of the queue as a whole, without loom: tickets, counts, order, dropped commands.

use std::sync::Arc;
use std::thread;

use crate::queue::{Class, Command, CommandContext, Head, Receiver, SLOTS, channel};

type Seen = Vec<(usize, usize)>;

impl CommandContext for Seen {
    type Operation = ();
    type Details = ();

    fn begin(&mut self, (): ()) {}
}

struct Item(usize, usize, Arc<()>);

impl Command<Seen> for Item {
    const CLASS: Class = Class::Internal;
    const OPERATION: () = ();

    fn run(self, seen: &mut Seen) {
        drop(self.2);
        seen.push((self.0, self.1));
    }
}

fn drain(receiver: &mut Receiver<Seen>, seen: &mut Seen) {
    while let Head::Ready(entry) = receiver.head() {
        entry.run(seen);
    }
}

#[test]
fn tickets_count_commands_over_boundaries() {
    let alive = Arc::new(());
    let (sender, mut receiver) = channel();
    let mut seen = Seen::new();
    assert!(receiver.is_empty());
    assert!(matches!(receiver.head(), Head::Empty));
    for lap in 0..5 {
        for place in 0..SLOTS {
            let number = lap * SLOTS + place;
            let pushed = sender.push(Item(0, number, Arc::clone(&alive)));
            assert_eq!(pushed.ticket, number as u64 + 1);
            assert_eq!(pushed.place_in_segment == 0, place == 0);
        }
        if lap % 2 == 0 {
            drain(&mut receiver, &mut seen);
            assert!(receiver.is_empty());
            assert_eq!(receiver.consumed(), sender.pushed());
        }
    }
    assert_eq!(seen, (0..5 * SLOTS).map(|number| (0, number)).collect::<Vec<_>>());
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_segment_that_another_queue_has_used_publishes_nothing() {
    // Goal: what one queue has published in a segment is nothing to the next queue. Method: queues
    // use one segment and are dropped, so that the next one takes the segment from the pool; its
    // indices are the same. After each command the test looks at the slot behind it.
    let alive = Arc::new(());
    for _ in 0..100 {
        let (sender, mut receiver) = channel();
        for number in 0..SLOTS {
            sender.push(Item(0, number, Arc::clone(&alive)));
            let mut seen = Seen::new();
            drain(&mut receiver, &mut seen);
            assert_eq!(seen, [(0, number)]);
            assert!(!receiver.is_published());
        }
    }
    assert_eq!(Arc::strong_count(&alive), 1);
}

struct Users;

impl Command<Seen> for Users {
    const CLASS: Class = Class::User;
    const OPERATION: () = ();

    fn run(self, _: &mut Seen) {}
}

#[test]
fn users_commands_are_counted_behind_any_number_of_consumed_ones() {
    // Goal: `users_behind` counts the users' commands and not the runtime's own, over boundaries
    // and in reused segments. Method: every third command is a user's; after each consumed command,
    // the test compares the count with that rule.
    let alive = Arc::new(());
    let (sender, mut receiver) = channel();
    let mut seen = Seen::new();
    let users_below = |number: u64| number.div_ceil(3);
    for _ in 0..3 {
        let first = sender.pushed();
        for number in first..first + 2 * SLOTS as u64 + 7 {
            if number.is_multiple_of(3) {
                sender.push(Users);
            } else {
                sender.push(Item(0, 0, Arc::clone(&alive)));
            }
        }
        let end = sender.pushed();
        loop {
            let consumed = receiver.consumed();
            assert_eq!(sender.users_behind(consumed), users_below(end) - users_below(consumed));
            let Head::Ready(entry) = receiver.head() else { break };
            entry.run(&mut seen);
        }
    }
    assert_eq!(sender.users_behind(sender.pushed()), 0);
}

#[test]
fn an_entry_that_is_dropped_stays_at_the_head() {
    let (sender, mut receiver) = channel();
    sender.push(Item(3, 4, Arc::new(())));
    for _ in 0..3 {
        assert!(matches!(receiver.head(), Head::Ready(_)));
    }
    let mut seen = Seen::new();
    drain(&mut receiver, &mut seen);
    assert_eq!(seen, [(3, 4)]);
}

#[test]
fn a_backlog_is_dropped_with_the_queue() {
    for left in [0, 1, SLOTS - 1, SLOTS, SLOTS + 1, 10 * SLOTS] {
        for consumed in [0, left / 2, left] {
            let alive = Arc::new(());
            let (sender, mut receiver) = channel();
            for number in 0..left {
                sender.push(Item(0, number, Arc::clone(&alive)));
            }
            for _ in 0..consumed {
                let Head::Ready(entry) = receiver.head() else { panic!("{left} were pushed") };
                entry.discard();
            }
            drop(receiver);
            drop(sender);
            assert_eq!(Arc::strong_count(&alive), 1, "{consumed} of {left} consumed");
        }
    }
}

#[test]
fn a_push_after_the_receivers_drop_is_dropped_with_the_queue() {
    let alive = Arc::new(());
    let (sender, receiver) = channel();
    sender.push(Item(0, 0, Arc::clone(&alive)));
    drop(receiver);
    for number in 1..200 {
        sender.push(Item(0, number, Arc::clone(&alive)));
    }
    drop(sender);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn four_producers_keep_their_order_while_one_consumer_drains() {
    const EACH: usize = 20_000;
    let alive = Arc::new(());
    let (sender, mut receiver) = channel();
    let mut seen = Seen::new();
    thread::scope(|scope| {
        for producer in 0..4 {
            let (sender, alive) = (&sender, &alive);
            scope.spawn(move || {
                for number in 0..EACH {
                    sender.push(Item(producer, number, Arc::clone(alive)));
                }
            });
        }
        while seen.len() < 4 * EACH {
            drain(&mut receiver, &mut seen);
            thread::yield_now();
        }
    });
    for producer in 0..4 {
        let own = seen.iter().filter(|item| item.0 == producer).map(|item| item.1);
        assert!(own.eq(0..EACH), "the order of producer {producer} is broken");
    }
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn debug_output_shows_pushed_and_consumed() {
    let alive = Arc::new(());
    let (sender, mut receiver) = channel();
    for number in 0..3 {
        sender.push(Item(0, number, Arc::clone(&alive)));
    }
    let Head::Ready(first) = receiver.head() else { panic!("a command is there") };
    first.run(&mut Seen::new());
    assert_eq!(format!("{sender:?}"), "Sender { pushed: 3 }");
    assert_eq!(format!("{receiver:?}"), "Receiver { consumed: 1 }");
}
