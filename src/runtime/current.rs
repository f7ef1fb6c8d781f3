//! The current device and the current streams of each thread, per runtime.
//!
//! Each kind has its own current device, as torch's `cuda` and `xpu` modules have. A new thread
//! starts at device 0 with default streams; nothing is inherited.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::base::device::{Device, DeviceKind};
use crate::engine::stream::Stream;
use crate::memory::allocator::PoolId;
use crate::memory::buffer::thread_hints;

/// The current devices, streams and pools of one thread in one runtime.
#[derive(Debug, Default)]
struct Current {
    devices: BTreeMap<DeviceKind, Device>,
    streams: BTreeMap<Device, Stream>,
    /// Innermost last.
    pools: BTreeMap<Device, Vec<Entered>>,
}

/// A pool that a thread is inside of, and the handle that keeps it: a thread may end there.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) pool: PoolId,
    #[expect(dead_code, reason = "what keeps the pool is only dropped")]
    pub(super) kept: Arc<dyn Debug + Send + Sync>,
}

thread_local! {
    /// By the runtime's id.
    static CURRENT: RefCell<BTreeMap<u64, Current>> = const { RefCell::new(BTreeMap::new()) };
}

/// Looks at this thread's state in a runtime; `None` when there is none.
fn look<T>(runtime: u64, look: impl FnOnce(&Current) -> Option<T>) -> Option<T> {
    // `try_with`, here and below: a runtime may be used while thread-locals are destroyed.
    CURRENT.try_with(|current| current.borrow().get(&runtime).and_then(look)).ok().flatten()
}

/// Changes this thread's state in a runtime, and forgets the place derived from it. `None`, and no
/// change, once the thread-locals are destroyed.
fn change<T>(runtime: u64, change: impl FnOnce(&mut Current) -> T) -> Option<T> {
    thread_hints::forget();
    let changed =
        CURRENT.try_with(|current| change(current.borrow_mut().entry(runtime).or_default()));
    changed.ok()
}

/// The device that this thread has set for a kind.
pub(super) fn device(runtime: u64, kind: DeviceKind) -> Option<Device> {
    look(runtime, |current| current.devices.get(&kind).copied())
}

/// Sets the device of this thread for the device's kind.
pub(super) fn set_device(runtime: u64, device: Device) {
    change(runtime, |current| current.devices.insert(device.kind(), device));
}

/// The stream that this thread has set on a device.
pub(super) fn stream(runtime: u64, device: Device) -> Option<Stream> {
    look(runtime, |current| current.streams.get(&device).cloned())
}

/// Sets the stream of this thread on the stream's device.
pub(super) fn set_stream(runtime: u64, stream: &Stream) {
    let stream = stream.clone();
    let replaced = change(runtime, |current| current.streams.insert(stream.device(), stream));
    drop(replaced); // outside the borrow: it may be the last handle of a stream
}

/// The pool that this thread has set on a device.
pub(super) fn pool(runtime: u64, device: Device) -> PoolId {
    let innermost = look(runtime, |current| Some(current.pools.get(&device)?.last()?.pool));
    innermost.unwrap_or(PoolId::DEFAULT)
}

/// Sets the pool of this thread on a device, inside of those set before.
pub(super) fn push_pool(runtime: u64, device: Device, entered: Entered) {
    change(runtime, |current| current.pools.entry(device).or_default().push(entered));
}

/// Ends the innermost use of a pool; nothing when there is none. The result may be the pool's last
/// handle.
#[must_use]
pub(super) fn pop_pool(runtime: u64, device: Device, pool: PoolId) -> Option<Entered> {
    let popped = change(runtime, |current| {
        let pools = current.pools.get_mut(&device)?;
        let place = pools.iter().rposition(|entered| entered.pool == pool)?;
        Some(pools.remove(place))
    });
    popped.flatten()
}

/// Forgets this thread's state in a runtime that is gone.
pub(super) fn forget(runtime: u64) {
    thread_hints::forget();
    let forgotten = CURRENT.try_with(|current| current.borrow_mut().remove(&runtime));
    drop(forgotten);
}
