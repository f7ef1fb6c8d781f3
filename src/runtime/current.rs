//! The current device and the current streams of each thread, per runtime.
//!
//! Each kind has its own current device, as torch's `cuda` and `xpu` modules have. A new thread
//! starts at device 0 with default streams; nothing is inherited.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::allocator::PoolId;
#[cfg(feature = "python")]
use crate::buffer::here;
use crate::device::{Device, DeviceKind};
use crate::stream::Stream;

/// What one thread has set in one runtime.
#[derive(Debug, Default)]
struct Current {
    devices: BTreeMap<DeviceKind, Device>,
    streams: BTreeMap<Device, Stream>,
    /// Innermost last.
    pools: BTreeMap<Device, Vec<PoolId>>,
}

thread_local! {
    /// By the runtime's number.
    static CURRENT: RefCell<BTreeMap<u64, Current>> = const { RefCell::new(BTreeMap::new()) };
}

/// What this thread has set in a runtime, to be changed. What follows from it is forgotten.
fn change<T>(runtime: u64, change: impl FnOnce(&mut Current) -> T) -> T {
    #[cfg(feature = "python")]
    here::forget();
    CURRENT.with_borrow_mut(|current| change(current.entry(runtime).or_default()))
}

/// The device of a kind that this thread has set.
pub(super) fn device(runtime: u64, kind: DeviceKind) -> Option<Device> {
    CURRENT.with_borrow(|current| current.get(&runtime)?.devices.get(&kind).copied())
}

/// Sets the device of this thread for the device's kind.
pub(super) fn set_device(runtime: u64, device: Device) {
    change(runtime, |current| current.devices.insert(device.kind(), device));
}

/// The stream this thread has set on a device.
pub(super) fn stream(runtime: u64, device: Device) -> Option<Stream> {
    CURRENT.with_borrow(|current| current.get(&runtime)?.streams.get(&device).cloned())
}

/// Sets the stream of this thread on the stream's device.
pub(super) fn set_stream(runtime: u64, stream: &Stream) {
    let stream = stream.clone();
    let replaced = change(runtime, |current| current.streams.insert(stream.device(), stream));
    drop(replaced); // outside the borrow: it may be the last handle of a stream
}

/// The pool that this thread has set on a device.
pub(super) fn pool(runtime: u64, device: Device) -> PoolId {
    let innermost =
        CURRENT.with_borrow(|current| current.get(&runtime)?.pools.get(&device)?.last().copied());
    innermost.unwrap_or(PoolId::DEFAULT)
}

/// Sets the pool of this thread on a device, inside of what was set before.
pub(super) fn push_pool(runtime: u64, device: Device, pool: PoolId) {
    change(runtime, |current| current.pools.entry(device).or_default().push(pool));
}

/// Ends the innermost use of a pool; false when there is none.
pub(super) fn pop_pool(runtime: u64, device: Device, pool: PoolId) -> bool {
    change(runtime, |current| {
        let Some(pools) = current.pools.get_mut(&device) else { return false };
        let place = pools.iter().rposition(|known| *known == pool);
        place.map(|place| pools.remove(place)).is_some()
    })
}

/// Forgets what this thread has set in a runtime that is gone.
pub(super) fn forget(runtime: u64) {
    #[cfg(feature = "python")]
    here::forget();
    // `try_with`: a runtime may end while its thread does.
    let forgotten = CURRENT.try_with(|current| current.borrow_mut().remove(&runtime));
    drop(forgotten);
}
