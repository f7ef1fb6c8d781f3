//! The driver: streams of commands, and a pool of threads that executes them later.
//!
//! A thread takes the first command of a stream that no other thread is in; a command that waits
//! for a mark which is not reached stays where it is. So a stream's commands run in order, one at a
//! time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use accelrt::backend::contract::{Address, DoneCallback};

use crate::memory::Memory;

const THREADS: usize = 4;

pub(crate) enum Command {
    Copy { to: Address, from: Address, bytes: usize },
    Fill { to: Address, byte: u8, bytes: usize },
    Wait(Arc<Mark>),
    Reach(Arc<Mark>),
}

/// A place in a stream.
pub(crate) struct Mark {
    reached: OnceLock<Instant>,
    /// `None` once it is reached.
    callbacks: Mutex<Option<Vec<DoneCallback>>>,
}

impl Mark {
    fn new() -> Self {
        Self { reached: OnceLock::new(), callbacks: Mutex::new(Some(Vec::new())) }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached.get().is_some()
    }

    /// When it was reached.
    pub(crate) fn time(&self) -> Instant {
        *self.reached.get().expect("it is reached")
    }

    pub(crate) fn when_reached(&self, callback: DoneCallback) {
        let mut callbacks = self.callbacks.lock().unwrap();
        match &mut *callbacks {
            Some(waiting) => waiting.push(callback),
            None => {
                drop(callbacks);
                callback();
            }
        }
    }

    fn reach(&self) {
        self.reached.set(Instant::now()).expect("each mark is in one stream, once");
        let callbacks = self.callbacks.lock().unwrap().take();
        for callback in callbacks.into_iter().flatten() {
            callback();
        }
    }
}

struct Stream {
    priority: i32,
    commands: VecDeque<Command>,
    /// A thread is inside its last command.
    is_busy: bool,
    submitted: u64,
    done: u64,
    /// It goes when it is empty.
    is_destroyed: bool,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u64, Stream>,
    marks: HashMap<u64, Arc<Mark>>,
    last_number: u64,
    threads: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

impl State {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The next command to execute, of the most urgent stream.
    fn take(&mut self) -> Option<(u64, Command)> {
        let is_ready = |stream: &Stream| match stream.commands.front() {
            Some(Command::Wait(mark)) => mark.is_reached(),
            Some(_) => true,
            None => false,
        };
        let ready = self.streams.iter_mut().filter(|(_, it)| !it.is_busy && is_ready(it));
        let (number, stream) = ready.min_by_key(|(_, stream)| stream.priority)?;
        stream.is_busy = true;
        Some((*number, stream.commands.pop_front()?))
    }

    fn finish(&mut self, number: u64) {
        let stream = self.streams.get_mut(&number).expect("a busy stream stays");
        stream.is_busy = false;
        stream.done += 1;
        self.remove_if_over(number);
    }

    fn remove_if_over(&mut self, number: u64) {
        let stream = &self.streams[&number];
        if stream.is_destroyed && stream.done == stream.submitted {
            self.streams.remove(&number);
        }
    }
}

pub(crate) struct Queue {
    state: Mutex<State>,
    /// A command was submitted or executed.
    changed: Condvar,
    pub(crate) memory: Memory,
}

impl Queue {
    pub(crate) fn new() -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { state, changed, memory: Memory::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes a stream; the first one starts the threads, since asking what exists starts none.
    pub(crate) fn create(self: &Arc<Self>, priority: i32) -> std::io::Result<u64> {
        let mut state = self.lock();
        while state.threads.len() < THREADS && !state.is_stopped {
            let queue = Arc::clone(self);
            let thread = std::thread::Builder::new().name("npu".to_owned());
            state.threads.push(thread.spawn(move || queue.execute())?);
        }
        let (commands, number) = (VecDeque::new(), state.number());
        let (is_busy, is_destroyed, submitted, done) = (false, false, 0, 0);
        let stream = Stream { priority, commands, is_busy, submitted, done, is_destroyed };
        state.streams.insert(number, stream);
        Ok(number)
    }

    pub(crate) fn destroy(&self, stream: u64) {
        let mut state = self.lock();
        state.streams.get_mut(&stream).expect("a live stream").is_destroyed = true;
        state.remove_if_over(stream);
    }

    pub(crate) fn submit(&self, stream: u64, command: Command) {
        let mut state = self.lock();
        let found = state.streams.get_mut(&stream).expect("a live stream");
        found.commands.push_back(command);
        found.submitted += 1;
        let is_stopped = state.is_stopped;
        drop(state);
        self.changed.notify_all();
        if is_stopped {
            self.execute(); // no thread is left: this one does what can be done
        }
    }

    pub(crate) fn mark(&self, stream: u64) -> u64 {
        let mark = Arc::new(Mark::new());
        let mut state = self.lock();
        let number = state.number();
        state.marks.insert(number, Arc::clone(&mark));
        drop(state);
        self.submit(stream, Command::Reach(mark));
        number
    }

    pub(crate) fn find(&self, mark: u64) -> Arc<Mark> {
        Arc::clone(&self.lock().marks[&mark])
    }

    pub(crate) fn release_mark(&self, mark: u64) {
        let gone = self.lock().marks.remove(&mark);
        assert!(gone.is_some(), "a mark is given back once");
    }

    pub(crate) fn is_idle(&self, stream: u64) -> bool {
        let stream = &self.lock().streams[&stream];
        stream.done == stream.submitted
    }

    /// Waits until everything is done that was submitted before.
    pub(crate) fn synchronize(&self, stream: u64) {
        let end = self.lock().streams[&stream].submitted;
        self.wait_until(|state| state.streams.get(&stream).is_none_or(|it| it.done >= end));
    }

    pub(crate) fn wait(&self, mark: &Mark) {
        self.wait_until(|_| mark.is_reached());
    }

    fn wait_until(&self, mut is_over: impl FnMut(&State) -> bool) {
        let waiting = self.changed.wait_while(self.lock(), |state| !is_over(state));
        drop(waiting.unwrap());
    }

    /// What is left of streams and marks.
    pub(crate) fn live(&self) -> (usize, usize) {
        let state = self.lock();
        (state.streams.len(), state.marks.len())
    }

    /// Executes commands until the pool is stopped and nothing is left.
    fn execute(&self) {
        let mut state = self.lock();
        loop {
            if let Some((stream, command)) = state.take() {
                drop(state);
                self.run(command);
                state = self.lock();
                state.finish(stream);
                self.changed.notify_all();
            } else if state.is_stopped {
                return;
            } else {
                state = self.changed.wait(state).unwrap();
            }
        }
    }

    fn run(&self, command: Command) {
        match command {
            Command::Copy { to, from, bytes } => {
                let (to, from) = (self.memory.translate(to), self.memory.translate(from));
                // SAFETY: the contract of `copy`: both ranges are valid until the command is done,
                // `to` is nobody else's, and they do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            }
            Command::Fill { to, byte, bytes } => {
                // SAFETY: the contract of `fill`: the range is valid and nobody else's.
                unsafe { std::ptr::write_bytes(self.memory.translate(to), byte, bytes) };
            }
            Command::Wait(_) => {} // taken when it was reached
            Command::Reach(mark) => mark.reach(),
        }
    }

    /// Ends the threads behind what was submitted.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        let threads = mem::take(&mut state.threads);
        drop(state);
        self.changed.notify_all();
        for thread in threads {
            thread.join().expect("a thread of the pool does not panic");
        }
    }
}
