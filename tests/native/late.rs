//! A null backend whose callbacks come when the test says so, as a driver's come at any time.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Work,
};
use accelrt::backend::null::NullBackend;
use accelrt::{DeviceKind, Result};

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

macro_rules! hand_on {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(fn $method(&self, $($name: $kind),*) -> $returned {
            self.inner.$method($($name),*)
        })*
    };
}

impl Backend for LateBackend {
    hand_on! {
        kind() -> DeviceKind;
        device_count() -> Result<usize>;
        properties(device_index: usize) -> Result<DeviceProperties>;
        memory_info(device_index: usize) -> Result<MemoryInfo>;
        priority_range(device_index: usize) -> PriorityRange;
        runs_on_host() -> bool;
        stream_create(device_index: usize, priority: i32) -> Result<StreamHandle>;
        stream_destroy(stream: StreamHandle) -> Result<()>;
        stream_wrap(device_index: usize, native: u64) -> Result<StreamHandle>;
        stream_native(stream: StreamHandle) -> Result<u64>;
        submit(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        resume(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        stream_query(stream: StreamHandle) -> Result<bool>;
        stream_synchronize(stream: StreamHandle) -> Result<()>;
        mark(stream: StreamHandle, timed: bool) -> Result<Mark>;
        mark_done(mark: Mark) -> Result<bool>;
        wait_mark(mark: Mark) -> Result<()>;
        stream_wait(stream: StreamHandle, mark: Mark) -> Result<()>;
        elapsed_ns(start: Mark, end: Mark) -> Result<i64>;
        mark_release(mark: Mark) -> Result<()>;
        allocate(device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;
        release(device_index: usize, address: Address) -> Result<()>;
        allocate_host(bytes: usize) -> Result<Address>;
        release_host(address: Address) -> Result<()>;
        pointer_owner(address: Address) -> Result<Option<PointerOwner>>;
        copy(stream: StreamHandle, to: Address, from: Address, bytes: usize) -> Result<()>;
        fill(stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()>;
        shutdown(deadline: Instant) -> Leftover;
    }

    fn when_done(&self, _mark: Mark, callback: DoneCallback) -> Result<()> {
        self.callbacks.lock().unwrap().push(callback);
        Ok(())
    }
}
