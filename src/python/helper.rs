//! The helper: the one thread of a process that runs Python callables for streams.
//!
//! It asks for the GIL when something is ready, runs a batch, and gives the GIL back. Whether it
//! may ask is decided by one word:
//!
//! | state | meaning | becomes |
//! |---|---|---|
//! | IDLE | does not need the GIL | BUSY by the helper, CLOSED at exit |
//! | BUSY | has the GIL, or asks for it | IDLE by the helper, CLOSED at exit |
//! | CLOSED | the interpreter ends: no new callable, no new asking | LEFT by the helper |
//! | LEFT | it was busy then, and is no more | |

use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use pyo3::prelude::*;

use crate::fork;
use crate::python::host_task::HostTask;
use crate::python::parked::drop_parked;
use crate::stream::Completion;
use crate::sync::unmodelled::{AtomicBool, AtomicUsize};
use crate::sync::{Ordering, park};

const IDLE: usize = 0;
const BUSY: usize = 1;
const CLOSED: usize = 2;
const LEFT: usize = 3;

/// Callables between two chances for others to get the GIL: those written in C never offer it.
const BATCH: usize = 64;

/// How long the end of the process waits for a callable that is running.
const GRACE: Duration = Duration::from_millis(100);

/// Between two looks at that.
const PERIOD: Duration = Duration::from_micros(200);

static STATE: AtomicUsize = AtomicUsize::new(IDLE);
static READY: SegQueue<(HostTask, Completion)> = SegQueue::new();
static HELPER: OnceLock<Thread> = OnceLock::new();

/// True when something was posted that the helper has not looked at.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Starts the thread, once. With the GIL, so nobody else starts it meanwhile.
pub(super) fn ensure_started() -> io::Result<()> {
    if HELPER.get().is_none() {
        let builder = Builder::new().name("accelrt-python".to_owned());
        let thread = builder.spawn(serve)?;
        let _ = HELPER.set(thread.thread().clone());
    }
    Ok(())
}

/// Hands over a callable whose turn in its stream has come. Called by workers, without the GIL.
pub(super) fn post(task: HostTask, completion: Completion) {
    READY.push((task, completion));
    // AcqRel: pairs with `serve`, which sees what was pushed.
    if !IS_WOKEN.swap(true, Ordering::AcqRel)
        && let Some(helper) = HELPER.get()
    {
        helper.unpark();
    }
}

fn serve() {
    loop {
        // AcqRel: pairs with `post`. A post after this swap sets the word again, so it is not lost;
        // one before it is seen below.
        while !IS_WOKEN.swap(false, Ordering::AcqRel) {
            park(None);
        }
        while !READY.is_empty() {
            if !change(IDLE, BUSY) {
                return;
            }
            Python::attach(run_batch);
            if !change(BUSY, IDLE) {
                change(CLOSED, LEFT);
                return;
            }
        }
    }
}

fn run_batch(py: Python<'_>) {
    drop_parked(py);
    for _ in 0..BATCH {
        // Acquire: pairs with `close`.
        if STATE.load(Ordering::Acquire) != BUSY {
            return;
        }
        let Some((task, completion)) = READY.pop() else { return };
        completion.finish(task.run(py));
    }
}

/// Changes the state, if it is the expected one.
fn change(from: usize, to: usize) -> bool {
    // AcqRel, Acquire: `close` and the helper see what the other did before.
    STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The interpreter ends: no callable is begun any more. Waits a moment for one that is running,
/// without the GIL; one that does not end is left.
pub(super) fn close() {
    if fork::is_child() || change(IDLE, CLOSED) || !change(BUSY, CLOSED) {
        return;
    }
    let end = Instant::now() + GRACE;
    // Acquire: pairs with `change`.
    while STATE.load(Ordering::Acquire) != LEFT && Instant::now() < end {
        park(Some(PERIOD));
    }
}

/// Drops the callables that nobody will run.
pub(super) fn drop_pending(py: Python<'_>) {
    if fork::is_child() {
        return;
    }
    while let Some((task, completion)) = READY.pop() {
        task.release(py);
        drop(completion);
    }
    drop_parked(py);
}
