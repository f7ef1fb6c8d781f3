//! Loom models of the queue: producers' order, one execution per command, and no leaked segment.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use crate::base::sync::models::{model, model_without_fences};
use crate::queue::{Class, Command, CommandContext, Head, Receiver, Sender, channel};

/// The producer and number of each command that the consumer ran.
type Seen = Vec<(u8, u8)>;

impl CommandContext for Seen {
    type Operation = ();
    type Details = ();

    fn begin(&mut self, (): ()) {}
}

/// A command with its producer and its number. The `Arc` lets loom report a leaked command.
struct Item(u8, u8, #[expect(dead_code, reason = "its leak is what loom looks for")] Arc<()>);

impl Command<Seen> for Item {
    const CLASS: Class = Class::Internal;
    const OPERATION: () = ();

    fn run(self, seen: &mut Seen) {
        seen.push((self.0, self.1));
    }
}

/// A queue whose sender several threads can share.
fn queue() -> (Arc<Sender<Seen>>, Receiver<Seen>) {
    let (sender, receiver) = channel();
    (Arc::new(sender), receiver)
}

fn push(sender: &Sender<Seen>, producer: u8, number: u8) {
    sender.push(Item(producer, number, Arc::new(())));
}

/// Starts a thread that pushes the commands 0 to `count - 1` of a producer.
fn spawn_producer(sender: &Arc<Sender<Seen>>, producer: u8, count: u8) -> JoinHandle<()> {
    let sender = Arc::clone(sender);
    thread::spawn(move || (0..count).for_each(|number| push(&sender, producer, number)))
}

/// Executes `count` commands, and yields while no command is published.
fn consume(receiver: &mut Receiver<Seen>, count: usize) -> Seen {
    let mut seen = Seen::new();
    while seen.len() < count {
        match receiver.head() {
            Head::Ready(entry) => entry.run(&mut seen),
            Head::Empty | Head::Unpublished => thread::yield_now(),
        }
    }
    seen
}

fn assert_in_order(seen: &Seen, producer: u8, count: u8) {
    let own: Vec<u8> = seen.iter().filter(|item| item.0 == producer).map(|item| item.1).collect();
    assert_eq!(own, (0..count).collect::<Vec<_>>(), "producer {producer} in {seen:?}");
}

/// Goal: each producer's commands stay in order over a segment boundary. Method: two producers push
/// past the first boundary while the consumer drains.
#[test]
fn loom_two_producers_keep_their_order_over_a_boundary() {
    model(Some(3), || {
        let (sender, mut receiver) = queue();
        let other = spawn_producer(&sender, 1, 2);
        (0..2).for_each(|n| push(&sender, 0, n));
        let seen = consume(&mut receiver, 4);
        other.join().unwrap();
        assert_in_order(&seen, 0, 2);
        assert_in_order(&seen, 1, 2);
        assert!(receiver.is_empty());
    });
}

/// Goal: no segment is reused while a producer can reach it. Method: one producer pushes over a
/// boundary while the consumer retires the segment before it and another producer installs late.
#[test]
fn loom_a_reachable_segment_is_not_reused() {
    model(Some(2), || {
        let (sender, mut receiver) = queue();
        (0..2).for_each(|n| push(&sender, 0, n));
        let other = spawn_producer(&sender, 1, 1);
        let consumer = thread::spawn(move || {
            let seen = consume(&mut receiver, 4);
            (seen, receiver)
        });
        push(&sender, 0, 2);
        other.join().unwrap();
        let (seen, receiver) = consumer.join().unwrap();
        assert_in_order(&seen, 0, 3);
        assert_in_order(&seen, 1, 1);
        assert!(receiver.is_empty());
    });
}

/// Goal: the queue drops a command that was never consumed exactly once. Method: the test drops
/// both ends while two segments contain commands. loom reports leaks.
#[test]
fn loom_remaining_commands_are_dropped_with_the_queue() {
    model(Some(3), || {
        let (sender, mut receiver) = queue();
        let other = spawn_producer(&sender, 1, 1);
        (0..3).for_each(|n| push(&sender, 0, n));
        let seen = consume(&mut receiver, 1);
        drop(receiver);
        other.join().unwrap();
        assert_eq!(seen.len(), 1);
    });
}

/// Goal: a thread that counts queued commands reads no reclaimed segment. Method: the count runs
/// while the consumer leaves two segments and a producer reuses one of them. loom reports a
/// reclamation that is not ordered after the count.
#[test]
fn loom_a_counted_segment_is_not_reclaimed() {
    model(Some(3), || {
        let (sender, mut receiver) = queue();
        (0..4).for_each(|n| push(&sender, 0, n));
        let counter = {
            let sender = Arc::clone(&sender);
            thread::spawn(move || sender.users_behind(0))
        };
        let seen = consume(&mut receiver, 4);
        push(&sender, 0, 4);
        assert!(counter.join().unwrap() <= 5, "never more than were pushed");
        assert_in_order(&seen, 0, 4);
        assert_eq!(sender.users_behind(4), 0, "the one that is left is the runtime's own");
    });
}

/// Goal: `take_ticket` leaves the order of commands and tickets intact. Method: the consumer tries
/// to take a ticket while a producer pushes over a segment boundary. loom reports a lost command
/// and a slot with two owners.
#[test]
fn loom_a_consumer_takes_tickets_between_commands() {
    model(Some(3), || {
        let (sender, mut receiver) = queue();
        assert_eq!(receiver.take_ticket(), None, "there is no segment yet");
        push(&sender, 0, 0);
        assert_eq!(receiver.take_ticket(), None, "a command is queued");
        let mut seen = consume(&mut receiver, 1);
        let other = spawn_producer(&sender, 1, 2);
        let taken = u64::from(receiver.take_ticket().is_some());
        seen.extend(consume(&mut receiver, 2));
        other.join().unwrap();
        assert_in_order(&seen, 0, 1);
        assert_in_order(&seen, 1, 2);
        assert!(receiver.is_empty());
        assert_eq!((receiver.consumed(), sender.pushed()), (3 + taken, 3 + taken));
    });
}

/// Goal: producers that meet at a segment boundary push into one linked segment and see its initial
/// state. Method: without fences; no thread consumes before both have pushed.
#[test]
fn loom_two_producers_meet_at_a_boundary() {
    model_without_fences(Some(3), || {
        let (sender, mut receiver) = queue();
        let other = spawn_producer(&sender, 1, 2);
        (0..2).for_each(|n| push(&sender, 0, n));
        other.join().unwrap();
        let seen = consume(&mut receiver, 4);
        assert_in_order(&seen, 0, 2);
        assert_in_order(&seen, 1, 2);
    });
}

/// Goal: a segment that the consumer left early is not reused while its successor is installed, and
/// the producers see the successor's initial state. Method: without fences; two producers install,
/// and the consumer may follow the link before `segment` is swung.
#[test]
fn loom_a_consumer_follows_a_link_before_the_swing() {
    model_without_fences(Some(2), || {
        let (sender, mut receiver) = queue();
        (0..2).for_each(|n| push(&sender, 0, n));
        let mut seen = consume(&mut receiver, 2);
        let consumer = thread::spawn(move || {
            let _ = receiver.head(); // leaves the first segment if a second one is linked
            receiver
        });
        let other = spawn_producer(&sender, 1, 1);
        push(&sender, 0, 2);
        other.join().unwrap();
        seen.extend(consume(&mut consumer.join().unwrap(), 2));
        assert_in_order(&seen, 0, 3);
        assert_in_order(&seen, 1, 1);
    });
}

/// Goal: the consumer sees pushed commands and linked segments, and the producer sees the cleared
/// links of a spare segment. Method: without fences; one producer pushes over two segment
/// boundaries while the consumer follows.
#[test]
fn loom_a_consumer_follows_a_producer_over_boundaries() {
    model_without_fences(Some(1), || {
        let (sender, mut receiver) = queue();
        let producer = spawn_producer(&sender, 0, 5);
        let seen = consume(&mut receiver, 5);
        assert_in_order(&seen, 0, 5);
        producer.join().unwrap();
    });
}
