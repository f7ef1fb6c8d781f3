//! What the tests share: the subject, works for backends to execute, and looks at host memory.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::trusted::Trusted;
use accelrt::backend::contract::{Address, DoneCallback, Leftover, Mark, StreamHandle, Turn, Work};

/// Far beyond what any test takes: only a hang lasts as long.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A backend under test, with what only code that knows its kind can do.
pub(crate) trait Subject {
    /// The backend: the same one at every call.
    fn backend(&self) -> Trusted;

    /// A look at memory from `allocate_host`; `None` where addresses are no pointers.
    fn host_bytes(&self) -> Option<&dyn HostView>;

    /// Asserts that everything was given back, where the kind can tell. Called after a shutdown.
    fn assert_nothing_left(&self) {}
}

/// The host's access to memory from `allocate_host`, while no submitted work uses it.
pub(crate) trait HostView {
    fn read(&self, from: Address, into: &mut [u8]);
    fn write(&self, to: Address, bytes: &[u8]);
}

/// This process's memory by way of the kernel: a wrong address is an error, not undefined.
pub(crate) struct OwnMemory(File);

impl OwnMemory {
    pub(crate) fn open() -> Self {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem");
        Self(memory.expect("a process may read and write its own memory"))
    }
}

impl HostView for OwnMemory {
    fn read(&self, from: Address, into: &mut [u8]) {
        self.0.read_exact_at(into, from.0).expect("host memory is mapped and readable");
    }

    fn write(&self, to: Address, bytes: &[u8]) {
        self.0.write_all_at(bytes, to.0).expect("host memory is mapped and writable");
    }
}

/// The end of every test: the backend stops, and nothing is left.
pub(crate) fn finish(subject: &impl Subject) {
    assert_eq!(subject.backend().shutdown(far_deadline()), Leftover::default());
    subject.assert_nothing_left();
}

/// A deadline for what ends by itself.
pub(crate) fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

/// The index of every device of a backend.
pub(crate) fn devices(backend: &Trusted) -> std::ops::Range<usize> {
    0..backend.device_count().unwrap()
}

/// A stream of priority 0.
pub(crate) fn stream_on(backend: &Trusted, device_index: usize) -> StreamHandle {
    backend.stream_create(device_index, 0).unwrap()
}

/// Asks until the answer is yes. Ends because asking moves a device that moves only then, and any
/// other moves by itself.
pub(crate) fn ask_until(mut is_done: impl FnMut() -> bool) {
    while !is_done() {
        thread::yield_now();
    }
}

/// Places a mark and waits until it is reached.
pub(crate) fn settle(backend: &Trusted, stream: StreamHandle) {
    let mark = backend.mark(stream, false).unwrap();
    backend.wait_mark(mark).unwrap();
    backend.mark_release(mark).unwrap();
}

/// Work that calls a function and is done.
struct Once<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> Work for Once<F> {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        let function = self.0.lock().unwrap().take();
        function.expect("work that was submitted once runs once")();
    }
}

/// Work that calls a function; a second run of it panics.
pub(crate) fn once(function: impl FnOnce() + Send + 'static) -> Arc<dyn Work> {
    Arc::new(Once(Mutex::new(Some(function))))
}

/// Has a function executed as a task of a stream; what it returns, or nothing when it was dropped.
pub(crate) fn submit_once<R: Send + 'static>(
    backend: &Trusted,
    stream: StreamHandle,
    function: impl FnOnce() -> R + Send + 'static,
) -> Receiver<R> {
    let (sender, receiver) = mpsc::channel();
    // The receiver may have lost interest.
    backend.submit(stream, once(move || drop(sender.send(function()))));
    receiver
}

/// As [`submit_once`], by way of `resume`.
pub(crate) fn resume_once<R: Send + 'static>(
    backend: &Trusted,
    stream: StreamHandle,
    function: impl FnOnce() -> R + Send + 'static,
) -> Receiver<R> {
    let (sender, receiver) = mpsc::channel();
    backend.resume(stream, once(move || drop(sender.send(function()))));
    receiver
}

/// Executes a task on a stream and waits for the task, not for what it submitted.
pub(crate) fn on_stream<R: Send + 'static>(
    backend: &Trusted,
    stream: StreamHandle,
    task: impl FnOnce(&Trusted, StreamHandle) -> R + Send + 'static,
) -> R {
    let inside = backend.clone();
    let answer = submit_once(backend, stream, move || task(&inside, stream));
    answer.recv().expect("a task of a running backend is executed")
}

type Task = Box<dyn FnOnce() + Send>;

/// A stream's work as the engine has it: one object a stream, scheduled when it becomes runnable,
/// executed by one thread at a time, scheduled again when it yields.
pub(crate) struct Actor {
    backend: Trusted,
    stream: StreamHandle,
    state: Mutex<ActorState>,
}

#[derive(Default)]
struct ActorState {
    tasks: VecDeque<Task>,
    is_scheduled: bool,
}

/// Tasks in one turn while others wait.
const BATCH_TASKS: usize = 16;

impl Actor {
    pub(crate) fn new(backend: &Trusted, stream: StreamHandle) -> Arc<Self> {
        let state = Mutex::new(ActorState::default());
        Arc::new(Self { backend: backend.clone(), stream, state })
    }

    pub(crate) fn enqueue(self: &Arc<Self>, task: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().unwrap();
        state.tasks.push_back(Box::new(task));
        let was_scheduled = std::mem::replace(&mut state.is_scheduled, true);
        drop(state);
        if !was_scheduled {
            self.backend.submit(self.stream, Arc::<Self>::clone(self));
        }
    }

    /// The next task; without one the actor is idle from now on.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock().unwrap();
        let task = state.tasks.pop_front();
        state.is_scheduled = task.is_some();
        task
    }
}

impl Work for Actor {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        let mut executed = 0;
        while let Some(task) = self.next() {
            task();
            executed += 1;
            if turn.must_yield() || (turn.others_wait() && executed >= BATCH_TASKS) {
                let backend = self.backend.clone();
                return backend.resume(self.stream, self);
            }
        }
    }
}

/// A callback that sends a number when it is called.
pub(crate) fn callback(sender: &mpsc::Sender<usize>, number: usize) -> DoneCallback {
    let sender = sender.clone();
    Box::new(move || sender.send(number).expect("the test waits for every callback"))
}

/// Everything that was sent, after the last sender is gone: a callback that never goes hangs here.
pub(crate) fn all_sent<T>(sender: mpsc::Sender<T>, receiver: Receiver<T>) -> Vec<T> {
    drop(sender);
    receiver.into_iter().collect()
}

pub(crate) fn release_marks(backend: &Trusted, marks: impl IntoIterator<Item = Mark>) {
    for mark in marks {
        backend.mark_release(mark).unwrap();
    }
}

pub(crate) fn destroy_streams(backend: &Trusted, streams: impl IntoIterator<Item = StreamHandle>) {
    for stream in streams {
        backend.stream_destroy(stream).unwrap();
    }
}

/// Memory from `allocate_host`, given back at the end, and looked at where the subject can.
pub(crate) struct HostMemory<'a> {
    backend: Trusted,
    view: Option<&'a dyn HostView>,
    pub(crate) address: Address,
    bytes: usize,
}

impl<'a> HostMemory<'a> {
    pub(crate) fn new(subject: &'a impl Subject, bytes: usize) -> Self {
        let backend = subject.backend();
        let address = backend.allocate_host(bytes, 1).unwrap();
        Self { backend, view: subject.host_bytes(), address, bytes }
    }

    /// Host memory that holds these bytes, where the subject can write.
    pub(crate) fn with(subject: &'a impl Subject, bytes: &[u8]) -> Self {
        let memory = Self::new(subject, bytes.len());
        if let Some(view) = memory.view {
            view.write(memory.address, bytes);
        }
        memory
    }

    /// Asserts that the memory holds these bytes, where the subject can read.
    pub(crate) fn assert_holds(&self, expected: &[u8]) {
        assert_eq!(expected.len(), self.bytes, "a test compares all of a host memory");
        let Some(view) = self.view else { return };
        let mut found = vec![0; self.bytes];
        view.read(self.address, &mut found);
        let different = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(different, None, "the first place with another byte, of {}", self.bytes);
    }
}

impl Drop for HostMemory<'_> {
    fn drop(&mut self) {
        let released = self.backend.release_host(self.address);
        assert!(thread::panicking() || released.is_ok(), "{released:?}");
    }
}
