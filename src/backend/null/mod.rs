//! The null kind: numbers instead of memory. It keeps the contract honest and keeps accounts.
//!
//! It behaves as a driver does: tasks run on the enqueuing thread, marks tell how far a device
//! came, and addresses mean nothing to the host. No bytes are stored anywhere; everything that is
//! given out is counted, so that what is not given back shows in [`NullBackend::live`]. Nothing
//! here ever waits: a device that has to reach a point is there at once. Misuse panics with what
//! was wrong.

mod config;
mod device;
mod event;
mod memory;
mod program;
mod stream;
#[cfg(test)]
mod tests;
mod virtual_memory;

use std::sync::Arc;
use std::time::Instant;

use crate::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Kernels, Leftover, Mark, MemoryInfo,
    MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, VirtualMemory, Work,
};
use crate::backend::courier::Courier;
use crate::device::{Device, DeviceKind, MAX_DEVICE_INDEX};
use crate::error::{Error, Result};
use crate::sync::{LockRank, Mutex};

pub use config::{Completion, LiveCounts, MovedBytes, NullConfig};
use device::{NullDevice, PRIORITIES};
use event::Marks;
use memory::{HostMemory, LEAST_ALIGN_BYTES, Place};
pub use program::Launched;
use program::Programs;
use stream::Streams;

/// Codes of the driver errors of this kind.
#[derive(Clone, Copy, Debug)]
#[repr(i64)]
enum Code {
    OutOfAddresses = 1,
    InvalidHandle = 2,
}

fn driver_error(kind: DeviceKind, call: &'static str, code: Code) -> Error {
    let message = match code {
        Code::OutOfAddresses => "no range of addresses is left that is long enough",
        Code::InvalidHandle => "there is no such stream or kernel on this device",
    };
    Error::Driver { kind, call, code: code as i64, message: message.to_owned() }
}

/// The null kind of device. See the head of this module.
///
/// ```
/// use accelrt::backend::contract::Backend;
/// use accelrt::backend::null::{NullBackend, NullConfig};
/// let null = NullBackend::new(NullConfig::default());
/// let address = null.allocate(0, 1000, 64)?;
/// assert_eq!(null.live().device_bytes, 1000);
/// null.release(0, address)?;
/// assert_eq!(null.live().device_bytes, 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct NullBackend {
    kind: DeviceKind,
    devices: Vec<NullDevice>,
    host: Mutex<HostMemory>,
    timeline: Mutex<Timeline>,
    programs: Mutex<Programs>,
    has_kernels: bool,
    courier: Courier,
}

#[derive(Debug)]
struct Timeline {
    streams: Streams,
    marks: Marks,
    moved: MovedBytes,
    is_shut_down: bool,
}

impl NullBackend {
    /// Makes the backend. Starts no thread.
    ///
    /// # Panics
    /// When a number of the configuration is outside what its field allows.
    #[must_use]
    pub fn new(config: NullConfig) -> Arc<Self> {
        let NullConfig { device_count, granularity_bytes, .. } = config;
        assert!(device_count <= usize::from(MAX_DEVICE_INDEX) + 1, "{device_count} devices");
        let right = granularity_bytes.is_power_of_two() && granularity_bytes >= LEAST_ALIGN_BYTES;
        assert!(right, "a granularity of {granularity_bytes} bytes");
        let device = |index| {
            let device = Device::new(config.kind, index).expect("the count was checked");
            NullDevice::new(device, &config)
        };
        let timeline = Timeline {
            streams: Streams::new(config.completion, device_count),
            marks: Marks::new(),
            moved: MovedBytes::default(),
            is_shut_down: false,
        };
        Arc::new(Self {
            kind: config.kind,
            devices: (0..device_count).map(device).collect(),
            host: Mutex::new(LockRank::Backend, HostMemory::new()),
            timeline: Mutex::new(LockRank::Backend, timeline),
            programs: Mutex::new(LockRank::Backend, Programs::new(config.has_fp64)),
            has_kernels: config.has_kernels,
            courier: Courier::new("accelrt-null"),
        })
    }

    /// What was given out and not given back. Exact when no other thread is inside a call.
    #[must_use]
    pub fn live(&self) -> LiveCounts {
        let timeline = self.timeline.lock();
        let (streams, marks) = (timeline.streams.live(), timeline.marks.live());
        drop(timeline);
        let host_bytes = self.host.lock().allocations.live_bytes();
        let (programs, kernels) = self.programs.lock().live();
        let mut counts =
            LiveCounts { streams, marks, host_bytes, programs, kernels, ..LiveCounts::default() };
        for device in &self.devices {
            let bytes = device.live_bytes();
            counts.device_bytes += bytes.allocated;
            counts.reserved_bytes += bytes.reserved;
            counts.physical_bytes += bytes.physical;
        }
        counts
    }

    /// How much tasks asked to be moved so far.
    #[must_use]
    pub fn moved(&self) -> MovedBytes {
        self.timeline.lock().moved
    }

    /// The launches so far, in the order in which they came.
    #[must_use]
    pub fn launched(&self) -> Vec<Launched> {
        self.programs.lock().launched.clone()
    }

    fn device(&self, index: usize) -> Result<&NullDevice> {
        let Some(device) = self.devices.get(index) else {
            let device = Device::new(self.kind, index)?;
            return Err(Error::NoSuchDevice { device, count: self.devices.len() });
        };
        Ok(device)
    }

    /// Counts work as one submission; false after a shutdown, when it is dropped.
    fn count_work(&self, stream: StreamHandle) -> bool {
        let mut timeline = self.timeline.lock();
        if !timeline.is_shut_down {
            timeline.streams.submit(stream);
        }
        !timeline.is_shut_down
    }

    /// Asserts that every number of a range is live. Memory of others is believed to be.
    fn check_range(&self, range: Address, bytes: usize) {
        let is_live = match Place::of(range, self.devices.len()) {
            Place::Device(index) => self.devices[index].covers(range, bytes),
            Place::Host => {
                let found = self.host.lock().allocations.containing(range);
                found.is_some_and(|(base, all)| range.0 - base + bytes as u64 <= all as u64)
            }
            Place::Elsewhere => range.0 != 0,
        };
        assert!(is_live, "{bytes} bytes at {range:x?} are not inside live memory");
    }
}

impl Backend for NullBackend {
    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn device_count(&self) -> Result<usize> {
        Ok(self.devices.len())
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        Ok(self.device(device_index)?.properties())
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        Ok(self.device(device_index)?.memory_info())
    }

    fn priority_range(&self, _device_index: usize) -> PriorityRange {
        PRIORITIES
    }

    fn runs_on_host(&self) -> bool {
        false
    }

    fn has_host_addresses(&self) -> bool {
        false
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        self.device(device_index)?;
        assert!(PRIORITIES.contains(priority), "a priority of {priority}");
        Ok(self.timeline.lock().streams.create(device_index))
    }

    fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        self.timeline.lock().streams.destroy(stream);
        Ok(())
    }

    fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        self.device(device_index)?;
        let wrapped = self.timeline.lock().streams.wrap(device_index, native);
        wrapped.ok_or_else(|| driver_error(self.kind, "stream_wrap", Code::InvalidHandle))
    }

    fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        Ok(self.timeline.lock().streams.native(stream))
    }

    fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if self.count_work(stream) {
            work.run(&Turn::unshared());
        }
    }

    fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if self.count_work(stream) {
            self.courier.post(work);
        }
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.timeline.lock().streams.poll_end(stream))
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        let streams = &mut self.timeline.lock().streams;
        let end = streams.end(stream);
        streams.finish(end);
        Ok(())
    }

    fn mark(&self, stream: StreamHandle, timed: bool) -> Result<Mark> {
        let mut timeline = self.timeline.lock();
        let submission = timeline.streams.submit(stream);
        Ok(timeline.marks.place(submission, timed))
    }

    fn mark_done(&self, mark: Mark) -> Result<bool> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        Ok(marks.poll(mark, streams))
    }

    fn wait_mark(&self, mark: Mark) -> Result<()> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        streams.finish(marks.point(mark));
        Ok(())
    }

    fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        streams.submit_wait(stream, marks.point(mark));
        Ok(())
    }

    /// Completes the mark and calls back on the caller's stack: there is no thread of a driver.
    fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        self.wait_mark(mark)?;
        callback();
        Ok(())
    }

    fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let Timeline { streams, marks, .. } = &*self.timeline.lock();
        Ok(marks.elapsed_ns(start, end, streams))
    }

    fn mark_release(&self, mark: Mark) -> Result<()> {
        self.timeline.lock().marks.release(mark);
        Ok(())
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        self.device(device_index)?.allocate(bytes, align_bytes)
    }

    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        self.device(device_index)?.allocate_shared(bytes, align_bytes)
    }

    fn release(&self, device_index: usize, address: Address) -> Result<()> {
        self.device(device_index)?.release_allocation(address);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address> {
        let HostMemory { arena, allocations } = &mut *self.host.lock();
        let address = allocations.allocate(arena, bytes, LEAST_ALIGN_BYTES);
        address.ok_or_else(|| driver_error(self.kind, "allocate_host", Code::OutOfAddresses))
    }

    fn release_host(&self, address: Address) -> Result<()> {
        let HostMemory { arena, allocations } = &mut *self.host.lock();
        allocations.release(arena, address);
        Ok(())
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let (device_index, found) = match Place::of(address, self.devices.len()) {
            Place::Device(index) => (index, self.devices[index].containing(address)),
            Place::Host => {
                let found = self.host.lock().allocations.containing(address);
                (0, found.map(|(base, bytes)| (base, bytes, MemoryKind::Host)))
            }
            Place::Elsewhere => return Ok(None),
        };
        let owner = |(base, bytes, memory)| {
            let base = Address(base);
            PointerOwner { device_index, base, bytes, memory }
        };
        Ok(found.map(owner))
    }

    fn copy(&self, stream: StreamHandle, to: Address, from: Address, bytes: usize) -> Result<()> {
        self.check_range(to, bytes);
        self.check_range(from, bytes);
        let mut timeline = self.timeline.lock();
        timeline.streams.submit(stream);
        timeline.moved.copied_bytes += bytes as u64;
        Ok(())
    }

    fn fill(&self, stream: StreamHandle, to: Address, _byte: u8, bytes: usize) -> Result<()> {
        self.check_range(to, bytes);
        let mut timeline = self.timeline.lock();
        timeline.streams.submit(stream);
        timeline.moved.filled_bytes += bytes as u64;
        Ok(())
    }

    fn virtual_memory(&self, device_index: usize) -> Option<&dyn VirtualMemory> {
        self.devices.get(device_index).map(|device| device as &dyn VirtualMemory)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.has_kernels.then_some(self as &dyn Kernels)
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        let mut timeline = self.timeline.lock();
        timeline.is_shut_down = true;
        timeline.streams.finish_all();
        drop(timeline);
        self.courier.shutdown(deadline)
    }
}
