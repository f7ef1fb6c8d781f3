//! The contract's methods for the null kind. They check each handle and address; misuse panics.
#![expect(unsafe_code, reason = "implements the contract's unsafe methods, on numbers")]

use std::sync::Arc;
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DoneCallback, KernelHandle, KernelParameter, Kernels, LaunchArgument,
    LaunchSize, Leftover, Mark, MemoryKind, PointerOwner, ProgramHandle, ProgramSource,
    StreamHandle, Turn, VirtualMemory, Work,
};
use accelrt::{
    Device, DeviceKind, DeviceProperties, Error, MemoryInfo, PriorityRange, ProgramError, Result,
};

use super::NullBackend;
use super::device::PRIORITIES;
use super::memory::{HostMemory, LEAST_ALIGN_BYTES, Place};
use super::program::Launched;
use super::timeline::Timeline;

/// Codes of this kind's driver errors.
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
    Error::refused(kind, call, code as i64, message)
}

// SAFETY: no memory backs the addresses, so no code dereferences them (`has_host_addresses`). No
// live handle is issued twice.
unsafe impl Backend for NullBackend {
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

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        self.timeline.lock().streams.destroy(stream);
        Ok(())
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        self.device(device_index)?;
        let wrapped = self.timeline.lock().streams.wrap(device_index, native);
        wrapped.ok_or_else(|| driver_error(self.kind, "stream_wrap", Code::InvalidHandle))
    }

    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        Ok(self.timeline.lock().streams.native(stream))
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if self.count_work(stream) {
            work.run(&Turn::unshared());
        }
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if self.count_work(stream) {
            self.resume_threads.post(work);
        }
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.timeline.lock().streams.poll_end(stream))
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        let streams = &mut self.timeline.lock().streams;
        let end = streams.end(stream);
        streams.finish(end);
        Ok(())
    }

    unsafe fn mark(&self, stream: StreamHandle, timed: bool) -> Result<Mark> {
        let mut timeline = self.timeline.lock();
        let submission = timeline.streams.submit(stream);
        Ok(timeline.marks.place(submission, timed))
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        Ok(marks.poll(mark, streams))
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        streams.finish(marks.point(mark));
        Ok(())
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        let Timeline { streams, marks, .. } = &mut *self.timeline.lock();
        streams.submit_wait(stream, marks.point(mark));
        Ok(())
    }

    /// Completes the mark and calls `callback` on this thread: the null kind has no driver thread.
    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        // SAFETY: the caller upholds that the mark is live.
        unsafe { self.wait_mark(mark) }?;
        callback();
        Ok(())
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let Timeline { streams, marks, .. } = &*self.timeline.lock();
        Ok(marks.elapsed_ns(start, end, streams))
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
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

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        self.device(device_index)?.release_allocation(address);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let HostMemory { arena, allocations } = &mut *self.host.lock();
        let address = allocations.allocate(arena, bytes, align_bytes.max(LEAST_ALIGN_BYTES));
        address.ok_or_else(|| driver_error(self.kind, "allocate_host", Code::OutOfAddresses))
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        let mut host = self.host.lock();
        let HostMemory { arena, allocations } = &mut *host;
        allocations.release(arena, address);
        drop(host);
        self.reuse.yield_after_release();
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

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        self.check_range(to, bytes);
        self.check_range(from, bytes);
        let mut timeline = self.timeline.lock();
        timeline.streams.submit(stream);
        timeline.moved.copied_bytes += bytes as u64;
        Ok(())
    }

    unsafe fn fill(
        &self,
        stream: StreamHandle,
        to: Address,
        _byte: u8,
        bytes: usize,
    ) -> Result<()> {
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
        self.resume_threads.shutdown(deadline)
    }
}

// SAFETY: a launch accesses no memory; `launch` only records it.
unsafe impl Kernels for NullBackend {
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        _options: &str,
    ) -> Result<ProgramHandle> {
        self.device(device_index)?;
        let compiled = self.programs.lock().compile(device_index, source);
        let device = Device::new(self.kind, device_index)?;
        compiled.map_err(|log| Error::Program(ProgramError::BuildFailed { device, log }))
    }

    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>> {
        let programs = self.programs.lock();
        Ok(programs.kernels_of(program).iter().map(|kernel| kernel.name.clone()).collect())
    }

    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle> {
        let kernel = self.programs.lock().create_kernel(program, name).map(KernelHandle);
        kernel.ok_or_else(|| driver_error(self.kind, "kernel", Code::InvalidHandle))
    }

    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>> {
        Ok(self.programs.lock().kernel(kernel.0).parameters.clone())
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        for argument in arguments {
            if let LaunchArgument::Memory(address) = argument
                && address.0 != 0
            {
                self.check_range(*address, 1);
            }
        }
        let submission = self.timeline.lock().streams.submit(stream);
        let mut programs = self.programs.lock();
        let found = programs.kernel(kernel.0);
        assert_eq!(submission.device_index, found.device_index, "a stream of the kernel's device");
        found.check(arguments);
        let kernel = found.name.clone();
        programs.launched.push(Launched { kernel, arguments: arguments.to_vec(), size: *size });
        Ok(())
    }

    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()> {
        self.programs.lock().release_kernel(kernel.0);
        Ok(())
    }

    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()> {
        self.programs.lock().release_program(program);
        Ok(())
    }
}
