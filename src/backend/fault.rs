//! Fault injection: a backend around another one that fails planned calls.
//!
//! A failing call does not reach the inner backend, as if the driver had refused it. Releases are
//! the exception ([`Method::is_release`]): as in drivers, the inner call comes first, then the
//! error. A planned fault therefore never leaks, and a second attempt would be a double release. A
//! failed registration drops the callback without a call.
//!
//! Infallible calls are forwarded: `submit`, `flush`, `resume`, `shutdown` and the plain queries.
#![expect(unsafe_code, reason = "forwards calls whose callers uphold the contract")]

use std::sync::Arc;
use std::time::Instant;

use crate::backend::contract::{
    Address, Backend, BackendCounters, DeviceProperties, DoneCallback, Kernels, LeftOutDevice,
    Leftover, Mark, MemoryInfo, PhysicalHandle, PointerOwner, PriorityRange, StreamHandle,
    VirtualMemory, Work,
};
use crate::base::device::{DeviceKind, MAX_DEVICE_INDEX};
use crate::base::error::Result;

/// Forwards a call to the inner object.
macro_rules! hand_on {
    ($inner:ident.$method:ident($($argument:expr),*)) => {{
        // SAFETY: the caller upholds the method's contract, and handles and addresses pass
        // unchanged, so it holds for the inner object. A release takes effect even if it reports an
        // error; the caller does not retry it.
        unsafe { $inner.$method($($argument),*) }
    }};
}

mod kernels;
mod method;
mod plan;

use kernels::FaultKernels;
pub use method::Method;
pub use plan::{Fault, FaultError, Repeat};
use plan::{Injector, Request};

/// A backend that fails planned calls of an inner one. See the head of this module.
///
/// ```
/// use accelrt::backend::contract::Backend;
/// use accelrt::backend::fault::{Fault, FaultBackend, FaultError, Method};
/// use accelrt::backend::null::{NullBackend, NullConfig};
/// let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
/// backend.plan(Fault::nth(Method::Allocate, 2, FaultError::OutOfMemory));
/// assert!(backend.allocate(0, 64, 64).is_ok());
/// assert!(backend.allocate(0, 64, 64).is_err());
/// assert!(backend.allocate(0, 64, 64).is_ok());
/// assert_eq!((backend.calls(Method::Allocate), backend.failures(Method::Allocate)), (3, 1));
/// ```
#[derive(Debug)]
pub struct FaultBackend {
    injector: Arc<Injector>,
    /// One entry for each possible device index, so that a lookup does not probe the devices.
    virtual_memory: Vec<FaultVirtualMemory>,
    kernels: FaultKernels,
}

impl FaultBackend {
    /// Wraps a backend, without a planned fault.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Arc<Self> {
        let injector = Arc::new(Injector::new(inner));
        let virtual_memory = (0..=usize::from(MAX_DEVICE_INDEX))
            .map(|device_index| FaultVirtualMemory {
                injector: Arc::clone(&injector),
                device_index,
            })
            .collect();
        let kernels = FaultKernels::new(Arc::clone(&injector));
        Arc::new(Self { injector, virtual_memory, kernels })
    }

    /// Adds a planned fault. The fault counts the calls after this one.
    ///
    /// # Panics
    /// When the error is `OutOfMemory` for a method that takes no memory, or the call is 0.
    pub fn plan(&self, fault: Fault) {
        self.injector.plan(fault);
    }

    /// Runs `action` inside the `call`-th later call of a method, after the inner call and before
    /// the return. A test can thus act between two steps of the caller.
    ///
    /// # Panics
    /// When `call` is 0.
    pub fn act_inside(&self, method: Method, call: u64, action: impl FnOnce() + Send + 'static) {
        self.injector.act_inside(method, call, Box::new(action));
    }

    /// Removes all planned faults and actions. The counts remain.
    pub fn clear(&self) {
        self.injector.clear();
    }

    /// The number of calls of a method, failures included. Exact when no other thread is in a call.
    #[must_use]
    pub fn calls(&self, method: Method) -> u64 {
        self.injector.calls(method)
    }

    /// The number of planned failures of a method, without refusals by the inner backend.
    #[must_use]
    pub fn failures(&self, method: Method) -> u64 {
        self.injector.failures(method)
    }

    /// The inner backend.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Backend> {
        &self.injector.inner
    }
}

// SAFETY: every result is the inner backend's, which upholds the contract.
unsafe impl Backend for FaultBackend {
    fn kind(&self) -> DeviceKind {
        self.inner().kind()
    }

    fn device_count(&self) -> Result<usize> {
        self.injector.call(Method::DeviceCount, Request::ANY, |inner| inner.device_count())
    }

    fn may_have_gpu(&self) -> bool {
        self.inner().may_have_gpu()
    }

    fn left_out_devices(&self) -> Vec<LeftOutDevice> {
        self.inner().left_out_devices()
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        let request = Request::of(device_index);
        self.injector.call(Method::Properties, request, |inner| inner.properties(device_index))
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        let request = Request::of(device_index);
        self.injector.call(Method::MemoryInfo, request, |inner| inner.memory_info(device_index))
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

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        let create = |inner: &dyn Backend| inner.stream_create(device_index, priority);
        self.injector.call(Method::StreamCreate, Request::of(device_index), create)
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        let destroy = |inner: &dyn Backend| hand_on!(inner.stream_destroy(stream));
        self.injector.call(Method::StreamDestroy, Request::ANY, destroy)
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        let wrap = |inner: &dyn Backend| hand_on!(inner.stream_wrap(device_index, native));
        self.injector.call(Method::StreamWrap, Request::of(device_index), wrap)
    }

    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        self.injector
            .call(Method::StreamNative, Request::ANY, |inner| hand_on!(inner.stream_native(stream)))
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        let inner = self.inner();
        hand_on!(inner.submit(stream, work));
    }

    unsafe fn flush(&self, stream: StreamHandle) {
        let inner = self.inner();
        hand_on!(inner.flush(stream));
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        let inner = self.inner();
        hand_on!(inner.resume(stream, work));
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        self.injector
            .call(Method::StreamQuery, Request::ANY, |inner| hand_on!(inner.stream_query(stream)))
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        let synchronize = |inner: &dyn Backend| hand_on!(inner.stream_synchronize(stream));
        self.injector.call(Method::StreamSynchronize, Request::ANY, synchronize)
    }

    unsafe fn mark(&self, stream: StreamHandle, timed: bool) -> Result<Mark> {
        self.injector.call(Method::Mark, Request::ANY, |inner| hand_on!(inner.mark(stream, timed)))
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        self.injector.call(Method::MarkDone, Request::ANY, |inner| hand_on!(inner.mark_done(mark)))
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.injector.call(Method::WaitMark, Request::ANY, |inner| hand_on!(inner.wait_mark(mark)))
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        let wait = |inner: &dyn Backend| hand_on!(inner.stream_wait(stream, mark));
        self.injector.call(Method::StreamWait, Request::ANY, wait)
    }

    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        let register = |inner: &dyn Backend| hand_on!(inner.when_done(mark, callback));
        self.injector.call(Method::WhenDone, Request::ANY, register)
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        self.injector
            .call(Method::ElapsedNs, Request::ANY, |inner| hand_on!(inner.elapsed_ns(start, end)))
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        self.injector
            .call(Method::MarkRelease, Request::ANY, |inner| hand_on!(inner.mark_release(mark)))
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let allocate = |inner: &dyn Backend| inner.allocate(device_index, bytes, align_bytes);
        self.injector.call(Method::Allocate, Request { device_index, bytes }, allocate)
    }

    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        let allocate =
            |inner: &dyn Backend| inner.allocate_shared(device_index, bytes, align_bytes);
        self.injector.call(Method::AllocateShared, Request { device_index, bytes }, allocate)
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        let release = |inner: &dyn Backend| hand_on!(inner.release(device_index, address));
        self.injector.call(Method::Release, Request::of(device_index), release)
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address> {
        let request = Request { bytes, ..Request::ANY };
        self.injector.call(Method::AllocateHost, request, |inner| inner.allocate_host(bytes))
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        self.injector
            .call(Method::ReleaseHost, Request::ANY, |inner| hand_on!(inner.release_host(address)))
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        self.injector.call(Method::PointerOwner, Request::ANY, |inner| inner.pointer_owner(address))
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        let copy = |inner: &dyn Backend| hand_on!(inner.copy(stream, to, from, bytes));
        self.injector.call(Method::Copy, Request::ANY, copy)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        let fill = |inner: &dyn Backend| hand_on!(inner.fill(stream, to, byte, bytes));
        self.injector.call(Method::Fill, Request::ANY, fill)
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

/// The virtual memory of one device, as [`FaultBackend`] exposes it.
#[derive(Debug)]
struct FaultVirtualMemory {
    injector: Arc<Injector>,
    device_index: usize,
}

impl FaultVirtualMemory {
    fn call<T>(
        &self,
        method: Method,
        bytes: usize,
        act: impl FnOnce(&dyn VirtualMemory) -> Result<T>,
    ) -> Result<T> {
        let request = Request { device_index: self.device_index, bytes };
        self.injector.call(method, request, |inner| act(pages(inner, self.device_index)))
    }
}

fn pages(inner: &dyn Backend, device_index: usize) -> &dyn VirtualMemory {
    inner.virtual_memory(device_index).expect("a device keeps its capabilities")
}

// SAFETY: every result is the inner object's, which upholds the contract.
unsafe impl VirtualMemory for FaultVirtualMemory {
    fn granularity_bytes(&self) -> usize {
        pages(&*self.injector.inner, self.device_index).granularity_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<Address> {
        self.call(Method::VmReserve, bytes, |inner| inner.reserve(bytes))
    }

    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()> {
        self.call(Method::VmUnreserve, bytes, |inner| hand_on!(inner.unreserve(range, bytes)))
    }

    fn create(&self, bytes: usize) -> Result<PhysicalHandle> {
        self.call(Method::VmCreate, bytes, |inner| inner.create(bytes))
    }

    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()> {
        self.call(Method::VmMap, 0, |inner| hand_on!(inner.map(to, physical)))
    }

    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()> {
        self.call(Method::VmUnmap, 0, |inner| hand_on!(inner.unmap(physical)))
    }

    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()> {
        self.call(Method::VmRelocate, 0, |inner| hand_on!(inner.relocate(physical, to)))
    }

    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()> {
        self.call(Method::VmRelease, 0, |inner| hand_on!(inner.release(physical)))
    }
}

#[cfg(test)]
mod tests;
