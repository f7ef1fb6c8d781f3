//! The reaper: a thread that drops what is parked where only the helper would have to.
//!
//! Destructors may wait for callables, so they never run on the helper. Nothing waits for the
//! reaper: a destructor there may wait for anything. It is started when it is first needed; what
//! cannot be dropped because no thread can be started stays parked until the next look.

use std::sync::OnceLock;
use std::thread::{Builder, Thread};

use pyo3::prelude::*;

use crate::base::fork;
use crate::base::signals::with_signals_blocked;
use crate::base::stack::WORKER_STACK_BYTES;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{Ordering, park};
use crate::python::support::parked::{are_parked, drop_parked_here};
use crate::python::support::turns::Turns;

static TURNS: Turns = Turns::new();
static REAPER: OnceLock<Thread> = OnceLock::new();

/// True when the reaper was told of something that it has not looked at.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Has what is parked dropped. Called by the helper alone, without the GIL.
pub(crate) fn drop_what_is_parked() {
    if !are_parked() {
        return;
    }
    // AcqRel: pairs with `serve`, which sees what was parked.
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
        // Release: pairs with the swap above. The next look tries again.
        Err(_) => IS_WOKEN.store(false, Ordering::Release),
    }
}

fn serve() {
    loop {
        // AcqRel: pairs with `drop_what_is_parked`: what is parked later sets the word again.
        while !IS_WOKEN.swap(false, Ordering::AcqRel) {
            park(None);
        }
        if !TURNS.begin() {
            return;
        }
        Python::attach(drop_parked_here);
        if !TURNS.end() {
            return;
        }
    }
}

/// The interpreter ends: see [`Turns::close`].
pub(crate) fn close() {
    if !fork::is_child() {
        TURNS.close();
    }
}
