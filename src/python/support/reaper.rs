//! The reaper: a thread that drops parked objects in place of the helper.
//!
//! Destructors may wait for callables, so they never run on the helper. Nothing waits for the
//! reaper: a destructor there may wait for anything. It is started when it is first needed. Where
//! no thread can be started, objects stay parked until the next attempt.

use std::sync::OnceLock;
use std::thread::{Builder, Thread};

use pyo3::prelude::*;

use crate::base::fork;
use crate::base::signals::with_signals_blocked;
use crate::base::stack::WORKER_STACK_BYTES;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{Ordering, park};
use crate::python::support::deferred_drops::{are_parked, drop_deferred};
use crate::python::support::turns::Turns;

static TURNS: Turns = Turns::new();
static REAPER: OnceLock<Thread> = OnceLock::new();

/// True when objects were parked since the reaper last looked.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Has parked objects dropped. Called by the helper alone, without the GIL.
pub(crate) fn drop_what_is_parked() {
    if !are_parked() {
        return;
    }
    // AcqRel: pairs with `serve`, which sees the parked objects.
    if IS_WOKEN.swap(true, Ordering::AcqRel) {
        return;
    }
    match REAPER.get() {
        Some(reaper) => reaper.unpark(),
        None => start(),
    }
}

fn start() {
    let builder = Builder::new().name("accelrt-reaper".to_owned()).stack_size(WORKER_STACK_BYTES);
    match with_signals_blocked(|| builder.spawn(serve)) {
        Ok(thread) => {
            let _ = REAPER.set(thread.thread().clone());
        }
        // Release: pairs with the swap above. The next call tries again.
        Err(_) => IS_WOKEN.store(false, Ordering::Release),
    }
}

fn serve() {
    loop {
        // AcqRel: pairs with `drop_what_is_parked`: objects that are parked later set the flag
        // again.
        while !IS_WOKEN.swap(false, Ordering::AcqRel) {
            park(None);
        }
        if !TURNS.begin() {
            return;
        }
        Python::attach(drop_deferred);
        if !TURNS.end() {
            return;
        }
    }
}

/// Called when the interpreter ends: see [`Turns::close`].
pub(crate) fn close() {
    if !fork::is_child() {
        TURNS.close();
    }
}
