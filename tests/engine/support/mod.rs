//! What the tests share.
//!
//! * [`thread`]: what the system says about a thread

pub(crate) mod thread;

use std::sync::mpsc::{self, Receiver, RecvError, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use accelrt::{Config, Device, Error, Event, Runtime, Stream, StreamError, StreamFailure};

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::steps::Steps;
use crate::watchdog::finishes_within;

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(20);

/// Runs a test that would hang if it failed; a hang is a failure then.
pub(crate) fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

pub(crate) const CPU: Device = Device::cpu(0);

/// A runtime with one cpu device and so many workers.
pub(crate) fn workers(count: usize) -> Runtime {
    devices(1, count)
}

/// A runtime with so many cpu devices and workers on each.
pub(crate) fn devices(count: usize, workers: usize) -> Runtime {
    let config = Config::builder().cpu_devices(count).cpu_threads(workers).build().unwrap();
    scheduled(Runtime::new(config).unwrap())
}

/// Streams that nobody else has.
pub(crate) fn streams(runtime: &Runtime, count: usize) -> Vec<Stream> {
    (0..count).map(|_| stream(runtime)).collect()
}

/// A stream that nobody else has, without a history.
pub(crate) fn stream(runtime: &Runtime) -> Stream {
    runtime.stream(CPU).unwrap()
}

/// Enqueues a task that fails with a text.
pub(crate) fn enqueue_failure(stream: &Stream, text: &'static str) {
    stream.enqueue(move || Err::<(), _>(text)).unwrap();
}

/// Where tasks write down that they ran.
#[derive(Clone, Debug)]
pub(crate) struct Journal<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone + Send + 'static> Journal<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn write(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    /// Enqueues a task that writes an entry.
    pub(crate) fn enqueue(&self, stream: &Stream, entry: T) {
        let journal = self.clone();
        stream.enqueue(move || journal.write(entry)).unwrap();
    }

    pub(crate) fn read(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Enqueues a task that tells when it ran, without any thread waiting for the stream: nobody helps.
pub(crate) fn enqueue_notice(stream: &Stream) -> Answer<()> {
    enqueue_question(stream, || ())
}

/// Enqueues a task whose answer arrives without any thread waiting for the stream: nobody helps.
pub(crate) fn enqueue_question<T: Send + 'static>(
    stream: &Stream,
    question: impl FnOnce() -> T + Send + 'static,
) -> Answer<T> {
    let (tell, told) = mpsc::channel();
    stream.enqueue(move || drop(tell.send(question()))).unwrap();
    Answer { told, steps: Steps::of(stream) }
}

/// What a task tells.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    told: Receiver<T>,
    steps: Steps,
}

impl<T> Answer<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        self.steps.receive(&self.told)
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.told.try_recv()
    }
}

/// Blocks, without helping, until a worker has done everything enqueued so far.
pub(crate) fn wait_without_helping(stream: &Stream) {
    enqueue_notice(stream).recv().expect("the task ran");
}

/// Waits until a record is passed, giving the processor away: no help, no sleep.
pub(crate) fn wait_by_query(event: &Event) {
    while !event.is_done() {
        std::thread::yield_now();
    }
}

/// The error of one stream inside a result.
#[track_caller]
pub(crate) fn stream_error(result: accelrt::Result<()>) -> Arc<StreamFailure> {
    match result {
        Err(Error::Stream(StreamError::Failed(error))) => error,
        other => panic!("expected the error of one stream, got {other:?}"),
    }
}

/// Adds one to a counter when it is dropped.
#[derive(Debug)]
pub(crate) struct CountDrop(pub(crate) Arc<std::sync::atomic::AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Puts every worker of a runtime with one device inside a gate, each on a stream of its own.
pub(crate) fn occupy_workers(runtime: &Runtime, count: usize) -> Vec<Gate> {
    let gate = |_| Gate::shut(&runtime.stream_with_priority(CPU, -1).unwrap());
    (0..count).map(gate).collect()
}
