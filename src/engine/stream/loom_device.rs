//! A device for models: its streams are the engine's own, its workers are the model's threads.
#![expect(unsafe_code, reason = "a backend of the models' own")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::contract::owned::OwnedStream;
use crate::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Turn, Work,
};
use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::stream::core::{Identity, StreamCore};
use crate::engine::stream::lifecycle::Lifecycle;
use crate::null::{NullBackend, NullConfig};

#[macro_use]
#[path = "../../../tests/common/hand_on.rs"]
mod hand_on;

/// A device of a host kind. Its tasks run when a thread of the model calls `work`.
#[derive(Debug)]
pub(crate) struct HostDevice {
    inner: Arc<NullBackend>,
    run_queue: Mutex<VecDeque<(StreamHandle, Arc<dyn Work>)>>,
}

impl HostDevice {
    pub(crate) fn new() -> Arc<Self> {
        let run_queue = Mutex::new(LockRank::RunQueue, VecDeque::new());
        Arc::new(Self { inner: NullBackend::new(NullConfig::default()), run_queue })
    }

    pub(crate) fn stream(self: &Arc<Self>, id: u64) -> Arc<StreamCore> {
        stream(&(Arc::clone(self) as Arc<dyn Backend>), id)
    }

    /// Acts as a worker: takes an entry from the run queue and runs it. False for an empty queue.
    pub(crate) fn work(&self) -> bool {
        let entry = self.run_queue.lock().pop_front();
        entry.map(|(_, work)| work.run(&Turn::unshared())).is_some()
    }

    /// Acts as a submitter at a full run queue: removes the entries that are not needed.
    pub(crate) fn drop_unneeded(&self) {
        let mut unneeded = Vec::new();
        self.run_queue.lock().retain(|(_, work)| {
            let is_needed = work.is_needed();
            if !is_needed {
                unneeded.push(Arc::clone(work));
            }
            is_needed
        });
        unneeded.into_iter().for_each(Work::give_up);
    }
}

// SAFETY: the inner backend keeps the contract of the calls passed on to it; the model's threads
// execute the work.
unsafe impl Backend for HostDevice {
    hand_on_the_usual!();
    hand_on_unsafe! {
        when_done(mark: Mark, callback: DoneCallback) -> Result<()>;
    }

    fn runs_on_host(&self) -> bool {
        true
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        let mut run_queue = self.run_queue.lock();
        assert!(run_queue.iter().all(|entry| entry.0 != stream), "a stream has one entry");
        run_queue.push_back((stream, work));
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        // SAFETY: the caller upholds the contract of `resume`, which is that of `submit`.
        unsafe { self.submit(stream, work) };
    }
}

/// A stream of the null backend, whose tasks run on the enqueuing thread, or of a [`HostDevice`].
pub(crate) fn stream(backend: &Arc<dyn Backend>, id: u64) -> Arc<StreamCore> {
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let handle = OwnedStream::create(backend, 0, 0).unwrap();
    let identity = Identity { device, id, priority: 0, is_dedicated: true };
    StreamCore::new(identity, Arc::clone(backend), handle, Lifecycle::new(0, 1000))
}
