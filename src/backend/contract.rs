//! The contract of a device kind: trait `Backend`, with optional `VirtualMemory` and `Kernels`.
//!
//! The engine owns queues, tickets, parking, errors and frontiers. A backend executes runs of tasks
//! and provides device memory. It reports only errors that a caller cannot foresee (out of memory,
//! device lost, driver refusal); the layers above reject misuse. Any thread may call any method, so
//! each method makes its context current. Handles are opaque numbers, valid only for the backend
//! that issued them. A caller holds no lock of this crate during a fallible call.
//!
//! A method that takes a handle or an address is an `unsafe fn`, because a backend may dereference
//! the number or let a device write there. Terms of these contracts:
//!
//! - a handle is *live* from the call that returns it until its release. Its owner releases it
//!   once, while no other call uses it. A failed release also ends the handle's life;
//! - addresses are *valid* for a task if, until the task is done, they lie in allocated or mapped
//!   memory of this backend or in other memory that its devices can access;
//! - memory is *exclusive* to a task when every other access is ordered before or after the task.
//!
//! Callers: the engine of streams for streams and marks, allocators for memory, programs for
//! programs and kernels, and the tasks of buffers for accesses.
//!
//! How each method maps to the drivers:
//!
//! | method | CUDA driver API | OpenCL with unified shared memory |
//! |---|---|---|
//! | `may_have_gpu` | the driver's device node | the kernel's render nodes |
//! | `device_count` | `cuInit` in a short-lived child, `cuDeviceGetCount` | `clGetPlatformIDs`, `clGetDeviceIDs` |
//! | `properties` | `cuDeviceGetName`, `cuDeviceGetAttribute`, `cuDeviceTotalMem` | `clGetDeviceInfo` |
//! | `memory_info` | `cuMemGetInfo` | total from `clGetDeviceInfo`, free by our own accounting |
//! | `available_bytes` | not needed: `cuMemGetInfo` includes it | the kernel's files, for `CL_DEVICE_HOST_UNIFIED_MEMORY` |
//! | `host_memory_info` | our own accounting | our own accounting |
//! | `priority_range` | `cuCtxGetStreamPriorityRange` | `cl_khr_priority_hints`, else one level |
//! | `runs_on_host` | false | false |
//! | `stream_create` | `cuStreamCreateWithPriority(NON_BLOCKING)` | `clCreateCommandQueueWithProperties` (in order, profiling) |
//! | `stream_destroy` | `cuStreamDestroy` | `clReleaseCommandQueue` |
//! | `stream_wrap` | the `CUstream` itself | `clRetainCommandQueue` |
//! | `stream_native` | `CUstream` | `cl_command_queue` |
//! | `submit` | the enqueuing thread runs the tasks, which call the driver | the same, then `clFlush` |
//! | `flush` | not needed: the driver starts each command at once | `clFlush`, unless a mark has flushed |
//! | `resume` | a resume thread runs the tasks | the same, then `clFlush` |
//! | `stream_query` | `cuStreamQuery` | status of a marker after all commands |
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
//! | `shutdown` | contexts are left to the driver | owners release the queues |
//! | `VirtualMemory::reserve`, `unreserve` | `cuMemAddressReserve`, `cuMemAddressFree` | no counterpart |
//! | `VirtualMemory::create`, `release` | `cuMemCreate`, `cuMemRelease` | no counterpart |
//! | `VirtualMemory::map`, `unmap` | `cuMemMap` with `cuMemSetAccess`, `cuMemUnmap` | no counterpart |
//! | `VirtualMemory::relocate` | `cuMemUnmap` then `cuMemMap` | no counterpart |
//! | `Kernels::compile`, `program_release` | `cuModuleLoadDataEx`, `cuModuleUnload` | `clCreateProgramWithSource` or `clCreateProgramWithIL`, `clBuildProgram`; `clReleaseProgram` |
//! | `Kernels::kernel`, `kernel_release` | `cuModuleGetFunction`, nothing | `clCreateKernel`, `clReleaseKernel` |
//! | `Kernels::kernel_names` | `cuModuleEnumerateFunctions` | `clGetProgramInfo(KERNEL_NAMES)` |
//! | `Kernels::parameters` | `cuFuncGetParamInfo`: only sizes | `clGetKernelArgInfo` |
//! | `Kernels::launch` | `cuLaunchKernel` with global / local blocks | `clSetKernelArg`, `clSetKernelArgMemPointerINTEL`, `clEnqueueNDRangeKernel` |
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::device::DeviceKind;
use crate::base::error::{DriverError, Error, Result};

mod capabilities;
pub(crate) mod capacity;
mod handles;
pub(crate) mod owned;

pub use capabilities::{
    KernelParameter, Kernels, LaunchArgument, LaunchSize, PagePlaces, ParameterClass,
    ProgramSource, ValueBytes, VirtualMemory,
};
pub use handles::{Address, KernelHandle, Mark, PhysicalHandle, ProgramHandle, StreamHandle};

/// A device's name, capacity and features. Backends add what they know to [`Self::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The vendor's name of the device.
    pub name: String,
    /// Capacity. On the cpu device, the minimum of the machine's memory, the container's limit and
    /// the configured capacity.
    pub total_memory_bytes: usize,
    /// Cores that this process may use; on a GPU, its multiprocessors.
    pub core_count: usize,
    /// Size of one data cache of each level, from level 1 up; empty when unknown.
    pub cache_bytes: Vec<usize>,
    /// Size of a memory page; 4096 when unknown.
    pub page_bytes: usize,
    /// Size of a huge page; `None` if the kernel provides none.
    pub huge_page_bytes: Option<usize>,
    /// True for GPUs. A kind without GPUs, except cpu, is the accelerator only if the settings name
    /// it.
    pub is_gpu: bool,
    /// True when the device can allocate memory that it and the host access at the same address.
    pub has_shared_memory: bool,
    /// True when the device has instructions that convert to and from bfloat16.
    pub has_bfloat16_conversions: bool,
}

impl DeviceProperties {
    /// Sets the name and the capacity. Defaults: one core, pages of 4 KiB, no caches or features.
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

/// The free and total memory of a device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Upper bound of the next allocation's size.
    pub free_bytes: usize,
    /// The device's capacity, including the memory in use.
    pub total_bytes: usize,
}

/// The stream priorities of a device. Streams with a smaller number run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRange {
    /// The largest number, for streams that run last.
    pub least: i32,
    /// The smallest number, for streams that run first.
    pub greatest: i32,
}

impl PriorityRange {
    /// True when `priority` is from `greatest` to `least`, both included.
    #[must_use]
    pub fn contains(self, priority: i32) -> bool {
        (self.greatest..=self.least).contains(&priority)
    }
}

/// Which processors can access memory through its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// One device. Copies on other devices of its kind may access it where the driver allows.
    Device,
    /// The host and the devices of one kind: pinned host memory.
    Host,
    /// One device and the host.
    Shared,
}

/// The allocation that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerOwner {
    /// Index of the owning device; meaningless for host memory.
    pub device_index: usize,
    /// First address of the allocation.
    pub base: Address,
    /// Size of the allocation.
    pub bytes: usize,
    /// Which processors can access the allocation.
    pub memory: MemoryKind,
}

/// A device of the machine that the backend cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutDevice {
    /// The vendor's name of the device, and the name of the driver's platform.
    pub name: String,
    /// Why the backend cannot use this device, as a part of an error message.
    pub reason: String,
}

/// A stream with tasks to execute, as a backend sees it.
pub trait Work: Send + Sync {
    /// Executes tasks until the queue is empty, a task has to wait, or `turn` demands an end. Never
    /// panics. If tasks remain, the implementation arranges the next run.
    fn run(self: Arc<Self>, turn: &Turn<'_>);

    /// The time for which a worker leaves the work to a waiting thread; `None` to run it now. A
    /// worker calls this before each [`Work::run`], and again when the time has passed.
    fn leave_for(&self) -> Option<Duration> {
        None
    }

    /// False when a run now would probably find no task. The backend may then drop the work from
    /// its queue. The backend holds a lock during the call, so this must not call the backend.
    fn is_needed(&self) -> bool {
        true
    }

    /// The backend calls this after it dropped [unneeded](Work::is_needed) work from its queue. If
    /// tasks have arrived since, the implementation submits the work again. Never panics.
    fn give_up(self: Arc<Self>) {}

    /// The submitting thread calls this when no thread can run the work. The implementation retires
    /// the work's tasks with `_reason` as their error.
    fn refuse(self: Arc<Self>, _reason: &Error) {}
}

impl fmt::Debug for dyn Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// Tells work, during one [`Work::run`], when to give way to other work on the thread.
pub struct Turn<'a> {
    must_yield: &'a dyn Fn() -> bool,
    others_wait: &'a dyn Fn() -> bool,
    linger: Option<&'a Linger<'a>>,
}

/// Polls its argument for some microseconds. [`Turn::linger`] documents the result.
pub type Linger<'a> = dyn Fn(&dyn Fn() -> bool) -> bool + 'a;

impl<'a> Turn<'a> {
    /// Creates a turn on a worker. `must_yield` reports whether more urgent work is runnable, and
    /// `others_wait` whether any other work is runnable.
    #[must_use]
    pub fn new(must_yield: &'a dyn Fn() -> bool, others_wait: &'a dyn Fn() -> bool) -> Self {
        Self { must_yield, others_wait, linger: None }
    }

    /// Adds the function that [`Self::linger`] calls.
    #[must_use]
    pub fn with_linger(self, linger: &'a Linger<'a>) -> Self {
        Self { linger: Some(linger), ..self }
    }

    /// Creates a turn that never demands an end, for a thread without other work.
    #[must_use]
    pub fn unshared() -> Turn<'static> {
        Turn::new(&|| false, &|| false)
    }

    /// True when more urgent work is runnable: the turn should end soon.
    #[must_use]
    pub fn must_yield(&self) -> bool {
        (self.must_yield)()
    }

    /// True when any other work is runnable: the turn should end after a batch of tasks.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        (self.others_wait)()
    }

    /// Work that has run out of tasks calls this. A thread that may linger polls `has_more` for
    /// some microseconds. After false, the turn must end, so that the thread runs other work.
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

/// Counters of a backend since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendCounters {
    /// Wakes of sleeping worker threads.
    pub num_worker_wakes: u64,
    /// Workers that the backend started because others blocked inside tasks.
    pub num_spare_workers: u64,
}

/// Threads that a shutdown did not join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Threads that were still inside user code at the deadline; they continue to run.
    pub busy_threads: usize,
}

/// A function to call when the device has reached a mark. [`Backend::when_done`] has the rules.
pub type DoneCallback = Box<dyn FnOnce() + Send + 'static>;

/// The error of `allocate_shared` on a kind without shared memory.
#[doc(hidden)]
#[must_use]
pub fn no_shared_memory(kind: DeviceKind) -> Error {
    Error::Driver(DriverError::Unsupported {
        kind,
        capability: "memory that the host shares with them",
    })
}

/// One kind of device, as the engine uses it. The [module](self) defines the terms used here.
///
/// Safe code cannot access memory through an address:
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
/// // SAFETY: the stream is live, and nothing else uses the 8 bytes allocated above. On the cpu
/// // kind, the fill is done when it returns, so before the release.
/// unsafe { cpu.fill(stream, address, 7, 8)? };
/// // SAFETY: `allocate` returned the address, and nothing uses the memory any more.
/// unsafe { cpu.release(0, address)? };
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// # Safety
/// The engine's memory safety depends on each implementation. Memory that the backend allocates or
/// maps has the requested size and alignment, and no other owner, until its release. The host may
/// access the memory where [`Backend::runs_on_host`] or [`Backend::has_host_addresses`] is true and
/// its [`MemoryKind`] is not `Device`. A copy, a fill or a launch accesses only its arguments. One
/// thread at a time runs a work; no thread runs it after the backend drops it. When a stream is
/// synchronised or a mark is done, the device no longer accesses memory for earlier work. Methods
/// that are not `unsafe` are sound with every argument.
pub unsafe trait Backend: Send + Sync + fmt::Debug {
    // --- Probing: these methods initialise no device and start no thread of this crate. ---

    /// The kind of this backend's devices.
    fn kind(&self) -> DeviceKind;

    /// A cheap test that loads no driver. False only when a probe would find no GPU. The runtime
    /// calls this before it probes a kind that the user did not name.
    fn may_have_gpu(&self) -> bool {
        true
    }

    /// The number of devices. A backend without a usable driver may fail with `KindUnavailable`,
    /// which holds the reason.
    fn device_count(&self) -> Result<usize>;

    /// Devices that are present but unusable, with the reasons.
    fn left_out_devices(&self) -> Vec<LeftOutDevice> {
        Vec::new()
    }

    /// The device's name, capacity and features; does not initialise the device.
    fn properties(&self, device_index: usize) -> Result<DeviceProperties>;

    /// Free and total memory now, from the driver or from the backend's accounting. Where other
    /// programs use the same memory, [`Backend::available_bytes`] reports what they leave free.
    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo>;

    /// The memory available on the machine or in this process's container. `Some` for devices that
    /// use the host's memory, unless `memory_info` already accounts for other programs.
    fn available_bytes(&self, _device_index: usize) -> Option<usize> {
        None
    }

    /// Free and total memory for [`Backend::allocate_host`]; `None` if the backend counts neither.
    fn host_memory_info(&self) -> Option<MemoryInfo> {
        None
    }

    /// The priorities that streams of this device accept.
    fn priority_range(&self, device_index: usize) -> PriorityRange;

    /// True when a task is complete as soon as the thread that executes it returns from it. False
    /// when a task only submits commands to a driver; marks then report completion.
    fn runs_on_host(&self) -> bool;

    /// False when no memory backs this kind's addresses. The host then never dereferences them.
    fn has_host_addresses(&self) -> bool {
        true
    }

    /// Counters since the backend's start; zero on kinds that count nothing.
    fn counters(&self) -> BackendCounters {
        BackendCounters::default()
    }

    // --- Streams. ---

    /// Creates a stream. `priority` must be inside [`Backend::priority_range`].
    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle>;

    /// Destroys a stream. The device still completes the commands that were passed to the stream.
    ///
    /// # Safety
    /// The stream is live; the call ends its life.
    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()>;

    /// Wraps the native handle of a stream that other code owns.
    ///
    /// # Safety
    /// `native` is an existing stream of the driver. Its owner destroys it only after the returned
    /// stream is destroyed.
    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle>;

    /// The driver's handle of a stream, as a `CUstream`. Kinds without a driver may fail.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64>;

    /// Executes the tasks of a stream: driver kinds on the calling thread, cpu on a worker. The
    /// thread that finds the stream runnable calls it: one that enqueues, or one that executed it.
    ///
    /// # Safety
    /// The stream is live until this returns.
    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>);

    /// Makes the device start on the commands that this thread's tasks passed to the stream. The
    /// engine calls it after a task outside [`Backend::submit`] and [`Backend::resume`], which
    /// flush by themselves.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn flush(&self, _stream: StreamHandle) {}

    /// As [`Backend::submit`], but the work never runs on the caller's stack. A completer calls it.
    /// On host kinds, a task that several threads execute also calls it; `work` then helps with it.
    ///
    /// # Safety
    /// The stream is live until this returns.
    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>);

    /// True when the device has completed everything submitted to the stream.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool>;

    /// Blocks until the device has completed everything submitted to the stream.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;

    // --- Marks. The owner releases each mark exactly once, even if nothing waited for it. ---

    /// Records a mark behind everything submitted to the stream, with a time stamp when `timed`.
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

    /// Makes the device wait for the mark before it executes later submissions to `stream`.
    ///
    /// # Safety
    /// The stream and the mark are live.
    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()>;

    /// Calls `callback` once, when the device has reached the mark or is lost. Any thread may make
    /// the call, even before this method returns. The callback may drop the last handle of a
    /// stream, which calls this backend and may wait for the device: `backend::callbacks::posting`
    /// moves the call away from a driver's thread, which must not do that. On an error, this method
    /// drops the callback without a call.
    ///
    /// # Safety
    /// The mark is live until this returns.
    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()>;

    /// Nanoseconds from `start` to `end`, two timed marks of one device. Both must be done.
    ///
    /// # Safety
    /// Both marks are live.
    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64>;

    /// Releases a mark, reached or not.
    ///
    /// # Safety
    /// The mark is live; the call ends its life.
    unsafe fn mark_release(&self, mark: Mark) -> Result<()>;

    // --- Memory. ---

    /// Allocates device memory, aligned to `align_bytes` (a power of two) and at least to 64 bytes.
    /// `bytes` must not be zero.
    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;

    /// As `allocate`, for memory that the host can also access while no task uses it. A device
    /// without [`DeviceProperties::has_shared_memory`] fails with `Unsupported`.
    fn allocate_shared(
        &self,
        _device_index: usize,
        _bytes: usize,
        _align_bytes: usize,
    ) -> Result<Address> {
        Err(no_shared_memory(self.kind()))
    }

    /// Frees memory of `allocate` or `allocate_shared`.
    ///
    /// # Safety
    /// `allocate` or `allocate_shared` of this backend and device returned the address, which was
    /// not released since. No task or thread uses the memory, now or later.
    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()>;

    /// Allocates host memory that this kind's devices access directly, aligned as by `allocate`.
    /// `bytes` must not be zero.
    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address>;

    /// Frees memory of `allocate_host`.
    ///
    /// # Safety
    /// `allocate_host` of this backend returned the address, which was not released since. No task
    /// or thread uses the memory, now or later.
    unsafe fn release_host(&self, address: Address) -> Result<()>;

    /// The allocation that contains this address; `None` when the backend knows none.
    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>>;

    /// Copies `bytes` bytes, in stream order, and does not wait for the copy. Each range is memory
    /// of this kind's devices or of the process, pageable too. The ranges must not overlap.
    ///
    /// # Safety
    /// The stream is live. Both ranges are valid for the task, `to` is exclusive to it, and nothing
    /// writes to `from` until the task is done.
    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()>;

    /// Sets `bytes` bytes to `byte`, in stream order.
    ///
    /// # Safety
    /// The stream is live. The range is valid for the task and exclusive to it.
    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()>;

    /// Virtual memory of the device: pages that can be mapped and moved. `None` where unsupported.
    fn virtual_memory(&self, _device_index: usize) -> Option<&dyn VirtualMemory> {
        None
    }

    /// The compiler for kernels; `None` where unsupported.
    fn kernels(&self) -> Option<&dyn Kernels> {
        None
    }

    /// Stops the backend. Joins the threads that end before the deadline and reports the others.
    fn shutdown(&self, deadline: Instant) -> Leftover;
}
