//! The helper: the only thread of a process that runs Python callables for streams.
//!
//! The helper takes the GIL when a callable is ready, runs a batch, and releases the GIL. Callables
//! and destructors on the helper must not wait for unfinished work, because other threads wait for
//! the helper. The reaper, not the helper, drops parked objects.

use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, Thread};

use crossbeam_queue::SegQueue;
use pyo3::prelude::*;

use crate::base::fork;
use crate::base::stack::WORKER_STACK_BYTES;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{Ordering, park};
use crate::engine::stream::Completion;
use crate::python::launch::host_task::HostTask;
use crate::python::support::deferred_drops::drop_parked;
use crate::python::support::reaper;
use crate::python::support::turns::Turns;
use crate::python::support::waiting::forbid_waits;

/// The helper releases the GIL after this many callables, because a callable in C may not do so.
const BATCH: usize = 64;

pub(crate) static TURNS: Turns = Turns::new();
static READY: SegQueue<(HostTask, Completion)> = SegQueue::new();
static HELPER: OnceLock<Thread> = OnceLock::new();

/// True when a callable was posted since the helper's last check.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Starts the helper at the first call. The caller holds the GIL, which prevents a second start.
pub(crate) fn ensure_started() -> io::Result<()> {
    if HELPER.get().is_none() {
        let builder =
            Builder::new().name("accelrt-python".to_owned()).stack_size(WORKER_STACK_BYTES);
        let thread = builder.spawn(serve)?;
        let _ = HELPER.set(thread.thread().clone());
    }
    Ok(())
}

/// Queues a callable that has reached the head of its stream. The thread that executes the stream
/// calls this, with or without the GIL.
pub(crate) fn post(task: HostTask, completion: Completion) {
    READY.push((task, completion));
    // AcqRel: pairs with the swap in `serve`, which then finds the push.
    if !IS_WOKEN.swap(true, Ordering::AcqRel)
        && let Some(helper) = HELPER.get()
    {
        helper.unpark();
    }
}

fn serve() {
    forbid_waits();
    loop {
        // AcqRel: pairs with the swap in `post`. A later post sets the flag again. The task of an
        // earlier post is already in the queue, which the loop below empties.
        while !IS_WOKEN.swap(false, Ordering::AcqRel) {
            park(None);
        }
        while !READY.is_empty() {
            if !TURNS.begin() {
                return;
            }
            Python::attach(run_batch);
            if fork::is_child() {
                return; // a callable forked: the child process ends with its only thread
            }
            if !TURNS.end() {
                return;
            }
            reaper::wake();
        }
    }
}

fn run_batch(py: Python<'_>) {
    for _ in 0..BATCH {
        if !TURNS.is_open() {
            return;
        }
        let Some((task, completion)) = READY.pop() else { return };
        let outcome = task.run(py);
        if fork::is_child() {
            return std::mem::forget(completion); // only the parent may use the stream
        }
        completion.finish(outcome);
    }
}

pub(crate) fn drop_pending(py: Python<'_>) {
    if fork::is_child() {
        return;
    }
    while let Some((task, completion)) = READY.pop() {
        task.release(py);
        drop(completion);
    }
    drop_parked(py);
}
