//! Immediate subscriptions: functions that are told on the thread of an event, before it goes on.
//!
//! A buffered subscription takes its records later. Some subscribers have to act at once: one of a
//! shortage may free memory, and the line about a task stands before that of the next. They belong
//! to the source of the events, the tasks of a runtime or an allocator, and end with it.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::unmodelled::{AtomicU64, AtomicUsize};
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held};

type Subscriber<E, A> = Arc<dyn Fn(&E) -> A + Send + Sync>;

/// The immediate subscriptions to the events `E` of one source, with their ids. Subscribers answer
/// with an `A`.
pub(crate) struct Immediate<E, A = ()> {
    subscribers: Mutex<Vec<(u64, Subscriber<E, A>)>>,
    /// The number of subscribers, which sources read without the lock.
    count: AtomicUsize,
}

impl<E, A> Immediate<E, A> {
    pub(crate) fn new() -> Self {
        Self { subscribers: Mutex::new(LockRank::Log, Vec::new()), count: AtomicUsize::new(0) }
    }

    /// Returns an id that no other subscription of this process has.
    pub(crate) fn subscribe(&self, subscriber: impl Fn(&E) -> A + Send + Sync + 'static) -> u64 {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed); // only uniqueness matters
        self.change(|subscribers| subscribers.push((id, Arc::new(subscriber))));
        id
    }

    /// Ends a subscription to this source; other ids have no effect. A thread that is told at this
    /// moment drops the function when it has returned.
    pub(crate) fn unsubscribe(&self, id: u64) {
        let ended: Vec<_> =
            self.change(|subscribers| subscribers.extract_if(.., |(own, _)| *own == id).collect());
        drop(ended); // after the lock: the drops run user code
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<(u64, Subscriber<E, A>)>) -> R) -> R {
        let mut subscribers = self.subscribers.lock();
        let changed = change(&mut subscribers);
        // Relaxed: an event that races with this call may be told of or not.
        self.count.store(subscribers.len(), Ordering::Relaxed);
        changed
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 // as in `change`
    }

    /// Calls subscribers, in the order of their subscriptions, until the answer of one is enough.
    /// Holds no lock meanwhile, so that a subscriber may subscribe and unsubscribe.
    pub(crate) fn ask(&self, event: &E, is_enough: impl Fn(A) -> bool) -> bool {
        if !self.has_any() {
            return false;
        }
        let subscribers = self.subscribers.lock().clone();
        assert_no_lock_held();
        subscribers.iter().any(|(_, subscriber)| is_enough(subscriber(event)))
    }
}

impl<E> Immediate<E> {
    /// Calls each subscriber, as [`Immediate::ask`].
    pub(crate) fn tell(&self, event: &E) {
        self.ask(event, |()| false);
    }
}

impl<E, A> fmt::Debug for Immediate<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} subscribers", self.subscribers.lock().len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;

    /// Says when a subscriber's function is dropped, and asks for a lock then.
    struct Dropped(Arc<Immediate<u32>>, Sender<&'static str>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            assert_no_lock_held();
            self.0.unsubscribe(0);
            self.1.send("dropped").unwrap();
        }
    }

    #[test]
    fn subscribers_are_told_in_their_order_until_they_end_and_may_end_themselves() {
        let source = Arc::new(Immediate::<u32>::new());
        let (tell, told) = channel();
        let (own, again, other) = (Arc::clone(&source), tell.clone(), tell.clone());
        let (id_of_first, first_id) = channel();
        let first_id = std::sync::Mutex::new(first_id);
        let first = source.subscribe(move |event| {
            again.send(("first", *event)).unwrap();
            own.unsubscribe(first_id.lock().unwrap().recv().unwrap());
        });
        id_of_first.send(first).unwrap();
        let second = source.subscribe(move |event| other.send(("second", *event)).unwrap());
        assert!(source.has_any());
        source.tell(&1);
        source.tell(&2);
        source.unsubscribe(second);
        source.tell(&3);
        assert!(!source.has_any());
        drop(tell);
        let told: Vec<_> = told.try_iter().collect();
        assert_eq!(told, [("first", 1), ("second", 1), ("second", 2)]);
    }

    #[test]
    fn what_a_subscriber_owned_is_dropped_without_a_lock() {
        let source = Arc::new(Immediate::<u32>::new());
        let (say, said) = channel();
        let own = Dropped(Arc::clone(&source), say);
        let id = source.subscribe(move |_| own.1.send("told").unwrap());
        source.unsubscribe(id);
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["dropped"]);
    }

    #[test]
    fn a_subscription_ends_while_another_thread_is_told_and_that_thread_drops_it() {
        let source = Arc::new(Immediate::<u32>::new());
        let ((say, said), (open, gate)) = (channel(), channel::<()>());
        let (gate, own) = (std::sync::Mutex::new(gate), Dropped(Arc::clone(&source), say.clone()));
        let id = source.subscribe(move |_| {
            own.1.send("told").unwrap();
            gate.lock().unwrap().recv().unwrap();
        });
        let telling = Arc::clone(&source);
        let thread = thread::spawn(move || telling.tell(&1));
        assert_eq!(said.recv(), Ok("told"));
        source.unsubscribe(id);
        say.send("ended").unwrap();
        open.send(()).unwrap();
        thread.join().unwrap();
        source.tell(&2);
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["ended", "dropped"]);
    }
}
