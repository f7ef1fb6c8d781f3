//! What the tests share: the subject, works for backends to execute, and looks at host memory.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use accelrt::backend::contract::{
    Address, Backend, DoneCallback, Leftover, Mark, StreamHandle, Turn, Work,
};
use accelrt::internal::{LockRank, Mutex};

use crate::trusted::Trusted;

/// A backend under test. Each test has a fresh one, which it shuts down at its end.
///
/// The kit reads no device memory: contents go through copies to memory of
/// [`Backend::allocate_host`], which it reads by the addresses. Where
/// [`Backend::has_host_addresses`] is false the same calls are made and no contents are compared.
pub struct Subject {
    backend: Arc<dyn Backend>,
    host: Option<ProcessMemory>,
    end_check: Option<Box<dyn Fn()>>,
}

impl Subject {
    /// A subject with nothing to check at the end of a test beyond what the contract tells.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let host = backend.has_host_addresses().then(ProcessMemory::open);
        Self { backend, host, end_check: None }
    }

    /// Adds a check behind the shutdown at the end of each test. It panics when something was not
    /// given back: a driver that counts what it handed out knows more than the contract tells.
    #[must_use]
    pub fn with_end_check(mut self, check: impl Fn() + 'static) -> Self {
        self.end_check = Some(Box::new(check));
        self
    }

    /// The backend: the same one at every call.
    pub(crate) fn backend(&self) -> Trusted {
        Trusted(Arc::clone(&self.backend))
    }

    /// Host memory as the host sees it; `None` where addresses are no pointers.
    pub(crate) fn host_bytes(&self) -> Option<&ProcessMemory> {
        self.host.as_ref()
    }

    /// The end of every test: the backend stops, and nothing is left.
    pub(crate) fn finish(&self) {
        assert_eq!(self.backend.shutdown(far_deadline()), Leftover::default());
        if let Some(check) = &self.end_check {
            check();
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl From<Arc<dyn Backend>> for Subject {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self::new(backend)
    }
}

impl<B: Backend + 'static> From<Arc<B>> for Subject {
    fn from(backend: Arc<B>) -> Self {
        Self::new(backend)
    }
}

/// This process's memory by way of the kernel: a wrong address is an error, not undefined.
pub(crate) struct ProcessMemory(File);

impl ProcessMemory {
    fn open() -> Self {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem");
        Self(memory.expect("a process may read and write its own memory"))
    }

    /// Reads memory from `allocate_host`, while no submitted work uses it.
    pub(crate) fn read(&self, from: Address, into: &mut [u8]) {
        self.0.read_exact_at(into, from.0).expect("host memory is mapped and readable");
    }

    /// Writes memory from `allocate_host`, while no submitted work uses it.
    pub(crate) fn write(&self, to: Address, bytes: &[u8]) {
        self.0.write_all_at(bytes, to.0).expect("host memory is mapped and writable");
    }
}

/// So many bytes that tell where they belong; another `salt` makes others. 251 is prime: no size
/// of a page or a line repeats the pattern.
pub(crate) fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    let byte = |place: usize| u8::try_from((place * 7 + salt * 31) % 251).unwrap();
    let period: Vec<u8> = (0..251).map(byte).collect();
    let mut pattern = period.repeat(bytes.div_ceil(period.len()));
    pattern.truncate(bytes);
    pattern
}

/// A deadline for what ends by itself.
pub(crate) fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

/// Threads that go on together, once.
pub(crate) struct Meeting {
    arrived: AtomicUsize,
    expected: usize,
}

impl Meeting {
    pub(crate) fn of(threads: usize) -> Self {
        Self { arrived: AtomicUsize::new(0), expected: threads }
    }

    /// Waits for the others.
    pub(crate) fn wait(&self) {
        // AcqRel, Acquire: the two pair; what a thread did before it arrived is seen behind.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        ask_until(|| self.arrived.load(Ordering::Acquire) >= self.expected);
    }
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
        let function = self.0.lock().take();
        function.expect("work that was submitted once runs once")();
    }
}

/// Work that calls a function; a second run of it panics.
pub(crate) fn once(function: impl FnOnce() + Send + 'static) -> Arc<dyn Work> {
    Arc::new(Once(Mutex::new(LockRank::Backend, Some(function))))
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
        let state = Mutex::new(LockRank::Backend, ActorState::default());
        Arc::new(Self { backend: backend.clone(), stream, state })
    }

    pub(crate) fn enqueue(self: &Arc<Self>, task: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.tasks.push_back(Box::new(task));
        let was_scheduled = std::mem::replace(&mut state.is_scheduled, true);
        drop(state);
        if !was_scheduled {
            self.backend.submit(self.stream, Arc::<Self>::clone(self));
        }
    }

    /// The next task; without one the actor is idle from now on.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
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
    view: Option<&'a ProcessMemory>,
    pub(crate) address: Address,
    bytes: usize,
}

impl<'a> HostMemory<'a> {
    pub(crate) fn new(subject: &'a Subject, bytes: usize) -> Self {
        let backend = subject.backend();
        let address = backend.allocate_host(bytes, 1).unwrap();
        Self { backend, view: subject.host_bytes(), address, bytes }
    }

    /// Host memory that holds these bytes, where the subject can write.
    pub(crate) fn with(subject: &'a Subject, bytes: &[u8]) -> Self {
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
        if found == expected {
            return;
        }
        let different = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(different, None, "the first place with another byte, of {}", self.bytes);
    }
}

impl Drop for HostMemory<'_> {
    fn drop(&mut self) {
        // A device that broke its word may still use the memory of a test that failed.
        if !thread::panicking() {
            self.backend.release_host(self.address).unwrap();
        }
    }
}
