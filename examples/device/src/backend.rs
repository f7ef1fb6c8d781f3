//! The backend: each method of the contract, in terms of the driver.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use accelrt::backend::callbacks::posting;
use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Turn, Work,
};
use accelrt::backend::driver::ResumeThreads;
use accelrt::{Device, DeviceError, DeviceKind, DriverError, Error, MemoryError, Result};

use crate::queue::{Command, Queue};
use crate::{CAPACITY_BYTES, DEVICE_COUNT};

/// Streams of priority -1 run before those of 0, and those before 1.
const PRIORITIES: PriorityRange = PriorityRange { least: 1, greatest: -1 };

/// The kind `npu`.
pub struct Npu {
    kind: DeviceKind,
    queue: Arc<Queue>,
    /// They run work that a completer resumes: the pool's threads must not, since they execute
    /// commands meanwhile.
    resume_threads: ResumeThreads,
    /// They call back: a callback may wait for the pool.
    completions: Arc<ResumeThreads>,
}

impl Npu {
    /// Starts no thread.
    pub fn new(kind: DeviceKind) -> Arc<Self> {
        let resume_threads = ResumeThreads::new(kind, "npu-resume");
        let completions = Arc::new(ResumeThreads::new(kind, "npu-done"));
        Arc::new(Self { kind, queue: Queue::new(), resume_threads, completions })
    }

    /// How many streams and marks are not given back.
    pub fn live(&self) -> (usize, usize) {
        self.queue.live()
    }

    fn check(&self, device_index: usize) -> Result<Device> {
        let device = Device::new(self.kind, device_index)?;
        if device_index < DEVICE_COUNT {
            return Ok(device);
        }
        Err(Error::Device(DeviceError::NotFound { device, count: DEVICE_COUNT }))
    }

    fn unsupported<T>(&self, capability: &'static str) -> Result<T> {
        Err(Error::Driver(DriverError::Unsupported { kind: self.kind, capability }))
    }

    fn refused(&self, call: &'static str, message: &str) -> Error {
        let (kind, code, message) = (self.kind, 12, message.to_owned());
        Error::Driver(DriverError::Refused { kind, call, code, message })
    }
}

impl fmt::Debug for Npu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Npu").field("kind", &self.kind).finish_non_exhaustive()
    }
}

// SAFETY: addresses of devices are no pointers, and the memory behind them is this backend's until
// its release; commands access what they name, in order; each work is run by one thread, once.
unsafe impl Backend for Npu {
    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn device_count(&self) -> Result<usize> {
        Ok(DEVICE_COUNT)
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        self.check(device_index)?;
        Ok(DeviceProperties::new("Example NPU", CAPACITY_BYTES))
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        self.check(device_index)?;
        Ok(self.queue.memory.info(device_index))
    }

    fn priority_range(&self, _device_index: usize) -> PriorityRange {
        PRIORITIES
    }

    fn runs_on_host(&self) -> bool {
        false
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        self.check(device_index)?;
        let made = self.queue.create(priority);
        made.map(StreamHandle).map_err(|error| self.refused("stream_create", &error.to_string()))
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        self.queue.destroy(stream.0);
        Ok(())
    }

    unsafe fn stream_wrap(&self, _device_index: usize, _native: u64) -> Result<StreamHandle> {
        self.unsupported("streams of others")
    }

    unsafe fn stream_native(&self, _stream: StreamHandle) -> Result<u64> {
        self.unsupported("native handles of streams")
    }

    /// A driver kind: the enqueuing thread runs the tasks, which submit commands.
    unsafe fn submit(&self, _stream: StreamHandle, work: Arc<dyn Work>) {
        work.run(&Turn::unshared());
    }

    unsafe fn resume(&self, _stream: StreamHandle, work: Arc<dyn Work>) {
        self.resume_threads.post(work);
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.queue.is_idle(stream.0))
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.queue.synchronize(stream.0);
        Ok(())
    }

    /// Every mark has a time here.
    unsafe fn mark(&self, stream: StreamHandle, _timed: bool) -> Result<Mark> {
        Ok(Mark(self.queue.mark(stream.0)))
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        Ok(self.queue.find(mark.0).is_reached())
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.queue.wait(&self.queue.find(mark.0));
        Ok(())
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        let mark = self.queue.find(mark.0);
        self.queue.submit(stream.0, Command::Wait(mark));
        Ok(())
    }

    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        self.queue.find(mark.0).when_reached(posting(&self.completions, callback)?);
        Ok(())
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let [start, end] = [start, end].map(|mark| self.queue.find(mark.0).time());
        let nanoseconds = |from, to: Instant| {
            i64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(i64::MAX)
        };
        Ok(nanoseconds(start, end) - nanoseconds(end, start))
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        self.queue.release_mark(mark.0);
        Ok(())
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let device = self.check(device_index)?;
        self.queue.memory.allocate(device_index, bytes, align_bytes).map_err(|info| {
            let MemoryInfo { free_bytes, total_bytes } = info;
            let (requested_bytes, cache) = (bytes, None);
            let numbers = MemoryError::OutOfMemory {
                device,
                requested_bytes,
                free_bytes,
                total_bytes,
                cache,
            };
            Error::Memory(numbers)
        })
    }

    unsafe fn release(&self, _device_index: usize, address: Address) -> Result<()> {
        self.queue.memory.release(address);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let memory = self.queue.memory.allocate_host(bytes, align_bytes);
        memory.ok_or_else(|| self.refused("allocate_host", "the system has no memory"))
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        self.queue.memory.release(address);
        Ok(())
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        Ok(self.queue.memory.owner(address))
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        self.queue.submit(stream.0, Command::Copy { to, from, bytes });
        Ok(())
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        self.queue.submit(stream.0, Command::Fill { to, byte, bytes });
        Ok(())
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        self.queue.stop();
        let pools = [&self.resume_threads, &*self.completions];
        let busy = pools.map(|threads| threads.shutdown(deadline).busy_threads);
        Leftover { busy_threads: busy.iter().sum() }
    }
}
