//! Loom models of an event's life: its core is freed once, after everybody is done with it.

use loom::thread;

use crate::event::core::EventCore;
use crate::event::shared::{Pending, Shared};

fn event() -> Shared {
    Shared::new(EventCore::new(None, false))
}

fn begin(event: &Shared) -> Pending {
    event.begin(&mut event.latest.lock())
}

/// What a consumer does with a record.
fn pass(record: Pending) {
    record.complete(record.version);
}

/// Goal: whoever of two consumers and the last handle comes last frees the core. loom reports a
/// core that is not freed, and one that is freed while somebody still uses it.
#[test]
fn loom_the_core_is_freed_by_whoever_comes_last() {
    loom::model(|| {
        let event = event();
        let (first, second) = (begin(&event), begin(&event));
        let consumers = [first, second].map(|record| thread::spawn(move || pass(record)));
        drop(event);
        for consumer in consumers {
            consumer.join().unwrap();
        }
    });
}

/// Goal: a handle that begins another record while its clone is dropped keeps the core alive.
#[test]
fn loom_a_record_of_one_handle_outlives_the_drop_of_another() {
    loom::model(|| {
        let event = event();
        let clone = event.clone();
        let other = thread::spawn(move || pass(begin(&clone)));
        pass(begin(&event));
        drop(event);
        other.join().unwrap();
    });
}

/// Goal: a record that no queue had is not waited for, whoever is last. Method: a consumer's record
/// and the handles end beside it.
#[test]
fn loom_a_record_that_no_queue_had_holds_nothing_up() {
    loom::model(|| {
        let event = event();
        let (queued, clone) = (begin(&event), event.clone());
        let consumer = thread::spawn(move || pass(queued));
        let other = thread::spawn(move || {
            let version = clone.begin_direct(&mut clone.latest.lock());
            clone.complete(version);
        });
        drop(event);
        consumer.join().unwrap();
        other.join().unwrap();
    });
}
