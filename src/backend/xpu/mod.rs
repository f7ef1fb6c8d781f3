//! The xpu kind: Intel GPUs and other OpenCL devices with unified shared memory.
//!
//! * `sys`: OpenCL's types, numbers and tables of functions; `driver`: its calls with Rust's types
//! * `probe`: which devices there are; `device`: one of them; `session`: their context
//! * `stream`, `event`, `memory`: what the contract asks for; `program`: compiled kernels, by
//!   `compiler`'s calls
//!
//! The ICD loader is opened by the first question about devices, and loads the vendors' libraries.
//! The context, with which drivers start their threads, is made when a device is first used.

mod compiler;
mod device;
mod driver;
mod event;
mod memory;
mod probe;
mod program;
mod session;
mod stream;
mod sys;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Kernels, LeftOutDevice, Leftover, Mark,
    MemoryInfo, MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, Work,
    no_shared_memory,
};
use crate::backend::courier::Courier;
use crate::config::Config;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::fork;
use crate::sync::Ordering;
use crate::sync::unmodelled::AtomicBool;

use device::{XpuDevice, driver_error};
use driver::{Answer, Driver};
use memory::Memory;
use probe::{Found, Probe};
use session::Session;
use stream::{Flushed, Held, XpuStream};

/// The xpu kind of device. See the head of this module.
///
/// ```
/// use accelrt::Config;
/// use accelrt::backend::contract::Backend;
/// use accelrt::backend::xpu::XpuBackend;
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
    courier: Courier,
    /// Carries callbacks; resumed work may be inside of user code for long.
    completions: Arc<Courier>,
    is_shut_down: AtomicBool,
}

impl XpuBackend {
    /// Makes the backend. Opens nothing and starts nothing.
    #[must_use]
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            library: config.opencl_library.clone(),
            memory_bytes: config.xpu_memory_bytes,
            probe: OnceLock::new(),
            session: OnceLock::new(),
            memory: Memory::new(),
            courier: Courier::new("accelrt-xpu"),
            completions: Arc::new(Courier::new("accelrt-xpu-done")),
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// What exists, asked for at the first call. Two threads may ask at once; one answer is kept,
    /// so that a child forked meanwhile finds no lock held.
    fn probe(&self) -> &Probe {
        if let Some(probe) = self.probe.get() {
            return probe;
        }
        let probe = Probe::new(self.library.as_deref(), self.memory_bytes);
        self.probe.get_or_init(|| probe)
    }

    fn found(&self) -> Result<&Found> {
        let kind = DeviceKind::Xpu;
        let unavailable = |reason: &String| Error::KindUnavailable { kind, reason: reason.clone() };
        self.probe().found.as_ref().map_err(unavailable)
    }

    fn device(&self, index: usize) -> Result<&Arc<XpuDevice>> {
        let devices = &self.found()?.devices;
        let Some(device) = devices.get(index) else {
            let device = Device::new(DeviceKind::Xpu, index)?;
            return Err(Error::NoSuchDevice { device, count: devices.len() });
        };
        Ok(device)
    }

    /// A device that can be used, and the context, made at the first call.
    fn begin(&self, index: usize) -> Result<(&Arc<XpuDevice>, &Arc<Session>)> {
        fork::check()?;
        let device = self.device(index)?;
        device.check()?;
        if let Some(session) = self.session.get() {
            return Ok((device, session));
        }
        if self.probe().is_behind_a_fork() {
            return Err(Error::BadFork);
        }
        let session = Session::begin(self.found()?).map_err(driver_error)?;
        Ok((device, self.session.get_or_init(|| Arc::new(session))))
    }

    /// The context of something that was made in it.
    fn session(&self) -> &Arc<Session> {
        self.session.get().expect("what was made by this backend was made in its context")
    }

    fn driver(&self) -> &Driver {
        &self.session().driver
    }

    /// What a stream's call came to.
    fn told<T>(&self, stream: &XpuStream, answer: Answer<T>) -> Result<T> {
        answer.map_err(|refusal| stream.device.error(self.driver(), refusal))
    }

    /// What a mark's call came to. The queue that it is in, which knows the device, may be released
    /// already; so a refusal asks for the device that is gone.
    fn told_of<T>(&self, answer: Answer<T>) -> Result<T> {
        answer.or_else(|refusal| {
            let device = match &self.found()?.devices[..] {
                [only] => Some(only),
                devices => devices.iter().find(|device| device.is_gone(self.driver())),
            };
            let error = device.map(|device| device.error(self.driver(), refusal));
            Err(error.unwrap_or_else(|| driver_error(refusal)))
        })
    }

    /// A stream whose device was not lost.
    fn usable(stream: StreamHandle) -> Result<Held> {
        let stream = Held::of(stream);
        stream.device.check()?;
        Ok(stream)
    }

    fn is_shut_down(&self) -> bool {
        // Acquire: pairs with `shutdown`.
        self.is_shut_down.load(Ordering::Acquire)
    }
}

impl Backend for XpuBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Xpu
    }

    /// True when the kernel has a node of a GPU, and where a library was named.
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

    fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        drop(Held::of(stream).end());
        Ok(())
    }

    fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        let (device, session) = self.begin(device_index)?;
        let wrapped = XpuStream::wrap(session, device, native);
        let stream = wrapped.map_err(|refusal| device.error(&session.driver, refusal))?;
        Ok(stream.into_handle())
    }

    fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        Ok(Held::of(stream).native())
    }

    /// The device is told of what the work submitted when it returns.
    fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() {
            work.run(&Turn::unshared());
            self.flush(stream);
        }
    }

    fn flush(&self, stream: StreamHandle) {
        Held::of(stream).flush_rest();
    }

    fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() {
            let stream = Held::of(stream).share();
            self.courier.post(Arc::new(Flushed { work, stream }));
        }
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.query())
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.finish())
    }

    /// Every mark has a time stamp: the queues are made so.
    fn mark(&self, stream: StreamHandle, _timed: bool) -> Result<Mark> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.mark()).map(event::to_mark)
    }

    fn mark_done(&self, mark: Mark) -> Result<bool> {
        self.told_of(event::is_done(self.driver(), event::of_mark(mark)))
    }

    fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.told_of(event::wait(self.driver(), event::of_mark(mark)))
    }

    fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.wait_for(event::of_mark(mark)))
    }

    /// Called by a thread of ours, which the driver's only wakes.
    fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        let completions = Arc::clone(&self.completions);
        let completion = event::Completion::new(callback);
        let posted = Arc::clone(&completion);
        let post = Box::new(move || completions.post(posted));
        let set = self.driver().set_event_callback(event::of_mark(mark), post);
        self.told_of(set.inspect_err(|_| completion.disarm()))
    }

    fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let [first, last] = [start, end].map(event::of_mark);
        self.told_of(event::elapsed_ns(self.driver(), first, last))
    }

    fn mark_release(&self, mark: Mark) -> Result<()> {
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
            return Err(no_shared_memory(DeviceKind::Xpu));
        }
        self.memory.allocate(session, device, bytes, align_bytes, MemoryKind::Shared)
    }

    fn release(&self, device_index: usize, address: Address) -> Result<()> {
        let device = self.device(device_index)?;
        let released = self.memory.release(self.session(), Some(device), address);
        released.map_err(|refusal| device.error(self.driver(), refusal))
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address> {
        let (_, session) = self.begin(0)?;
        self.memory.allocate_host(session, bytes)
    }

    fn release_host(&self, address: Address) -> Result<()> {
        let released = self.memory.release(self.session(), None, address);
        released.map_err(driver_error)
    }

    /// Ours by our own books; others' of our context by the driver's.
    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let own = self.memory.owner(address);
        let Some(session) = self.session.get().filter(|_| own.is_none() && !fork::is_child())
        else {
            return Ok(own);
        };
        let foreign = memory::foreign_owner(session, &self.found()?.devices, address);
        foreign.map_err(driver_error)
    }

    fn copy(&self, stream: StreamHandle, to: Address, from: Address, bytes: usize) -> Result<()> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.copy(to.0, from.0, bytes))
    }

    fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        let stream = Self::usable(stream)?;
        self.told(&stream, stream.fill(to.0, byte, bytes))
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    /// Streams and memory are given back by their owners, and the context goes with the last.
    fn shutdown(&self, deadline: Instant) -> Leftover {
        // Release: pairs with `is_shut_down`.
        self.is_shut_down.store(true, Ordering::Release);
        let couriers = [&self.courier, &*self.completions];
        let busy = couriers.map(|courier| courier.shutdown(deadline).busy_threads);
        Leftover { busy_threads: busy.iter().sum() }
    }
}
