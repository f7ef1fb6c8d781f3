//! The reaper: a thread that drops parked objects for the host threads.
//!
//! A destructor may wait for callables, so it must not run on a host thread. No thread waits for
//! the reaper, so destructors that run there may wait for anything. The first [`wake`] starts the
//! thread. When the start fails, objects stay parked until the next [`wake`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Thread};

use accelrt::internal::{WORKER_STACK_BYTES, park, with_signals_blocked};
use pyo3::prelude::*;

use crate::support::deferred_drops::{drop_deferred, has_parked};
use crate::support::turns::Turns;

pub(crate) static TURNS: Turns = Turns::new();
static REAPER: OnceLock<Thread> = OnceLock::new();

/// `wake` sets this flag when objects are parked; the reaper clears it before it drops them.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);

/// Wakes the reaper if objects are parked. Only host threads call this, without the GIL.
pub(crate) fn wake() {
    if !has_parked() {
        return;
    }
    // AcqRel: pairs with the swap in `serve`, which then finds the parked objects.
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
        // Release: pairs with the swap in `wake`. The next `wake` tries to start the thread again.
        Err(_) => IS_WOKEN.store(false, Ordering::Release),
    }
}

fn serve() {
    loop {
        // AcqRel: pairs with the swap in `wake`. A `wake` after this swap sets the flag again.
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
