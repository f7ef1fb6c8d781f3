//! The contract of a device kind: trait `Backend`, with optional `VirtualMemory` and `Kernels`.
//!
//! The engine owns queues, tickets, parking, errors and frontiers; a backend says how a run of
//! tasks is executed and what a device's memory is. Errors are only what a caller cannot foresee
//! (out of memory, device lost, driver refusal); misuse is caught above. Any thread may call any
//! method; a backend makes its context current itself. Handles are opaque numbers of the backend
//! that made them. No method may be called with a lock of ours held.
//!
//! A method that takes a handle or an address is an `unsafe fn`: a kind may follow it as a pointer,
//! or have a device write there. The words of these contracts:
//!
//! - a handle is *live* from the call that made it until the one that gives it back, which is made
//!   once, whatever it returns, and while no other call with the handle is under way;
//! - addresses are *valid* for a task when they are memory of this backend, allocated or mapped, or
//!   memory that its devices reach anyhow, and stay that until the stream has done the task;
//! - a task has memory *alone* when every other use of it is ordered before the task or behind it.
//!
//! `backend/owned.rs` keeps these promises for streams and marks, `allocator/source.rs` for memory,
//! `program/` for programs and kernels, `buffer/` for what tasks read and write.
//!
//! How each method maps to the drivers:
//!
//! | method | CUDA driver API | OpenCL with unified shared memory |
//! |---|---|---|
//! | `may_have_gpu` | the driver's device node | the kernel's render nodes |
//! | `device_count` | `cuInit` in a short-lived child, `cuDeviceGetCount` | `clGetPlatformIDs`, `clGetDeviceIDs` |
//! | `properties` | `cuDeviceGetName`, `cuDeviceGetAttribute`, `cuDeviceTotalMem` | `clGetDeviceInfo` |
//! | `memory_info` | `cuMemGetInfo` | total from `clGetDeviceInfo`, free by our own accounting |
//! | `available_bytes` | nothing: `cuMemGetInfo` tells | the kernel's files, for `CL_DEVICE_HOST_UNIFIED_MEMORY` |
//! | `host_memory_info` | our own accounting | our own accounting |
//! | `priority_range` | `cuCtxGetStreamPriorityRange` | `cl_khr_priority_hints`, else one level |
//! | `runs_on_host` | false | false |
//! | `stream_create` | `cuStreamCreateWithPriority(NON_BLOCKING)` | `clCreateCommandQueueWithProperties` (in order, profiling) |
//! | `stream_destroy` | `cuStreamDestroy` | `clReleaseCommandQueue` |
//! | `stream_wrap` | the `CUstream` itself | `clRetainCommandQueue` |
//! | `stream_native` | `CUstream` | `cl_command_queue` |
//! | `submit` | tasks run on the enqueuing thread, each calls the driver | the same, then `clFlush` |
//! | `flush` | nothing: each call begins at once | `clFlush`, unless a mark did it |
//! | `resume` | tasks run on a resume thread (`resume_threads.rs`) | the same |
//! | `stream_query` | `cuStreamQuery` | status of a marker behind everything |
//! | `stream_synchronize` | `cuStreamSynchronize` | `clFinish` |
//! | `mark` | `cuEventRecord` (`CU_EVENT_DISABLE_TIMING` unless timed) | `clEnqueueMarkerWithWaitList`, `clFlush` |
//! | `mark_done` | `cuEventQuery` | `clGetEventInfo(COMMAND_EXECUTION_STATUS)` |
//! | `wait_mark` | `cuEventSynchronize` | `clWaitForEvents` |
//! | `stream_wait` | `cuStreamWaitEvent` | `clEnqueueBarrierWithWaitList` |
//! | `when_done` | `cuLaunchHostFunc` behind the mark | `clSetEventCallback(CL_COMPLETE)` |
//! | `elapsed_ns` | `cuEventElapsedTime` | `clGetEventProfilingInfo(COMMAND_END)` of both |
//! | `mark_release` | back to the pool of `CUevent` | `clReleaseEvent` |
//! | `allocate`, `release` | `cuMemAlloc`, `cuMemFree` | `clDeviceMemAllocINTEL`, `clMemFreeINTEL` |
//! | `allocate_shared` | `cuMemAllocManaged` | `clSharedMemAllocINTEL` |
//! | `allocate_host`, `release_host` | `cuMemHostAlloc`, `cuMemFreeHost` | `clHostMemAllocINTEL`, `clMemFreeINTEL` |
//! | `pointer_owner` | `cuPointerGetAttributes` | `clGetMemAllocInfoINTEL` |
//! | `copy` | `cuMemcpyAsync` | `clEnqueueMemcpyINTEL` |
//! | `fill` | `cuMemsetD8Async` | `clEnqueueMemFillINTEL` |
//! | `shutdown` | contexts are left to the driver | queues are released |
//! | `VirtualMemory::reserve`, `unreserve` | `cuMemAddressReserve`, `cuMemAddressFree` | no counterpart |
//! | `VirtualMemory::create`, `release` | `cuMemCreate`, `cuMemRelease` | no counterpart |
//! | `VirtualMemory::map`, `unmap` | `cuMemMap` with `cuMemSetAccess`, `cuMemUnmap` | no counterpart |
//! | `VirtualMemory::relocate` | `cuMemUnmap` then `cuMemMap` | no counterpart |
//! | `Kernels::compile`, `program_release` | `cuModuleLoadDataEx`, `cuModuleUnload` | `clCreateProgramWithSource` or `clCreateProgramWithIL`, `clBuildProgram`; `clReleaseProgram` |
//! | `Kernels::kernel`, `kernel_release` | `cuModuleGetFunction`, nothing | `clCreateKernel`, `clReleaseKernel` |
//! | `Kernels::kernel_names` | `cuModuleEnumerateFunctions` | `clGetProgramInfo(KERNEL_NAMES)` |
//! | `Kernels::parameters` | `cuFuncGetParamInfo`: sizes alone | `clGetKernelArgInfo` |
//! | `Kernels::launch` | `cuLaunchKernel` with global / local blocks | `clSetKernelArg`, `clSetKernelArgMemPointerINTEL`, `clEnqueueNDRangeKernel` |
#![expect(unsafe_code, reason = "what takes a handle or an address asks for promises")]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::device::DeviceKind;
use crate::base::error::{DriverError, Error, Result};

pub(crate) mod capacity;
mod kernels;
pub(crate) mod owned;
mod virtual_memory;

pub use kernels::{
    KernelHandle, KernelParameter, Kernels, LaunchArgument, LaunchSize, ParameterClass,
    ProgramHandle, ProgramSource, ValueBytes,
};
pub use virtual_memory::{PhysicalHandle, VirtualMemory};

/// A stream of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u64);

/// A completion mark: a place in a stream that the device will reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub u64);

/// An address as the device sees it. Only code that knows the kind may dereference it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    ///
    /// # Panics
    /// When that is past the end of the address space: our mistake, sizes were checked before.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0.checked_add(bytes as u64).expect("an address inside an allocation"))
    }
}

/// The properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The maker's name of the device.
    pub name: String,
    /// Capacity; on the cpu device the smallest of the machine's memory, the container's limit
    /// and the configured capacity.
    pub total_memory_bytes: usize,
    /// Cores that this process may use; multiprocessors on a GPU.
    pub core_count: usize,
    /// Data caches from level 1 up, per instance; empty when unknown.
    pub cache_bytes: Vec<usize>,
    /// Size of a page.
    pub page_bytes: usize,
    /// Size of a huge page, when the kernel hands them out.
    pub huge_page_bytes: Option<usize>,
    /// True for GPUs: only these are chosen as the accelerator without being named.
    pub is_gpu: bool,
    /// True when there is memory that the device and the host both reach, at one address.
    pub has_shared_memory: bool,
    /// True when the device converts numbers from and to bfloat16 by instructions of its own.
    pub has_bfloat16_conversions: bool,
}

impl DeviceProperties {
    /// Properties with everything unknown but the name and the capacity.
    #[must_use]
    pub fn new(name: impl Into<String>, total_memory_bytes: usize) -> Self {
        Self {
            name: name.into(),
            total_memory_bytes,
            core_count: 1,
            cache_bytes: Vec::new(),
            page_bytes: 4096,
            huge_page_bytes: None,
            is_gpu: false,
            has_shared_memory: false,
            has_bfloat16_conversions: false,
        }
    }
}

/// A device's memory at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The most that the next allocation could get.
    pub free_bytes: usize,
    /// Capacity.
    pub total_bytes: usize,
}

/// Priorities of a device's streams; a smaller number goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRange {
    /// The last to run: the largest number.
    pub least: i32,
    /// The first to run: the smallest number.
    pub greatest: i32,
}

impl PriorityRange {
    /// True when a stream may have this priority.
    #[must_use]
    pub fn contains(self, priority: i32) -> bool {
        (self.greatest..=self.least).contains(&priority)
    }
}

/// Which side reaches memory by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// A device, and others of its kind as far as the driver copies.
    Device,
    /// The host, and the devices of a kind: pinned host memory.
    Host,
    /// A device and the host.
    Shared,
}

/// The allocation that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerOwner {
    /// Index of the owning device; of no meaning for host memory.
    pub device_index: usize,
    /// First address of the allocation.
    pub base: Address,
    /// Size of the allocation.
    pub bytes: usize,
    /// Which side reaches it.
    pub memory: MemoryKind,
}

/// A device of the machine that a kind does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutDevice {
    /// Its maker's name for it, and how it is reached.
    pub name: String,
    /// Why it is not used.
    pub reason: String,
}

/// A stream with tasks to execute, as a backend sees it.
pub trait Work: Send + Sync {
    /// Executes tasks until none is left, one has to wait, or [`Turn::must_yield`] says so. Never
    /// panics. Work that has tasks left schedules itself again.
    fn run(self: Arc<Self>, turn: &Turn<'_>);

    /// How long a worker keeps the work without executing it, and leaves that to waiting threads.
    /// Asked before each [`Work::run`] on a worker, and again after that time.
    fn leave_for(&self) -> Option<Duration> {
        None
    }

    /// False when a thread that came now would probably find nothing to execute: such work need not
    /// be kept for a worker. Asked under a backend's lock.
    fn is_needed(&self) -> bool {
        true
    }

    /// The work is kept no longer, because it was [not needed](Work::is_needed). If tasks arrived
    /// meanwhile, it schedules itself again. Never panics.
    fn give_up(self: Arc<Self>) {}

    /// No thread can execute the work, and none can be started. Called by the thread that submits
    /// the work; its tasks are refused there.
    fn refuse(self: Arc<Self>, _reason: &Error) {}
}

impl fmt::Debug for dyn Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// One turn of a thread that executes work: tells the work when others should have the thread.
pub struct Turn<'a> {
    must_yield: &'a dyn Fn() -> bool,
    others_wait: &'a dyn Fn() -> bool,
    linger: Option<&'a Linger<'a>>,
}

/// How a thread lingers at work that may have more to execute soon: see [`Turn::linger`].
pub type Linger<'a> = dyn Fn(&dyn Fn() -> bool) -> bool + 'a;

impl<'a> Turn<'a> {
    /// A turn on a worker: `must_yield` says that something more urgent is runnable, `others_wait`
    /// that anything is.
    #[must_use]
    pub fn new(must_yield: &'a dyn Fn() -> bool, others_wait: &'a dyn Fn() -> bool) -> Self {
        Self { must_yield, others_wait, linger: None }
    }

    /// A turn on a thread that may linger.
    #[must_use]
    pub fn with_linger(self, linger: &'a Linger<'a>) -> Self {
        Self { linger: Some(linger), ..self }
    }

    /// A turn on a thread that has nothing else to execute.
    #[must_use]
    pub fn unshared() -> Turn<'static> {
        Turn::new(&|| false, &|| false)
    }

    /// True when something more urgent is runnable.
    #[must_use]
    pub fn must_yield(&self) -> bool {
        (self.must_yield)()
    }

    /// True when anything else is runnable: a batch should end at its budget.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        (self.others_wait)()
    }

    /// The work has run empty: waits, if this thread may, for a moment until `has_more` says true.
    /// False ends the turn: the thread looks for other work, and executes no more here.
    #[must_use]
    pub fn linger(&self, has_more: &dyn Fn() -> bool) -> bool {
        self.linger.is_none_or(|linger| linger(has_more))
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

/// How often something happened in a backend since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendCounters {
    /// Sleeping worker threads that were woken for work.
    pub num_worker_wakes: u64,
    /// Workers started because others were blocked inside tasks.
    pub num_spare_workers: u64,
}

/// Threads that a shutdown left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Threads that were still inside user code at the deadline and were left alone.
    pub busy_threads: usize,
}

/// A callback for [`Backend::when_done`].
pub type DoneCallback = Box<dyn FnOnce() + Send + 'static>;

/// The error of `allocate_shared` where there is no such memory.
pub(crate) fn no_shared_memory(kind: DeviceKind) -> Error {
    Error::Driver(DriverError::Unsupported {
        kind,
        capability: "memory that the host shares with them",
    })
}

/// One kind of device. See the head of this file for the rules and the mapping to drivers.
///
/// Safe code does not reach memory by a number:
///
/// ```compile_fail
/// use accelrt::backend::contract::{Address, Backend};
/// let cpu = accelrt::backend::cpu::CpuBackend::new(&accelrt::Config::default())?;
/// let stream = cpu.stream_create(0, 0)?;
/// cpu.fill(stream, Address(0x10), 7, 8)?; // would write anywhere
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use accelrt::backend::contract::{Address, Backend};
/// let cpu = accelrt::backend::cpu::CpuBackend::new(&accelrt::Config::default())?;
/// let (stream, address) = (cpu.stream_create(0, 0)?, cpu.allocate(0, 8, 64)?);
/// // SAFETY: the stream is live; the memory is there until the kind, on which a fill is done when
/// // it returns, is given it back, and nothing else uses it.
/// unsafe { cpu.fill(stream, address, 7, 8)? };
/// // SAFETY: allocated above, and not used any more.
/// unsafe { cpu.release(0, address)? };
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// # Safety
/// The engine's memory safety rests on what an implementation says. Memory that it allocates or
/// maps exists, as large and aligned as asked, and has no other owner until it is given back; the
/// host may follow its addresses where [`Backend::runs_on_host`] or [`Backend::has_host_addresses`]
/// says so and [`MemoryKind`] is not `Device`. A copy, a fill or a launch touches what it was given
/// and nothing else. Work is run by one thread at a time, and never after it was dropped; no work
/// goes on behind a stream that was synchronised or a mark that is done. Methods that are not
/// `unsafe` are sound with every argument.
pub unsafe trait Backend: Send + Sync + fmt::Debug {
    // --- Probing: none of these initialises a device or starts a thread of ours. ---

    /// The kind that this backend implements.
    fn kind(&self) -> DeviceKind;

    /// A cheap look, without loading a driver: false when a probe would find no GPU. Asked before
    /// the runtime probes a kind that the user did not name.
    fn may_have_gpu(&self) -> bool {
        true
    }

    /// How many devices there are. A kind that does not find its driver may fail with
    /// `KindUnavailable`, which says why.
    fn device_count(&self) -> Result<usize>;

    /// Devices that are there and cannot be used, with the reasons.
    fn left_out_devices(&self) -> Vec<LeftOutDevice> {
        Vec::new()
    }

    /// The properties of a device.
    fn properties(&self, device_index: usize) -> Result<DeviceProperties>;

    /// Free and total memory now, by the driver's figures or our own accounting. Where other
    /// programs share the memory, [`Backend::available_bytes`] tells how much they leave.
    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo>;

    /// The memory that the machine, or the container that this process is in, has available; for
    /// devices that use that memory, where `memory_info` does not tell.
    fn available_bytes(&self, _device_index: usize) -> Option<usize> {
        None
    }

    /// Free and total memory for [`Backend::allocate_host`], where this kind counts it.
    fn host_memory_info(&self) -> Option<MemoryInfo> {
        None
    }

    /// The priorities that streams of this device may have.
    fn priority_range(&self, device_index: usize) -> PriorityRange;

    /// True when tasks do their work on the calling thread: a task that returned is done. False
    /// when they only submit to a driver, and marks tell when work is done.
    fn runs_on_host(&self) -> bool;

    /// False when addresses are mere numbers without memory behind them: the host follows none
    /// then.
    fn has_host_addresses(&self) -> bool {
        true
    }

    /// How often something happened since the backend started.
    fn counters(&self) -> BackendCounters {
        BackendCounters::default()
    }

    // --- Streams. ---

    /// Makes a stream. `priority` is inside [`Backend::priority_range`].
    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle>;

    /// Gives a stream back. Nothing is queued in it any more, or the device finishes that by
    /// itself.
    ///
    /// # Safety
    /// The stream is live, and this ends it.
    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()>;

    /// Takes a stream that other code made, by its native handle, without owning it.
    ///
    /// # Safety
    /// `native` is a stream of the driver that exists; its owner keeps it until the wrapped one is
    /// destroyed.
    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle>;

    /// The driver's own handle.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64>;

    /// Has the tasks of a stream executed: on the calling thread by drivers, on a worker by cpu.
    /// Called by the thread that enqueued, so order of submission is order of enqueueing. The
    /// stream is not destroyed before this returns: the caller holds it beside `work`.
    ///
    /// # Safety
    /// The stream is live until this returns.
    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>);

    /// Has the device begin with the commands that tasks of this thread gave to the stream. Called
    /// after each task that is executed without [`Backend::submit`], which flushes by itself.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn flush(&self, _stream: StreamHandle) {}

    /// As [`Backend::submit`], called by a completer: never executes on the caller's stack. On
    /// kinds that run on the host `work` may also be a part of a task that others may help with.
    ///
    /// # Safety
    /// The stream is live until this returns.
    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>);

    /// True when the device has done everything submitted to the stream.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool>;

    /// Blocks until the device has done everything submitted to the stream.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;

    // --- Marks. Each mark is released exactly once, also when it was never waited for. ---

    /// Marks the place that the stream has reached; with a time stamp when `timed`.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn mark(&self, stream: StreamHandle, timed: bool) -> Result<Mark>;

    /// True when the device has reached the mark.
    ///
    /// # Safety
    /// The mark is live.
    unsafe fn mark_done(&self, mark: Mark) -> Result<bool>;

    /// Blocks until the device has reached the mark.
    ///
    /// # Safety
    /// The mark is live.
    unsafe fn wait_mark(&self, mark: Mark) -> Result<()>;

    /// Makes later submissions to `stream` wait, on the device, for the mark.
    ///
    /// # Safety
    /// The stream and the mark are live.
    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()>;

    /// Calls back once when the device has reached the mark, on any thread, possibly before this
    /// returns. The callback only posts: it never calls a backend. It is called also when the
    /// device is lost; it is dropped uncalled when this returns an error.
    ///
    /// # Safety
    /// The mark is live until this returns.
    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()>;

    /// Nanoseconds from one timed mark to another of the same device; both are done.
    ///
    /// # Safety
    /// Both marks are live.
    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64>;

    /// Gives a mark back.
    ///
    /// # Safety
    /// The mark is live, and this ends it.
    unsafe fn mark_release(&self, mark: Mark) -> Result<()>;

    // --- Memory. ---

    /// Memory on a device, aligned to `align_bytes` (a power of two) and at least to 64 bytes.
    /// `bytes` is not zero.
    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;

    /// As `allocate`, where the host reaches the memory as well while no task uses it. Fails with
    /// `Unsupported` where the properties say that the device has none.
    fn allocate_shared(
        &self,
        _device_index: usize,
        _bytes: usize,
        _align_bytes: usize,
    ) -> Result<Address> {
        Err(no_shared_memory(self.kind()))
    }

    /// Gives back what `allocate` or `allocate_shared` returned. No task uses it any more.
    ///
    /// # Safety
    /// `allocate` or `allocate_shared` of this backend returned the address for this device, and it
    /// was not given back since. No task or thread uses the memory, now or later.
    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()>;

    /// Host memory that the devices of this kind reach directly, aligned to at least 64 bytes.
    /// `bytes` is not zero.
    fn allocate_host(&self, bytes: usize) -> Result<Address>;

    /// Gives back what `allocate_host` returned.
    ///
    /// # Safety
    /// `allocate_host` of this backend returned the address, and it was not given back since. No
    /// task or thread uses the memory, now or later.
    unsafe fn release_host(&self, address: Address) -> Result<()>;

    /// The allocation that contains this address, if it is one of this backend's.
    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>>;

    /// Copies `bytes` on a stream; the ranges do not overlap, and are host or device memory.
    ///
    /// # Safety
    /// The stream is live. Both ranges are valid for the task, it has `to` alone, and nothing
    /// writes to `from` meanwhile.
    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()>;

    /// Fills `bytes` on a stream with one byte.
    ///
    /// # Safety
    /// The stream is live. The range is valid for the task, which has it alone.
    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()>;

    /// Pages that can be mapped and moved, where the device has that.
    fn virtual_memory(&self, _device_index: usize) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Programs of kernels, where the kind has a compiler.
    fn kernels(&self) -> Option<&dyn Kernels> {
        None
    }

    /// Stops: nothing is submitted any more. Threads that come back before the deadline are joined.
    fn shutdown(&self, deadline: Instant) -> Leftover;
}
