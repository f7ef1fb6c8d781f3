//! Peers: channels of boxed closures, each with a thread that runs them, beside our stream.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use accelrt::Stream;

type Task = Box<dyn FnOnce() + Send>;

/// Runs closures in order on another thread. Ours and the peers are measured by the same code.
pub(crate) trait Lane: Sync {
    fn put(&self, task: impl FnOnce() + Send + 'static);

    /// Returns when everything that was put has run.
    fn finish(&self);
}

impl Lane for Stream {
    #[inline]
    fn put(&self, task: impl FnOnce() + Send + 'static) {
        self.enqueue(task).expect("the runtime runs");
    }

    #[inline]
    fn finish(&self) {
        self.synchronize().expect("no task fails");
    }
}

/// The sending half of a channel.
pub(crate) trait Sender: Sync {
    fn send(&self, task: Task);
}

impl Sender for mpsc::Sender<Task> {
    #[inline]
    fn send(&self, task: Task) {
        mpsc::Sender::send(self, task).expect("the consumer runs");
    }
}

impl Sender for crossbeam_channel::Sender<Task> {
    #[inline]
    fn send(&self, task: Task) {
        crossbeam_channel::Sender::send(self, task).expect("the consumer runs");
    }
}

/// An unbounded channel with its consumer.
pub(crate) struct Channel<S> {
    /// `None` when it is being dropped.
    sender: Option<S>,
    consumer: Option<JoinHandle<()>>,
}

impl Channel<mpsc::Sender<Task>> {
    pub(crate) fn of_std() -> Self {
        let (sender, receiver) = mpsc::channel::<Task>();
        Self::new(sender, move || receiver.into_iter().for_each(|task| task()))
    }
}

impl Channel<crossbeam_channel::Sender<Task>> {
    pub(crate) fn of_crossbeam() -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded::<Task>();
        Self::new(sender, move || receiver.into_iter().for_each(|task| task()))
    }
}

impl<S> Channel<S> {
    fn new(sender: S, consumer: impl FnOnce() + Send + 'static) -> Self {
        Self { sender: Some(sender), consumer: Some(thread::spawn(consumer)) }
    }
}

impl<S: Sender> Lane for Channel<S> {
    #[inline]
    fn put(&self, task: impl FnOnce() + Send + 'static) {
        self.sender.as_ref().expect("until the drop").send(Box::new(task));
    }

    fn finish(&self) {
        let (done, is_done) = mpsc::channel();
        self.put(move || done.send(()).expect("somebody waits"));
        is_done.recv().expect("the consumer runs");
    }
}

impl<S> Drop for Channel<S> {
    fn drop(&mut self) {
        drop(self.sender.take()); // ends the consumer
        if let Some(consumer) = self.consumer.take() {
            consumer.join().expect("no task panics");
        }
    }
}

/// A task that keeps its lane's consumer until it is opened.
pub(crate) struct Gate(mpsc::Sender<()>);

impl Gate {
    /// Returns when the consumer stands in it: what is put now stays where it is.
    pub(crate) fn shut(lane: &impl Lane) -> Self {
        let (entered, has_entered) = mpsc::channel();
        let (open, is_open) = mpsc::channel();
        lane.put(move || {
            entered.send(()).expect("somebody waits");
            is_open.recv().expect("a gate is opened");
        });
        has_entered.recv().expect("the consumer runs");
        Self(open)
    }

    pub(crate) fn open(self) {
        self.0.send(()).expect("the consumer waits");
    }
}
