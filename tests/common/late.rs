//! A null backend whose callbacks come when the test says so, as a driver's come at any time.
#![expect(unsafe_code, reason = "a backend of the test's own")]

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Work,
};
use accelrt::{DeviceKind, Result};
use accelrt_testing::null::NullBackend;

/// Hands everything on but `when_done`.
pub(crate) struct LateBackend {
    inner: Arc<NullBackend>,
    callbacks: Mutex<Vec<DoneCallback>>,
}

impl LateBackend {
    pub(crate) fn new(inner: Arc<NullBackend>) -> Arc<Self> {
        Arc::new(Self { inner, callbacks: Mutex::default() })
    }

    /// How many callbacks are asked for and did not come.
    pub(crate) fn waiting(&self) -> usize {
        self.callbacks.lock().unwrap().len()
    }

    /// The device reaches every mark that a callback was asked for.
    pub(crate) fn reach_all(&self) {
        let callbacks = mem::take(&mut *self.callbacks.lock().unwrap());
        for callback in callbacks {
            callback();
        }
    }
}

impl std::fmt::Debug for LateBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LateBackend").field("inner", &self.inner).finish_non_exhaustive()
    }
}

// SAFETY: the inner backend keeps the contract of whatever is handed on; work is the test's.
unsafe impl Backend for LateBackend {
    hand_on_the_usual!();
    hand_on! {
        runs_on_host() -> bool;
    }
    hand_on_unsafe! {
        submit(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        resume(stream: StreamHandle, work: Arc<dyn Work>) -> ();
    }

    unsafe fn when_done(&self, _mark: Mark, callback: DoneCallback) -> Result<()> {
        self.callbacks.lock().unwrap().push(callback);
        Ok(())
    }
}
