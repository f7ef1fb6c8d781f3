//! The contract's methods for the xpu kind.
//!
//! The handle of a stream, program or kernel is the address of an object of this crate. A mark is
//! the address of an event of the driver.
//!
//! A forked child has neither the driver's threads nor ours, and a thread of the parent may hold a
//! lock. Each method that would take a lock or use the session therefore checks for a child first.
//! In a child such methods fail with `BadFork`, except releases, which succeed without an effect.
#![expect(unsafe_code, reason = "handles are addresses, which the caller keeps live")]
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use accelrt::backend::callbacks::posting;
use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Kernels, LeftOutDevice, Leftover, Mark,
    MemoryInfo, MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, Work,
    no_shared_memory,
};
use accelrt::backend::driver::ResumeThreads;
use accelrt::internal::{fork, machine_memory};
use accelrt::{Config, Device, DeviceError, DeviceKind, Error, Result, RuntimeError};

use crate::device::XpuDevice;
use crate::device::driver_error;
use crate::driver::{CallResult, Driver};
use crate::handle::{self, Borrowed};
use crate::memory::Memory;
use crate::probe::{Probe, UsableDevices};
use crate::session::Session;
use crate::stream::{FlushAfterRun, XpuStream};
use crate::{event, memory, probe};

/// The backend of the xpu kind: OpenCL devices with unified shared memory.
///
/// ```
/// use accelrt::Config;
/// use accelrt::backend::contract::Backend;
/// use accelrt_opencl::XpuBackend;
/// let xpu = XpuBackend::new(&Config::default());
/// match xpu.device_count() {
///     Ok(count) => assert!((0..count).all(|index| xpu.properties(index).is_ok())),
///     Err(reason) => assert!(reason.to_string().starts_with("No xpu device is available")),
/// }
/// ```
#[derive(Debug)]
pub struct XpuBackend {
    library: Option<String>,
    memory_bytes: Option<usize>,
    probe: OnceLock<Probe>,
    session: OnceLock<Arc<Session>>,
    memory: Memory,
    resume_threads: ResumeThreads,
    /// Executes callbacks of marks. In `resume_threads`, user code that blocks could delay them.
    completions: Arc<ResumeThreads>,
    is_shut_down: AtomicBool,
}

impl XpuBackend {
    /// Creates the backend. Opens no library and starts no thread.
    #[must_use]
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            library: config.opencl_library.clone(),
            memory_bytes: config.xpu_memory_bytes,
            probe: OnceLock::new(),
            session: OnceLock::new(),
            memory: Memory::new(),
            resume_threads: ResumeThreads::new(DeviceKind::XPU, "accelrt-xpu"),
            completions: Arc::new(ResumeThreads::new(DeviceKind::XPU, "accelrt-xpu-done")),
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// The result of the probe, which the first call makes. Holds no lock, so a child forked during
    /// a probe cannot deadlock here. Two threads may therefore probe at once; one result remains.
    fn probe(&self) -> &Probe {
        if let Some(probe) = self.probe.get() {
            return probe;
        }
        let probe = Probe::new(self.library.as_deref(), self.memory_bytes);
        self.probe.get_or_init(|| probe)
    }

    fn found(&self) -> Result<&UsableDevices> {
        let kind = DeviceKind::XPU;
        let unavailable = |reason: &String| {
            Error::Device(DeviceError::KindUnavailable { kind, reason: reason.clone() })
        };
        self.probe().found.as_ref().map_err(unavailable)
    }

    pub(crate) fn device(&self, index: usize) -> Result<&Arc<XpuDevice>> {
        let devices = &self.found()?.devices;
        let Some(device) = devices.get(index) else {
            let device = Device::new(DeviceKind::XPU, index)?;
            return Err(Error::Device(DeviceError::NotFound { device, count: devices.len() }));
        };
        Ok(device)
    }

    /// The device and the session. The first call creates the session. Fails on a lost device.
    pub(crate) fn device_and_session(
        &self,
        index: usize,
    ) -> Result<(&Arc<XpuDevice>, &Arc<Session>)> {
        fork::check()?;
        let device = self.device(index)?;
        device.check()?;
        if let Some(session) = self.session.get() {
            return Ok((device, session));
        }
        if self.probe().is_in_forked_child() {
            return Err(Error::Runtime(RuntimeError::BadFork));
        }
        let session = Session::create(self.found()?).map_err(driver_error)?;
        Ok((device, self.session.get_or_init(|| Arc::new(session))))
    }

    /// The session. Panics if none exists; a backend that has issued an object has a session.
    fn session(&self) -> &Arc<Session> {
        self.session.get().expect("what was made by this backend was made in its context")
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.session().driver
    }

    /// Converts a refused call on a stream into an error of the stream's device.
    pub(crate) fn stream_result<T>(&self, stream: &XpuStream, answer: CallResult<T>) -> Result<T> {
        answer.map_err(|refusal| stream.device.lost_or_refused(self.driver(), refusal))
    }

    /// Converts the answer to a call on a mark. A mark does not record its device. With several
    /// devices, the error therefore names the first one that the driver reports as unavailable.
    fn mark_result<T>(&self, answer: CallResult<T>) -> Result<T> {
        answer.or_else(|refusal| {
            let device = match &self.found()?.devices[..] {
                [only] => Some(only),
                devices => devices.iter().find(|device| device.is_unavailable(self.driver())),
            };
            let error = device.map(|device| device.lost_or_refused(self.driver(), refusal));
            Err(error.unwrap_or_else(|| driver_error(refusal)))
        })
    }

    fn is_shut_down(&self) -> bool {
        // Acquire: pairs with the release store in `shutdown`.
        self.is_shut_down.load(Ordering::Acquire)
    }

    /// Borrows the stream of a handle. Fails when the device is lost and in a forked child.
    ///
    /// # Safety
    /// The stream is live.
    pub(crate) unsafe fn usable_stream(stream: StreamHandle) -> Result<Borrowed<XpuStream>> {
        fork::check()?;
        // SAFETY: the caller upholds that the stream is live.
        let stream: Borrowed<XpuStream> = unsafe { handle::borrow(stream.0) };
        stream.device.check()?;
        Ok(stream)
    }
}

// SAFETY: memory comes from the driver, and `Memory` records it until its release. The driver
// receives the ranges of tasks unchanged.
unsafe impl Backend for XpuBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::XPU
    }

    /// True when the operating system exposes a GPU's node, or when the settings name a library.
    fn may_have_gpu(&self) -> bool {
        self.library.is_some() || probe::has_gpu_node(Path::new("/dev"))
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
        device.info.is_host_memory.then(machine_memory::available).flatten()
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
        let (device, session) = self.device_and_session(device_index)?;
        let properties = device.queue_properties(priority);
        let queue = session.driver.create_queue(session.context, device.info.id, &properties);
        let queue = queue.map_err(|refusal| device.lost_or_refused(&session.driver, refusal))?;
        Ok(StreamHandle(handle::issue(XpuStream::new(session, queue, device, true))))
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        // SAFETY: the caller upholds that the stream is live, and never uses its handle again.
        drop(unsafe { handle::end::<XpuStream>(stream.0) });
        Ok(())
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        let (device, session) = self.device_and_session(device_index)?;
        let wrapped = XpuStream::wrap(session, device, native);
        let stream = wrapped.map_err(|refusal| device.lost_or_refused(&session.driver, refusal))?;
        Ok(StreamHandle(handle::issue(stream)))
    }

    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        // SAFETY: the caller upholds that the stream is live.
        Ok(unsafe { handle::borrow::<XpuStream>(stream.0) }.native())
    }

    /// Runs the work, then flushes, so that the device starts on the submitted commands.
    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() && !fork::is_child() {
            work.run(&Turn::unshared());
            // SAFETY: the caller upholds that the stream is live.
            unsafe { self.flush(stream) };
        }
    }

    unsafe fn flush(&self, stream: StreamHandle) {
        if fork::is_child() {
            return;
        }
        // SAFETY: the caller upholds that the stream is live.
        unsafe { handle::borrow::<XpuStream>(stream.0) }.flush_if_needed();
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() && !fork::is_child() {
            // SAFETY: the caller upholds that the stream is live.
            let stream = Arc::clone(&*unsafe { handle::borrow(stream.0) });
            self.resume_threads.post(Arc::new(FlushAfterRun { work, stream }));
        }
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.query())
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.finish())
    }

    /// Ignores `_timed`: this crate's queues have profiling enabled, so marks have time stamps.
    unsafe fn mark(&self, stream: StreamHandle, _timed: bool) -> Result<Mark> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.mark()).map(event::to_mark)
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        fork::check()?;
        self.mark_result(event::is_done(self.driver(), event::from_mark(mark)))
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        fork::check()?;
        self.mark_result(event::wait(self.driver(), event::from_mark(mark)))
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.wait_for(event::from_mark(mark)))
    }

    /// Runs the callback on a thread of this backend. The driver's thread only posts it there.
    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        fork::check()?;
        let post = posting(&self.completions, callback)?;
        self.mark_result(self.driver().set_event_callback(event::from_mark(mark), post))
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        fork::check()?;
        let [first, last] = [start, end].map(event::from_mark);
        self.mark_result(event::elapsed_ns(self.driver(), first, last))
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        let released = self.driver().release_event(event::from_mark(mark));
        released.map_err(driver_error)
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let (device, session) = self.device_and_session(device_index)?;
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Device)
    }

    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        let (device, session) = self.device_and_session(device_index)?;
        if !device.info.has_shared_memory {
            return Err(no_shared_memory(DeviceKind::XPU));
        }
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Shared)
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        let device = self.device(device_index)?;
        let released = self.memory.release(self.session(), Some(device), address);
        released.map_err(|refusal| device.lost_or_refused(self.driver(), refusal))
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let (device, session) = self.device_and_session(0)?;
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Host)
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        let released = self.memory.release(self.session(), None, address);
        released.map_err(driver_error)
    }

    /// Searches this backend's records. For other addresses, asks the driver.
    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        fork::check()?;
        let own = self.memory.owner(address);
        let Some(session) = self.session.get().filter(|_| own.is_none()) else { return Ok(own) };
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
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.copy(to.0, from.0, bytes))
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        self.stream_result(&stream, stream.fill(to.0, byte, bytes))
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    /// Stops the resume threads. Streams and memory remain until their owners release them.
    fn shutdown(&self, deadline: Instant) -> Leftover {
        if fork::is_child() {
            return Leftover::default();
        }
        // Release: pairs with the acquire load in `is_shut_down`.
        self.is_shut_down.store(true, Ordering::Release);
        let pools = [&self.resume_threads, &*self.completions];
        let busy = pools.map(|threads| threads.shutdown(deadline).busy_threads);
        Leftover { busy_threads: busy.iter().sum() }
    }
}
