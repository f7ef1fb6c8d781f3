//! Gates: tasks that stay inside their worker until they are let go.

use std::sync::mpsc::{self, Receiver, Sender};

use accelrt::Stream;

use crate::thread_id::ThreadId;

/// Holds one task of a stream. Dropped, it opens: a test that fails leaves no thread behind.
#[derive(Debug)]
pub(crate) struct Gate {
    inside: Receiver<ThreadId>,
    open: Sender<()>,
}

impl Gate {
    /// Enqueues a task that stays inside; it may not have begun when this returns.
    pub(crate) fn enqueue(stream: &Stream) -> Self {
        let (enter, inside) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let task = move || {
            // Not received any more when the gate was opened before the task began.
            let _ = enter.send(ThreadId::current());
            // An error says that the gate was dropped.
            let _ = opened.recv();
        };
        stream.enqueue(task).unwrap();
        Self { inside, open }
    }

    /// As [`Gate::enqueue`], and waits until a worker is inside: from here on no thread helps it.
    pub(crate) fn shut(stream: &Stream) -> Self {
        let gate = Self::enqueue(stream);
        gate.wait_until_inside();
        gate
    }

    /// Waits until a worker is inside, and says which.
    pub(crate) fn wait_until_inside(&self) -> ThreadId {
        self.inside.recv().expect("the task begins")
    }

    /// Lets the task go.
    pub(crate) fn open(self) {
        drop(self.open);
    }
}
