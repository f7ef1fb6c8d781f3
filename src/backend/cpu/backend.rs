//! The contract's methods for the cpu kind: devices, streams, marks and memory.
#![expect(unsafe_code, reason = "copies between addresses that the caller guarantees")]

use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::contract::capacity::Capacity;
use crate::backend::contract::{
    Address, Backend, BackendCounters, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo,
    MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, VirtualMemory, Work,
};
use crate::backend::cpu::copy::{copy_nonoverlapping_streaming, fill_streaming};
use crate::backend::cpu::memory::CpuMemory;
use crate::backend::cpu::properties;
use crate::backend::cpu::run_queue::LEVELS;
use crate::backend::cpu::virtual_memory::CpuVirtualMemory;
use crate::backend::cpu::workers::{SubmitError, Workers};
use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{DriverError, Error, Result};
use crate::base::machine_memory;
use crate::base::size::to_usize;

/// Stream priorities, as in Intel's GPU runtime. Each priority has one level of the run queue.
const PRIORITIES: PriorityRange = PriorityRange { least: 1, greatest: -1 };

/// The machine's cores as one or several asynchronous devices.
///
/// A stream's handle encodes the device and the level in the run queue. The worker that reaches a
/// mark in its stream creates the mark from a clock reading, so every existing mark is complete.
#[derive(Debug)]
pub struct CpuBackend {
    properties: DeviceProperties,
    devices: Vec<CpuDevice>,
    host: CpuMemory,
}

#[derive(Debug)]
struct CpuDevice {
    workers: Workers,
    memory: CpuMemory,
    pages: Option<CpuVirtualMemory>,
}

impl CpuBackend {
    /// Creates the configured cpu devices. Starts no thread and allocates no device memory. Fails
    /// when a setting is out of range.
    pub fn new(config: &Config) -> Result<Arc<Self>> {
        config.validate()?;
        let properties = properties::read(config.cpu_memory_bytes);
        let core_count = properties.core_count;
        let worker_count =
            config.cpu_threads.unwrap_or_else(|| 2.max(core_count / config.cpu_devices));
        let device = |index| {
            let device = Device::new(DeviceKind::CPU, index)?;
            let capacity = Arc::new(Capacity::new(device, properties.total_memory_bytes));
            Ok(CpuDevice {
                workers: Workers::new(format!("{device}"), worker_count, core_count),
                memory: CpuMemory::new(Arc::clone(&capacity)),
                pages: CpuVirtualMemory::new(capacity),
            })
        };
        let devices = (0..config.cpu_devices).map(device).collect::<Result<_>>()?;
        // Pinned memory is host memory, so the devices' configured capacity does not limit it.
        let machine_bytes = properties::read(None).total_memory_bytes;
        let host = CpuMemory::new(Arc::new(Capacity::new(Device::cpu(0), machine_bytes)));
        Ok(Arc::new(Self { properties, devices, host }))
    }

    fn device(&self, index: usize) -> &CpuDevice {
        &self.devices[index]
    }

    fn unsupported<T>(capability: &'static str) -> Result<T> {
        Err(Error::Driver(DriverError::Unsupported { kind: DeviceKind::CPU, capability }))
    }
}

/// Decodes a stream's handle into the device index and the level in the run queue.
fn device_and_level(stream: StreamHandle) -> (usize, usize) {
    let levels = LEVELS as u64;
    (to_usize(stream.0 / levels), to_usize(stream.0 % levels))
}

// SAFETY: memory comes from the allocator or the kernel, and tables record it until its release.
// Streams and marks are plain numbers, which no call dereferences.
unsafe impl Backend for CpuBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::CPU
    }

    fn device_count(&self) -> Result<usize> {
        Ok(self.devices.len())
    }

    fn properties(&self, _device_index: usize) -> Result<DeviceProperties> {
        Ok(self.properties.clone())
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        Ok(self.device(device_index).memory.info())
    }

    fn available_bytes(&self, _device_index: usize) -> Option<usize> {
        machine_memory::available()
    }

    fn host_memory_info(&self) -> Option<MemoryInfo> {
        Some(self.host.info())
    }

    fn priority_range(&self, _device_index: usize) -> PriorityRange {
        PRIORITIES
    }

    fn runs_on_host(&self) -> bool {
        true
    }

    fn counters(&self) -> BackendCounters {
        let counts = self.devices.iter().map(|device| device.workers.counts());
        let (num_worker_wakes, num_spare_workers) =
            counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        BackendCounters { num_worker_wakes, num_spare_workers }
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        let level = u64::try_from(priority - PRIORITIES.greatest).expect("checked by the caller");
        Ok(StreamHandle(device_index as u64 * LEVELS as u64 + level))
    }

    unsafe fn stream_destroy(&self, _stream: StreamHandle) -> Result<()> {
        Ok(())
    }

    unsafe fn stream_wrap(&self, _device_index: usize, _native: u64) -> Result<StreamHandle> {
        Self::unsupported("streams made by other code")
    }

    unsafe fn stream_native(&self, _stream: StreamHandle) -> Result<u64> {
        Self::unsupported("native stream handles: no driver stands behind them")
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        let (device_index, level) = device_and_level(stream);
        match self.device(device_index).workers.submit(level, work) {
            Ok(()) => {}
            // The shutdown has ended the workers, so the submitting thread runs the work.
            Err(SubmitError::Closed(work)) => work.run(&Turn::unshared()),
            Err(SubmitError::NoThread(work, refusal)) => {
                let code = refusal.raw_os_error().unwrap_or_default();
                let message = format!("no worker: {refusal}");
                work.refuse(&Error::refused(DeviceKind::CPU, "pthread_create", code, message));
            }
        }
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        let (device, level) = device_and_level(stream);
        // The result is ignored: the first submission started a worker, so only a submission after
        // the shutdown fails. The failed work is dropped, because a completer must not run it.
        let _ = self.device(device).workers.submit(level, work);
    }

    unsafe fn stream_query(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(true)
    }

    unsafe fn stream_synchronize(&self, _stream: StreamHandle) -> Result<()> {
        Ok(())
    }

    unsafe fn mark(&self, _stream: StreamHandle, timed: bool) -> Result<Mark> {
        Ok(Mark(if timed { Clock::get().now_ticks() } else { 0 }))
    }

    unsafe fn mark_done(&self, _mark: Mark) -> Result<bool> {
        Ok(true)
    }

    unsafe fn wait_mark(&self, _mark: Mark) -> Result<()> {
        Ok(())
    }

    unsafe fn stream_wait(&self, _stream: StreamHandle, _mark: Mark) -> Result<()> {
        Ok(())
    }

    unsafe fn when_done(&self, _mark: Mark, callback: DoneCallback) -> Result<()> {
        callback();
        Ok(())
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        Ok(Clock::get().ticks_between_ns(start.0, end.0))
    }

    unsafe fn mark_release(&self, _mark: Mark) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        self.device(device_index).memory.allocate(bytes, align_bytes)
    }

    /// The host's cores can access every allocation, so all memory is shared.
    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        self.allocate(device_index, bytes, align_bytes)
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        self.device(device_index).memory.release(address);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        self.host.allocate(bytes, align_bytes)
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        self.host.release(address);
        Ok(())
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let owner = |table: &CpuMemory, device_index, memory| {
            let (base, bytes) = table.owner(address)?;
            Some(PointerOwner { device_index, base, bytes, memory })
        };
        let mut devices = self.devices.iter().enumerate();
        let on_device = devices.find_map(|(index, device)| {
            let mapped = device.pages.as_ref().and_then(|memory| memory.owner(address));
            let mapped = mapped.map(|(base, bytes)| PointerOwner {
                device_index: index,
                base,
                bytes,
                memory: MemoryKind::Shared,
            });
            mapped.or_else(|| owner(&device.memory, index, MemoryKind::Shared))
        });
        Ok(on_device.or_else(|| owner(&self.host, 0, MemoryKind::Host)))
    }

    unsafe fn copy(
        &self,
        _stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        let (to, from) = (to_usize(to.0), to_usize(from.0));
        let (to, from) = (ptr::with_exposed_provenance_mut(to), ptr::with_exposed_provenance(from));
        // SAFETY: the caller upholds that both ranges are valid for `bytes` and disjoint until this
        // task is done.
        unsafe { copy_nonoverlapping_streaming(to, from, bytes) };
        Ok(())
    }

    unsafe fn fill(
        &self,
        _stream: StreamHandle,
        to: Address,
        byte: u8,
        bytes: usize,
    ) -> Result<()> {
        let to = ptr::with_exposed_provenance_mut(to_usize(to.0));
        // SAFETY: the caller upholds that the range is valid for `bytes` until this task is done.
        unsafe { fill_streaming(to, byte, bytes) };
        Ok(())
    }

    fn virtual_memory(&self, device_index: usize) -> Option<&dyn VirtualMemory> {
        self.device(device_index).pages.as_ref().map(|pages| pages as _)
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        let left = self.devices.iter().map(|device| device.workers.shutdown(deadline).busy_threads);
        Leftover { busy_threads: left.sum() }
    }
}
