//! Lanes: the tasks of one thread on one stream, counted, so that each sees whether it is the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::Stream;

/// What one stream has done of one thread's tasks.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Tasks that ran. Written by the stream's tasks alone, which run one at a time.
    ran: AtomicU64,
    /// Tasks that ran at another moment than their own.
    faults: AtomicU64,
}

/// A stream with its lane, as one producer has it.
pub(crate) struct Producer {
    pub(crate) stream: Stream,
    pub(crate) lane: Arc<Lane>,
    /// Tasks enqueued so far.
    pub(crate) enqueued: u64,
}

impl Lane {
    /// The `number`-th task of the stream runs now.
    #[inline]
    fn run(&self, number: u64) {
        // Relaxed: the stream orders its own tasks. Release: pairs with `published`.
        let before = self.ran.load(Ordering::Relaxed);
        self.check(before == number);
        self.ran.store(before + 1, Ordering::Release);
    }

    #[inline]
    fn check(&self, is_right: bool) {
        if !is_right {
            // Relaxed: a count.
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many tasks have run, as another stream sees it.
    pub(crate) fn published(&self) -> u64 {
        // Acquire: pairs with `run`.
        self.ran.load(Ordering::Acquire)
    }
}

impl Producer {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, lane: Arc::default(), enqueued: 0 }
    }

    /// Enqueues a task, which looks whether it is its turn.
    #[inline]
    pub(crate) fn enqueue(&mut self) {
        let (lane, number) = (Arc::clone(&self.lane), self.enqueued);
        self.enqueued += 1;
        self.stream.enqueue(move || lane.run(number)).expect("the runtime takes work");
    }

    /// Has this stream wait for another one, and a task behind the wait look that the other stream
    /// has run everything that was enqueued there before.
    pub(crate) fn wait_for(&mut self, other: &Self) {
        self.stream.wait_stream(&other.stream).expect("the runtime takes work");
        let (lane, number) = (Arc::clone(&self.lane), self.enqueued);
        let (awaited, least) = (Arc::clone(&other.lane), other.enqueued);
        self.enqueued += 1;
        let task = move || {
            lane.check(awaited.published() >= least);
            lane.run(number);
        };
        self.stream.enqueue(task).expect("the runtime takes work");
    }

    /// Waits for the stream, and asserts that every task ran once, in its turn.
    pub(crate) fn finish(&self) {
        self.stream.synchronize().expect("no task fails");
        assert_eq!(self.lane.published(), self.enqueued, "tasks that ran");
        // Relaxed: the synchronise came before.
        assert_eq!(self.lane.faults.load(Ordering::Relaxed), 0, "tasks that ran out of order");
    }
}

#[test]
fn a_task_out_of_its_turn_is_seen() {
    let runtime = crate::workers(1);
    let mut producer = Producer::new(runtime.stream(crate::CPU).unwrap());
    producer.enqueue();
    producer.enqueued = 2; // as if one task was lost
    producer.enqueue();
    producer.stream.synchronize().unwrap();
    assert_eq!(producer.lane.faults.load(Ordering::Relaxed), 1);
}
