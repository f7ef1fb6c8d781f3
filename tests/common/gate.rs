//! Gates: tasks that stay inside their worker until they are let go.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use accelrt::{Completion, DeviceKind, Stream};

use crate::steps::{Steps, is_scheduled};
use crate::thread_id::ThreadId;

/// Holds one task of a stream. Dropped, it opens: a test that fails leaves no thread behind.
#[derive(Debug)]
pub(crate) struct Gate {
    steps: Steps,
    inside: Receiver<ThreadId>,
    _open: Hold,
}

/// What the task waits for.
#[derive(Debug)]
enum Hold {
    /// The drop, which holds a thread.
    Thread { _open: Sender<()> },
    /// The drop, which holds the stream alone: under a schedule one thread runs all streams.
    Stream(Arc<Mutex<Held>>),
}

#[derive(Debug, Default)]
struct Held {
    begun: Option<Completion>,
    is_open: bool,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Self::Stream(held) = self {
            let begun = {
                let mut held = held.lock().unwrap();
                held.is_open = true;
                held.begun.take()
            };
            if let Some(completion) = begun {
                completion.finish(Ok(()));
            }
        }
    }
}

impl Gate {
    /// Enqueues a task that stays inside; it may not have begun when this returns.
    pub(crate) fn enqueue(stream: &Stream) -> Self {
        let (enter, inside) = mpsc::channel();
        let is_host = stream.device().kind() == DeviceKind::CPU;
        let hold = if is_host && is_scheduled() {
            hold_stream(stream, enter)
        } else {
            hold_thread(stream, enter)
        };
        Self { steps: Steps::of(stream), inside, _open: hold }
    }

    /// As [`Gate::enqueue`], and waits until a worker is inside: from here on no thread helps it.
    pub(crate) fn shut(stream: &Stream) -> Self {
        let gate = Self::enqueue(stream);
        gate.wait_until_inside();
        gate
    }

    /// Waits until a worker is inside, and says which.
    pub(crate) fn wait_until_inside(&self) -> ThreadId {
        self.steps.receive(&self.inside).expect("the task begins")
    }

    /// Lets the task go.
    pub(crate) fn open(self) {
        drop(self);
    }
}

fn hold_thread(stream: &Stream, enter: Sender<ThreadId>) -> Hold {
    let (open, opened) = mpsc::channel::<()>();
    let task = move || {
        // Not received any more when the gate was opened before the task began.
        let _ = enter.send(ThreadId::current());
        // An error says that the gate was dropped.
        let _ = opened.recv();
    };
    stream.enqueue(task).unwrap();
    Hold::Thread { _open: open }
}

fn hold_stream(stream: &Stream, enter: Sender<ThreadId>) -> Hold {
    let held = Arc::new(Mutex::new(Held::default()));
    let begun = Arc::clone(&held);
    let task = move |completion: Completion| {
        let _ = enter.send(ThreadId::current()); // as above
        let mut held = begun.lock().unwrap();
        if held.is_open {
            drop(held);
            completion.finish(Ok(()));
        } else {
            held.begun = Some(completion);
        }
    };
    stream.enqueue_deferred(task).unwrap();
    Hold::Stream(held)
}
