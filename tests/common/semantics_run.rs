//! Programs of the semantics on the cpu device, with what each unit of memory holds beside them.
//!
//! Each task numbers its start and end; accesses write and compare numbers in the first word of
//! each unit.
#![expect(unsafe_code, reason = "tasks access memory by its address, as native code does")]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelrt::{Buffer, Config, Device, Event, FfiCall, Runtime, Stream};

use crate::numbers::Numbers;
use crate::semantics::machine::{Access, Actor, Machine, WaitedFor};
use crate::semantics::program::{self, Action, Shape};

/// When a task began and ended, in numbers of one sequence.
#[derive(Debug, Default)]
struct Times {
    start: AtomicU64,
    end: AtomicU64,
}

/// What the tasks of a run share.
#[derive(Debug, Default)]
struct Shared {
    clock: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// An access as a task makes it: where, and the numbers that it writes or expects.
#[derive(Debug)]
struct Words {
    addresses: Vec<u64>,
    writes: bool,
    numbers: Vec<u64>,
    is_compared: bool,
}

impl Words {
    /// Writes the numbers; or reads, and says which differ.
    fn touch(&self) -> Option<String> {
        let mut wrong = None;
        for (&address, &number) in self.addresses.iter().zip(&self.numbers) {
            // SAFETY: the unit lies in an allocation whose free comes behind this recorded use, and
            // starts at a multiple of 64 bytes. Whatever else accesses it meanwhile is atomic too:
            // programs with copies have no races.
            let word =
                unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(as_usize(address)) };
            if self.writes {
                word.store(number, Ordering::Relaxed);
            } else {
                let read = word.load(Ordering::Relaxed);
                if self.is_compared && read != number {
                    wrong = Some(format!("read {read} at {address:#x}, expected {number}"));
                }
            }
        }
        wrong
    }
}

/// A program on a runtime, and beside it what each unit holds once everything so far has run.
pub(crate) struct Run {
    pub(crate) runtime: Runtime,
    streams: Vec<Stream>,
    events: Vec<Event>,
    buffers: Vec<Option<Buffer>>,
    contents: Vec<Vec<u64>>,
    unit_bytes: usize,
    is_compared: bool,
    truth: Machine,
    /// By node.
    times: Vec<Option<Arc<Times>>>,
    shared: Arc<Shared>,
}

impl Run {
    pub(crate) fn new(shape: &Shape, is_compared: bool, numbers: &mut Numbers) -> Self {
        let config = Config::builder().cpu_devices(shape.devices).cpu_threads(1 + numbers.below(3));
        let runtime = Runtime::new(config.build().unwrap()).unwrap();
        let stream = |stream| runtime.stream(cpu(stream % shape.devices)).unwrap();
        Self {
            streams: (0..shape.streams).map(stream).collect(),
            events: (0..shape.events).map(|_| Event::new()).collect(),
            buffers: Vec::new(),
            contents: Vec::new(),
            unit_bytes: [64, 4096, 256 << 10][numbers.below(3)],
            is_compared,
            truth: shape.machine(),
            times: Vec::new(),
            shared: Arc::default(),
            runtime,
        }
    }

    pub(crate) fn step(&mut self, action: &Action) {
        let node = program::apply(&mut self.truth, Actor::Host, action);
        self.times.resize(self.truth.num_nodes(), None);
        match action {
            Action::Task(stream, accesses) => {
                self.task(*stream, accesses, node.expect("a task"))();
            }
            Action::Copy(stream, accesses) => self.copy(*stream, accesses),
            Action::Callable(stream, actions) => {
                self.callable(*stream, actions, node.expect("a task"));
            }
            Action::Record(event, stream) => {
                self.streams[*stream].record(&self.events[*event]).unwrap();
            }
            Action::WaitEvent(stream, event) => {
                self.streams[*stream].wait_event(&self.events[*event]).unwrap();
            }
            Action::WaitStream(stream, other) => {
                self.streams[*stream].wait_stream(&self.streams[*other]).unwrap();
            }
            Action::HostWait(waited_for) => self.host_wait(*waited_for),
            Action::HostAccess(access) => self.host_access(access),
            Action::Allocate(stream, units) => self.allocate(*stream, *units),
            Action::Free(life) => drop(self.buffers[*life].take()),
        }
    }

    fn host_wait(&self, waited_for: WaitedFor) {
        let waited = match waited_for {
            WaitedFor::Stream(stream) => self.streams[stream].synchronize(),
            WaitedFor::Event(event) => self.events[event].synchronize(),
            WaitedFor::Device(device) => self.runtime.synchronize(cpu(device)),
        };
        waited.unwrap();
    }

    /// Enqueues a task, when it is called: of a callable, on the worker.
    fn task(
        &mut self,
        stream: usize,
        accesses: &[Access],
        node: usize,
    ) -> impl FnOnce() + Send + use<> {
        let words: Vec<Words> = accesses.iter().map(|access| self.words(access, node)).collect();
        let used: Vec<Buffer> = accesses.iter().map(|access| self.slice(access)).collect();
        let stream = self.streams[stream].clone();
        let task = self.stamped(node, move || words.iter().find_map(Words::touch));
        move || launch(&stream, Box::new(task), &used)
    }

    fn callable(&mut self, stream: usize, actions: &[Action], node: usize) {
        let mut inner = Vec::new();
        for (place, action) in actions.iter().enumerate() {
            let Action::Task(stream, accesses) = action else {
                panic!("a callable that does something else: {action:?}");
            };
            inner.push(self.task(*stream, accesses, node + 1 + place));
        }
        let callable = self.stamped(node, move || {
            for enqueue in inner {
                enqueue();
            }
            None
        });
        self.streams[stream].enqueue(callable).unwrap();
    }

    /// A task that numbers its start and its end.
    fn stamped<F>(&mut self, node: usize, body: F) -> impl FnOnce() + Send + use<F>
    where
        F: FnOnce() -> Option<String> + Send + 'static,
    {
        let times = Arc::new(Times::default());
        self.times[node] = Some(Arc::clone(&times));
        let shared = Arc::clone(&self.shared);
        move || {
            let now = || 1 + shared.clock.fetch_add(1, Ordering::SeqCst);
            times.start.store(now(), Ordering::SeqCst);
            if let Some(wrong) = body() {
                shared.wrong.lock().unwrap().push(format!("task {node} {wrong}"));
            }
            times.end.store(now(), Ordering::SeqCst);
        }
    }

    fn allocate(&mut self, stream: usize, units: usize) {
        let stream = &self.streams[stream];
        self.runtime.exchange_stream(stream).unwrap();
        let buffer = self.runtime.empty(units * self.unit_bytes, stream.device()).unwrap();
        self.buffers.push(Some(buffer));
        self.contents.push(vec![0; units]);
    }

    fn copy(&mut self, stream: usize, [from, to]: &[Access; 2]) {
        let copied = self.contents[from.life][from.range.clone()].to_vec();
        self.contents[to.life][to.range.clone()].copy_from_slice(&copied);
        let (source, target) = (self.slice(from), self.slice(to));
        target.copy_from(&source, &self.streams[stream]).unwrap();
    }

    fn host_access(&mut self, access: &Access) {
        let node = self.truth.num_nodes() - 1;
        let (words, buffer) = (self.words(access, node), self.slice(access));
        buffer.wait_for_host().unwrap();
        if let Some(wrong) = words.touch() {
            self.shared.wrong.lock().unwrap().push(format!("the host's access {node} {wrong}"));
        }
    }

    /// The access with its addresses and numbers; a write changes the contents.
    fn words(&mut self, access: &Access, node: usize) -> Words {
        let Access { life, range, writes, .. } = access;
        if *writes {
            self.contents[*life][range.clone()].fill(node as u64);
        }
        let begin = self.slice(access).address().unwrap();
        let unit = |place: usize| begin + (place * self.unit_bytes) as u64;
        Words {
            addresses: (0..range.len()).map(unit).collect(),
            numbers: self.contents[*life][range.clone()].to_vec(),
            writes: *writes,
            is_compared: self.is_compared,
        }
    }

    fn slice(&self, access: &Access) -> Buffer {
        let Range { start, end } = access.range;
        let buffer = self.buffers[access.life].as_ref().expect("memory that is not freed");
        buffer.slice(start * self.unit_bytes..end * self.unit_bytes).unwrap()
    }

    /// Waits for everything; then nothing was read that should not have been, and each task began
    /// behind the end of all that is before it.
    pub(crate) fn finish(&self) -> Result<(), String> {
        for stream in &self.streams {
            stream.synchronize().unwrap(); // callables end
        }
        self.streams.iter().for_each(|stream| stream.synchronize().unwrap());
        if let Some(wrong) = self.shared.wrong.lock().unwrap().first() {
            return Err(wrong.clone());
        }
        let times =
            || self.times.iter().enumerate().filter_map(|(node, t)| Some((node, t.as_ref()?)));
        for (second, later) in times() {
            let start = later.start.load(Ordering::SeqCst);
            for (first, earlier) in times().take_while(|(first, _)| *first < second) {
                let end = earlier.end.load(Ordering::SeqCst);
                if self.truth.is_before(first, second) && end >= start {
                    return Err(format!("task {second} began before task {first} had ended"));
                }
            }
        }
        Ok(())
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Launches a C function that runs the task, as Python's native functions are launched: with the
/// buffers that it uses.
fn launch(stream: &Stream, task: Body, used: &[Buffer]) {
    extern "C" fn run(task: *mut Body) {
        // SAFETY: made by `into_raw` below, for this call alone.
        let task = unsafe { Box::from_raw(task) };
        task();
    }
    let argument = Box::into_raw(Box::new(task));
    let call = FfiCall::new(run as *const _, &[(argument.expose_provenance() as u64).into()]);
    let used: Vec<&Buffer> = used.iter().collect();
    // SAFETY: `run` takes one pointer, to a task that is there until it runs; no task here fails or
    // is cancelled, so each runs once.
    unsafe { stream.launch_with_buffers(call.unwrap(), &used) }.unwrap();
}

fn cpu(index: usize) -> Device {
    Device::cpu(u8::try_from(index).expect("a few devices"))
}

fn as_usize(address: u64) -> usize {
    usize::try_from(address).expect("an address")
}
