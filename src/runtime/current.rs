//! What is current on each thread: devices, streams and pools.
//!
//! Each kind has its own current device, as in torch's `cuda` and `xpu` modules. A new thread
//! starts at device 0 with default streams and inherits no state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::fork;
use crate::memory::buffer::allocation::forget_hints;
use crate::{CachingAllocator, Device, DeviceKind, PoolId, Stream};

/// What was made current.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    devices: BTreeMap<DeviceKind, Device>,
    streams: BTreeMap<Device, Stream>,
    /// The pools that were entered; the last one serves requests.
    pools: BTreeMap<Device, Vec<Arc<PoolCore>>>,
}

impl Selected {
    /// Selects a device.
    pub fn set_device(&mut self, device: Device) {
        self.devices.insert(device.kind(), device);
    }

    /// Returns the replaced stream.
    pub fn set_stream(&mut self, stream: Stream) -> Option<Stream> {
        self.streams.insert(stream.device(), stream)
    }

    pub(super) fn push_pool(&mut self, device: Device, entered: Arc<PoolCore>) {
        self.pools.entry(device).or_default().push(entered);
    }
}

thread_local! {
    /// The key is the runtime's id.
    static CURRENT: RefCell<BTreeMap<u64, Selected>> = const { RefCell::new(BTreeMap::new()) };
}

/// Reads this thread's state in a runtime; `None` if the thread has set none.
fn read_state<T>(runtime: u64, read: impl FnOnce(&Selected) -> Option<T>) -> Option<T> {
    // `try_with`, here and below: a runtime may be used while thread-locals are destroyed.
    CURRENT.try_with(|current| current.borrow().get(&runtime).and_then(read)).ok().flatten()
}

/// Changes this thread's state in a runtime and clears the thread's hints. Returns `None`, without
/// a change, after the thread-locals were destroyed.
fn change_state<T>(runtime: u64, change: impl FnOnce(&mut Selected) -> T) -> Option<T> {
    forget_hints();
    let changed =
        CURRENT.try_with(|current| change(current.borrow_mut().entry(runtime).or_default()));
    changed.ok()
}

pub(super) fn device(runtime: u64, kind: DeviceKind) -> Option<Device> {
    read_state(runtime, |current| current.devices.get(&kind).copied())
}

pub(super) fn set_device(runtime: u64, device: Device) {
    change_state(runtime, |current| current.set_device(device));
}

pub(super) fn stream(runtime: u64, device: Device) -> Option<Stream> {
    read_state(runtime, |current| current.streams.get(&device).cloned())
}

pub(super) fn set_stream(runtime: u64, stream: &Stream) {
    let stream = stream.clone();
    let replaced = change_state(runtime, |current| current.set_stream(stream));
    drop(replaced); // outside the borrow: it may hold the last handle of a stream
}

pub(super) fn selected(runtime: u64) -> Selected {
    read_state(runtime, |current| Some(current.clone())).unwrap_or_default()
}

/// Replaces what is current on this thread. The caller drops the result outside the borrow.
#[must_use]
pub(super) fn exchange_selected(runtime: u64, selected: Selected) -> Selected {
    change_state(runtime, |current| std::mem::replace(current, selected)).unwrap_or_default()
}

pub(super) fn pool(runtime: u64, device: Device) -> PoolId {
    let innermost = read_state(runtime, |current| Some(current.pools.get(&device)?.last()?.id));
    innermost.unwrap_or(PoolId::DEFAULT)
}

pub(super) fn push_pool(runtime: u64, device: Device, entered: Arc<PoolCore>) {
    change_state(runtime, |current| current.push_pool(device, entered));
}

/// Removes this thread's latest entry into a pool; `None` when the thread is not inside the pool.
/// The caller drops the result, which may be the pool's last handle, outside the borrow.
#[must_use]
pub(super) fn pop_pool(runtime: u64, device: Device, pool: PoolId) -> Option<Arc<PoolCore>> {
    let popped = change_state(runtime, |current| {
        let pools = current.pools.get_mut(&device)?;
        let place = pools.iter().rposition(|entered| entered.id == pool)?;
        Some(pools.remove(place))
    });
    popped.flatten()
}

pub(super) fn forget(runtime: u64) {
    forget_hints();
    let forgotten = CURRENT.try_with(|current| current.borrow_mut().remove(&runtime));
    drop(forgotten);
}

/// The shared state of a pool. The pool's handles and the threads inside the pool keep it alive.
#[derive(Debug)]
pub(super) struct PoolCore {
    /// The id of the runtime whose current pools this pool can join.
    pub(super) runtime: u64,
    pub(super) allocator: Arc<CachingAllocator>,
    pub(super) id: PoolId,
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        if !fork::is_child() {
            self.allocator.release_pool(self.id);
            self.allocator.trim_pool(self.id);
        }
    }
}
