//! The xpu kind behind the contract.
//!
//! Streams, programs and kernels are addresses of ours, marks are addresses of the driver's.
#![expect(unsafe_code, reason = "a handle is an address, which the caller promises to be live")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::stream::{Flushed, Held, XpuStream};
use super::{XpuBackend, driver_error, event, memory, probe};
use crate::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Kernels, LeftOutDevice, Leftover, Mark,
    MemoryInfo, MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, Work,
    no_shared_memory,
};
use crate::base::device::DeviceKind;
use crate::base::error::Result;
use crate::base::fork;
use crate::base::machine_memory;
use crate::base::sync::Ordering;

impl XpuBackend {
    /// The stream behind a handle. Fails when its device was lost.
    ///
    /// # Safety
    /// The stream is live.
    pub(super) unsafe fn usable(stream: StreamHandle) -> Result<Held> {
        // SAFETY: the caller promises it.
        let stream = unsafe { Held::of(stream) };
        stream.device.check()?;
        Ok(stream)
    }
}

// SAFETY: memory is the driver's, and recorded until it is given back; the driver gets the ranges
// of tasks as the caller gave them.
unsafe impl Backend for XpuBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::XPU
    }

    /// True when the kernel has a node of a GPU, and when the settings name a library.
    fn may_have_gpu(&self) -> bool {
        self.library.is_some() || probe::sees_gpu(Path::new("/dev"))
    }

    fn device_count(&self) -> Result<usize> {
        Ok(self.found()?.devices.len())
    }

    fn left_out_devices(&self) -> Vec<LeftOutDevice> {
        self.probe().left_out.clone()
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        Ok(self.device(device_index)?.properties())
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        Ok(self.device(device_index)?.capacity.info())
    }

    fn available_bytes(&self, device_index: usize) -> Option<usize> {
        let device = self.device(device_index).ok()?;
        device.is_host_memory().then(machine_memory::available).flatten()
    }

    fn host_memory_info(&self) -> Option<MemoryInfo> {
        Some(self.memory.host_info())
    }

    fn priority_range(&self, device_index: usize) -> PriorityRange {
        let device = self.device(device_index);
        device.map_or(PriorityRange { least: 0, greatest: 0 }, |device| device.priority_range())
    }

    fn runs_on_host(&self) -> bool {
        false
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        let (device, session) = self.begin(device_index)?;
        let properties = device.queue_properties(priority);
        let queue = session.driver.create_queue(session.context, device.id(), &properties);
        let queue = queue.map_err(|refusal| device.error(&session.driver, refusal))?;
        Ok(XpuStream::new(session, queue, device, true).into_handle())
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the stream is live, as the caller promises.
        drop(unsafe { Held::of(stream) }.end());
        Ok(())
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        let (device, session) = self.begin(device_index)?;
        let wrapped = XpuStream::wrap(session, device, native);
        let stream = wrapped.map_err(|refusal| device.error(&session.driver, refusal))?;
        Ok(stream.into_handle())
    }

    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        // SAFETY: the stream is live, as the caller promises.
        Ok(unsafe { Held::of(stream) }.native())
    }

    /// Flushes before it returns, so the device knows of everything that the work submitted.
    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() {
            work.run(&Turn::unshared());
            // SAFETY: as for this method.
            unsafe { self.flush(stream) };
        }
    }

    unsafe fn flush(&self, stream: StreamHandle) {
        // SAFETY: the stream is live, as the caller promises.
        unsafe { Held::of(stream) }.flush_rest();
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() {
            // SAFETY: the stream is live, as the caller promises.
            let stream = unsafe { Held::of(stream) }.share();
            self.resume_threads.post(Arc::new(Flushed { work, stream }));
        }
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.query())
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.finish())
    }

    /// Every mark has a time stamp: the queues are made so.
    unsafe fn mark(&self, stream: StreamHandle, _timed: bool) -> Result<Mark> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.mark()).map(event::to_mark)
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        self.told_of(event::is_done(self.driver(), event::of_mark(mark)))
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.told_of(event::wait(self.driver(), event::of_mark(mark)))
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.wait_for(event::of_mark(mark)))
    }

    /// The callback runs on a thread of ours; the driver's thread only wakes that.
    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        let completions = Arc::clone(&self.completions);
        completions.prepare()?; // the callback itself cannot be refused
        let completion = event::Completion::new(callback);
        let posted = Arc::clone(&completion);
        let post = Box::new(move || completions.post(posted));
        let set = self.driver().set_event_callback(event::of_mark(mark), post);
        self.told_of(set.inspect_err(|_| completion.disarm()))
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let [first, last] = [start, end].map(event::of_mark);
        self.told_of(event::elapsed_ns(self.driver(), first, last))
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        let released = self.driver().release_event(event::of_mark(mark));
        released.map_err(driver_error)
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let (device, session) = self.begin(device_index)?;
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Device)
    }

    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        let (device, session) = self.begin(device_index)?;
        if !device.has_shared_memory() {
            return Err(no_shared_memory(DeviceKind::XPU));
        }
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Shared)
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        let device = self.device(device_index)?;
        let released = self.memory.release(self.session(), Some(device), address);
        released.map_err(|refusal| device.error(self.driver(), refusal))
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address> {
        let (_, session) = self.begin(0)?;
        self.memory.allocate_host(session, bytes)
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        let released = self.memory.release(self.session(), None, address);
        released.map_err(driver_error)
    }

    /// Our allocations by our own records; other memory of our context by the driver's.
    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let own = self.memory.owner(address);
        let Some(session) = self.session.get().filter(|_| own.is_none() && !fork::is_child())
        else {
            return Ok(own);
        };
        let foreign = memory::foreign_owner(session, &self.found()?.devices, address);
        foreign.map_err(driver_error)
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.copy(to.0, from.0, bytes))
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the stream is live, as the caller promises.
        let stream = unsafe { Self::usable(stream) }?;
        self.told(&stream, stream.fill(to.0, byte, bytes))
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    /// The owners of streams and memory give them back, and the last one ends the context.
    fn shutdown(&self, deadline: Instant) -> Leftover {
        // Release: pairs with `is_shut_down`.
        self.is_shut_down.store(true, Ordering::Release);
        let couriers = [&self.resume_threads, &*self.completions];
        let busy = couriers.map(|resume_threads| resume_threads.shutdown(deadline).busy_threads);
        Leftover { busy_threads: busy.iter().sum() }
    }
}
