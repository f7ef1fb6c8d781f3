//! The helper: the one thread of a process that runs Python callables for streams.
//!
//! It asks for the GIL when a callable is ready, runs a batch, and gives the GIL back. Other
//! threads wait for it, so it waits for nothing unfinished, neither in callables, nor in
//! destructors that they or the interpreter's collector trigger. Parked objects are left to the
//! reaper.

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
use crate::python::support::waiting::wait_for_nothing;

/// Callables between two offers of the GIL to other threads: callables in C never offer it.
const BATCH: usize = 64;

static TURNS: Turns = Turns::new();
static READY: SegQueue<(HostTask, Completion)> = SegQueue::new();
static HELPER: OnceLock<Thread> = OnceLock::new();

/// True when a callable was posted since the helper last looked.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Starts the thread, once. With the GIL, so no other thread starts it meanwhile.
pub(crate) fn ensure_started() -> io::Result<()> {
    if HELPER.get().is_none() {
        let builder =
            Builder::new().name("accelrt-python".to_owned()).stack_size(WORKER_STACK_BYTES);
        let thread = builder.spawn(serve)?;
        let _ = HELPER.set(thread.thread().clone());
    }
    Ok(())
}

/// Hands over a callable that is next in its stream. Called by workers, without the GIL.
pub(crate) fn post(task: HostTask, completion: Completion) {
    READY.push((task, completion));
    // AcqRel: pairs with `serve`, which sees the push.
    if !IS_WOKEN.swap(true, Ordering::AcqRel)
        && let Some(helper) = HELPER.get()
    {
        helper.unpark();
    }
}

fn serve() {
    wait_for_nothing();
    loop {
        // AcqRel: pairs with `post`. A post after this swap sets the flag again, so it is not lost;
        // an earlier one is seen below.
        while !IS_WOKEN.swap(false, Ordering::AcqRel) {
            park(None);
        }
        while !READY.is_empty() {
            if !TURNS.begin() {
                return;
            }
            Python::attach(run_batch);
            if fork::is_child() {
                return; // a callable has forked: the child ends with the thread that it has
            }
            if !TURNS.end() {
                return;
            }
            reaper::drop_what_is_parked();
        }
    }
}

fn run_batch(py: Python<'_>) {
    for _ in 0..BATCH {
        if !TURNS.goes_on() {
            return;
        }
        let Some((task, completion)) = READY.pop() else { return };
        let outcome = task.run(py);
        if fork::is_child() {
            return std::mem::forget(completion); // the stream is the parent's
        }
        completion.finish(outcome);
    }
}

/// Called when the interpreter ends: no callable begins any more; see [`Turns::close`].
pub(crate) fn close() {
    if !fork::is_child() {
        TURNS.close();
    }
}

/// Drops the callables that will not run.
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
