//! A thread that carries resumed work for driver kinds, so that a completer never executes it.
//!
//! Driver kinds execute tasks on the enqueuing thread. Work that a completer resumes has no such
//! thread: the completer may be a worker of another kind or a callback of a driver that must not
//! call back. It is posted here instead.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::contract::{Leftover, Turn, Work};
use crate::sync::{LockRank, Mutex};

/// The thread, started at the first post.
#[derive(Debug)]
pub(crate) struct Courier {
    name: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unused,
    Running { sender: Sender<Arc<dyn Work>>, thread: JoinHandle<()> },
    Stopped,
}

impl Courier {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, state: Mutex::new(LockRank::Backend, State::Unused) }
    }

    /// Has `work` executed by the courier's thread, in the order of posts. After a shutdown the
    /// work is dropped: the streams were cancelled before.
    pub(crate) fn post(&self, work: Arc<dyn Work>) {
        let mut state = self.state.lock();
        if let State::Unused = *state {
            let (sender, receiver) = mpsc::channel::<Arc<dyn Work>>();
            let carry = move || receiver.into_iter().for_each(|work| work.run(&Turn::unshared()));
            let thread = std::thread::Builder::new().name(self.name.to_owned()).spawn(carry);
            let thread = thread.expect("the system starts a thread");
            *state = State::Running { sender, thread };
        }
        if let State::Running { sender, .. } = &*state {
            // A send fails only when the thread is gone, which a shutdown alone brings about.
            let _ = sender.send(work);
        }
    }

    /// Ends the thread after what was posted; one that is still inside user code is left alone.
    pub(crate) fn shutdown(&self, deadline: Instant) -> Leftover {
        let state = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        let State::Running { sender, thread } = state else { return Leftover::default() };
        drop(sender);
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
        }
        if !thread.is_finished() {
            return Leftover { busy_threads: 1 };
        }
        // A panic there was caught where the task ran; the thread itself has nothing to say.
        let _ = thread.join();
        Leftover::default()
    }
}
