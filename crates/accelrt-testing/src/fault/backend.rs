//! A backend that lets planned calls of another one fail.
#![expect(unsafe_code, reason = "forwards calls whose callers uphold the contract")]

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, BackendCounters, DoneCallback, KernelHandle, KernelParameter, Kernels,
    LaunchArgument, LaunchSize, Leftover, Mark, PhysicalHandle, PointerOwner, ProgramHandle,
    ProgramSource, StreamHandle, VirtualMemory, Work,
};
use accelrt::{
    DeviceKind, DeviceProperties, LeftOutDevice, MAX_DEVICE_INDEX, MemoryInfo, PriorityRange,
    Result,
};

use super::Method;
use super::plan::{Fault, FaultError, Injector, Request};

/// Defines fallible methods of a trait. Each calls the inner object unless a fault is planned for
/// the call. An entry is `Variant(request) signature`, with a variant of [`Method`].
macro_rules! injected {
    ($($method:ident($request:expr) $name:ident($($input:ident: $type:ty),*) -> $value:ty;)*) => {
        $(fn $name(&self, $($input: $type),*) -> Result<$value> {
            self.call(Method::$method, $request, |inner| inner.$name($($input),*))
        })*
    };
}

/// As `injected!`, for unsafe methods.
macro_rules! injected_unsafe {
    ($($method:ident($request:expr) $name:ident($($input:ident: $type:ty),*) -> $value:ty;)*) => {
        $(unsafe fn $name(&self, $($input: $type),*) -> Result<$value> {
            self.call(Method::$method, $request, |inner| {
                // SAFETY: the caller upholds the method's contract. Handles and addresses pass
                // unchanged, so the contract holds for the inner object. A release takes effect
                // even if it reports an error, and the caller does not retry it.
                unsafe { inner.$name($($input),*) }
            })
        })*
    };
}

/// Wraps a backend and fails planned calls to it. The [module](super) has the rules.
///
/// ```
/// use accelrt::backend::contract::Backend;
/// use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
/// backend.plan(Fault::nth(Method::Allocate, 2, FaultError::OutOfMemory));
/// assert!(backend.allocate(0, 64, 64).is_ok());
/// assert!(backend.allocate(0, 64, 64).is_err());
/// assert!(backend.allocate(0, 64, 64).is_ok());
/// assert_eq!((backend.calls(Method::Allocate), backend.failures(Method::Allocate)), (3, 1));
/// ```
#[derive(Debug)]
pub struct FaultBackend {
    pub(super) injector: Arc<Injector>,
    /// One wrapper per possible device index: counting the inner devices could probe a driver.
    virtual_memory: Vec<FaultVirtualMemory>,
    kernels: FaultKernels,
}

impl FaultBackend {
    /// Wraps `inner`. No fault is planned yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Arc<Self> {
        let injector = Arc::new(Injector::new(inner));
        let virtual_memory = (0..=usize::from(MAX_DEVICE_INDEX))
            .map(|device_index| FaultVirtualMemory {
                injector: Arc::clone(&injector),
                device_index,
            })
            .collect();
        let kernels = FaultKernels(Arc::clone(&injector));
        Arc::new(Self { injector, virtual_memory, kernels })
    }

    /// Plans a fault, in addition to earlier ones. The fault counts only calls after this one.
    ///
    /// # Panics
    /// When the call is 0, or the error is `OutOfMemory` for a method that takes no memory.
    pub fn plan(&self, fault: Fault) {
        self.injector.plan(fault);
    }

    /// Calls `run` inside the `call`-th later call of a method, after the inner call and before the
    /// return: between two steps of the caller. A planned failure drops `run` uncalled.
    ///
    /// # Panics
    /// When `call` is 0.
    pub fn plan_callback(&self, method: Method, call: u64, run: impl FnOnce() + Send + 'static) {
        self.injector.plan_callback(method, call, Box::new(run));
    }

    /// Lets `decide` say, for each call of a method for a device, whether and how it fails. Calls
    /// that name neither a device nor what it has, as a stream, a mark or a kernel, count for
    /// device 0. Later calls of this have no effect.
    ///
    /// ```
    /// use accelrt::backend::contract::Backend;
    /// use accelrt_testing::fault::{FaultBackend, FaultError, Method};
    /// # use accelrt_testing::null::{NullBackend, NullConfig};
    /// let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
    /// backend.plan_by(|method, _device| {
    ///     (method == Method::StreamCreate).then_some(FaultError::Driver)
    /// });
    /// assert!(backend.stream_create(0, 0).is_err());
    /// ```
    pub fn plan_by(
        &self,
        decide: impl Fn(Method, usize) -> Option<FaultError> + Send + Sync + 'static,
    ) {
        let _ = self.injector.decide.set(Box::new(decide));
    }

    /// Removes all planned faults and all pending callbacks of `plan_callback`. Resets no count.
    pub fn clear(&self) {
        self.injector.clear();
    }

    /// The number of calls of a method, failures included. Exact when no other thread is in a call.
    #[must_use]
    pub fn calls(&self, method: Method) -> u64 {
        self.injector.calls(method)
    }

    /// How many calls of a method failed as planned. Refusals by the inner backend do not count.
    #[must_use]
    pub fn failures(&self, method: Method) -> u64 {
        self.injector.failures(method)
    }

    /// The wrapped backend. Direct calls to it are not counted and do not fail as planned.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Backend> {
        &self.injector.inner
    }

    fn call<T: Any>(
        &self,
        method: Method,
        request: Request,
        act: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Result<T> {
        self.injector.call(method, request, act)
    }
}

// SAFETY: every result is the inner backend's, which upholds the contract.
unsafe impl Backend for FaultBackend {
    injected! {
        DeviceCount(Request::ANY) device_count() -> usize;
        Properties(Request::of(device_index)) properties(device_index: usize) -> DeviceProperties;
        MemoryInfo(Request::of(device_index)) memory_info(device_index: usize) -> MemoryInfo;
        StreamCreate(Request::of(device_index))
            stream_create(device_index: usize, priority: i32) -> StreamHandle;
        Allocate(Request { bytes, ..Request::of(device_index) })
            allocate(device_index: usize, bytes: usize, align_bytes: usize) -> Address;
        AllocateShared(Request { bytes, ..Request::of(device_index) })
            allocate_shared(device_index: usize, bytes: usize, align_bytes: usize) -> Address;
        AllocateHost(Request { bytes, ..Request::ANY })
            allocate_host(bytes: usize, align_bytes: usize) -> Address;
        PointerOwner(Request::ANY) pointer_owner(address: Address) -> Option<PointerOwner>;
    }

    injected_unsafe! {
        StreamDestroy(Request::on(stream)) stream_destroy(stream: StreamHandle) -> ();
        StreamWrap(Request::of(device_index))
            stream_wrap(device_index: usize, native: u64) -> StreamHandle;
        StreamNative(Request::on(stream)) stream_native(stream: StreamHandle) -> u64;
        StreamQuery(Request::on(stream)) stream_query(stream: StreamHandle) -> bool;
        StreamSynchronize(Request::on(stream)) stream_synchronize(stream: StreamHandle) -> ();
        Mark(Request::on(stream)) mark(stream: StreamHandle, timed: bool) -> Mark;
        MarkDone(Request::on(mark)) mark_done(mark: Mark) -> bool;
        WaitMark(Request::on(mark)) wait_mark(mark: Mark) -> ();
        StreamWait(Request::on(stream)) stream_wait(stream: StreamHandle, mark: Mark) -> ();
        WhenDone(Request::on(mark)) when_done(mark: Mark, callback: DoneCallback) -> ();
        ElapsedNs(Request::on(start)) elapsed_ns(start: Mark, end: Mark) -> i64;
        MarkRelease(Request::on(mark)) mark_release(mark: Mark) -> ();
        Release(Request::of(device_index)) release(device_index: usize, address: Address) -> ();
        ReleaseHost(Request::ANY) release_host(address: Address) -> ();
        Copy(Request::on(stream))
            copy(stream: StreamHandle, to: Address, from: Address, bytes: usize) -> ();
        Fill(Request::on(stream))
            fill(stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> ();
    }

    fn kind(&self) -> DeviceKind {
        self.inner().kind()
    }

    fn may_have_gpu(&self) -> bool {
        self.inner().may_have_gpu()
    }

    fn left_out_devices(&self) -> Vec<LeftOutDevice> {
        self.inner().left_out_devices()
    }

    fn priority_range(&self, device_index: usize) -> PriorityRange {
        self.inner().priority_range(device_index)
    }

    fn runs_on_host(&self) -> bool {
        self.inner().runs_on_host()
    }

    fn has_host_addresses(&self) -> bool {
        self.inner().has_host_addresses()
    }

    fn available_bytes(&self, device_index: usize) -> Option<usize> {
        self.inner().available_bytes(device_index)
    }

    fn host_memory_info(&self) -> Option<MemoryInfo> {
        self.inner().host_memory_info()
    }

    fn counters(&self) -> BackendCounters {
        self.inner().counters()
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        // SAFETY: the caller upholds the method's contract; the handle passes unchanged.
        unsafe { self.inner().submit(stream, work) };
    }

    unsafe fn flush(&self, stream: StreamHandle) {
        // SAFETY: the caller upholds the method's contract; the handle passes unchanged.
        unsafe { self.inner().flush(stream) };
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        // SAFETY: the caller upholds the method's contract; the handle passes unchanged.
        unsafe { self.inner().resume(stream, work) };
    }

    fn virtual_memory(&self, device_index: usize) -> Option<&dyn VirtualMemory> {
        self.inner().virtual_memory(device_index)?;
        self.virtual_memory.get(device_index).map(|wrapped| wrapped as &dyn VirtualMemory)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.inner().kernels().map(|_| &self.kernels as &dyn Kernels)
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        self.inner().shutdown(deadline)
    }
}

/// Injects faults into the virtual memory of one device.
#[derive(Debug)]
struct FaultVirtualMemory {
    pub(super) injector: Arc<Injector>,
    device_index: usize,
}

impl FaultVirtualMemory {
    fn call<T: Any>(
        &self,
        method: Method,
        bytes: usize,
        act: impl FnOnce(&dyn VirtualMemory) -> Result<T>,
    ) -> Result<T> {
        let request = Request { bytes, ..Request::of(self.device_index) };
        self.injector.call(method, request, |inner| act(pages(inner, self.device_index)))
    }
}

fn pages(inner: &dyn Backend, device_index: usize) -> &dyn VirtualMemory {
    inner.virtual_memory(device_index).expect("a device keeps its capabilities")
}

// SAFETY: every result is the inner object's, which upholds the contract. Steps on several pages
// stay those of the contract: each page is a call of its own, which may fail.
unsafe impl VirtualMemory for FaultVirtualMemory {
    fn granularity_bytes(&self) -> usize {
        pages(&*self.injector.inner, self.device_index).granularity_bytes()
    }

    injected! {
        VmReserve(bytes) reserve(bytes: usize) -> Address;
        VmCreate(bytes) create(bytes: usize) -> PhysicalHandle;
    }

    injected_unsafe! {
        VmUnreserve(bytes) unreserve(range: Address, bytes: usize) -> ();
        VmMap(0) map(to: Address, physical: PhysicalHandle) -> ();
        VmUnmap(0) unmap(physical: PhysicalHandle) -> ();
        VmRelocate(0) relocate(physical: PhysicalHandle, to: Address) -> ();
        VmRelease(0) release(physical: PhysicalHandle) -> ();
    }
}

/// Injects faults into the inner backend's kernel compiler and launches.
#[derive(Debug)]
struct FaultKernels(Arc<Injector>);

impl FaultKernels {
    fn call<T: Any>(
        &self,
        method: Method,
        request: Request,
        act: impl FnOnce(&dyn Kernels) -> Result<T>,
    ) -> Result<T> {
        let kernels =
            |inner: &dyn Backend| act(inner.kernels().expect("a kind keeps its capabilities"));
        self.0.call(method, request, kernels)
    }
}

// SAFETY: every result is the inner object's, which upholds the contract.
unsafe impl Kernels for FaultKernels {
    injected! {
        KernelsCompile(Request::of(device_index))
            compile(device_index: usize, source: ProgramSource<'_>, options: &str) -> ProgramHandle;
    }

    injected_unsafe! {
        KernelsNames(Request::on(program))
            kernel_names(program: ProgramHandle) -> Vec<String>;
        KernelsKernel(Request::on(program))
            kernel(program: ProgramHandle, name: &str) -> KernelHandle;
        KernelsParameters(Request::on(kernel))
            parameters(kernel: KernelHandle) -> Vec<KernelParameter>;
        KernelsLaunch(Request::on(stream)) launch(
            kernel: KernelHandle, stream: StreamHandle, arguments: &[LaunchArgument],
            size: &LaunchSize
        ) -> ();
        KernelsKernelRelease(Request::on(kernel)) kernel_release(kernel: KernelHandle) -> ();
        KernelsProgramRelease(Request::on(program)) program_release(program: ProgramHandle) -> ();
    }
}
