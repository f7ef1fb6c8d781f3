//! The device of numbers: the null kind's memory behind planned refusals, with every call noted.
//!
//! Its streams go by a clock of their own.
#![expect(unsafe_code, reason = "forwards calls whose callers uphold the contract")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PhysicalHandle,
    PointerOwner, PriorityRange, StreamHandle, VirtualMemory, Work,
};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig};
use accelrt::{DeviceKind, Error, MemoryError, Result};

use crate::clock::Clock;
use crate::ledger::Ledger;

/// Forwards a call that the contract makes unsafe.
macro_rules! forward {
    ($inner:expr, $method:ident($($argument:expr),*)) => {{
        // SAFETY: the caller upholds the method's contract, and nothing is changed on the way.
        unsafe { $inner.$method($($argument),*) }
    }};
}

/// A kind whose devices have no memory behind their addresses.
#[derive(Debug)]
pub(crate) struct Numbers {
    inner: Arc<FaultBackend>,
    clock: Mutex<Clock>,
    ledger: Arc<Mutex<Ledger>>,
    pages: Vec<NotedPages>,
}

impl Numbers {
    pub(crate) fn new(device_count: usize, capacity_bytes: usize) -> Arc<Self> {
        let null = NullConfig { device_count, capacity_bytes, ..NullConfig::default() };
        let inner = FaultBackend::new(NullBackend::new(null));
        let ledger = Arc::<Mutex<Ledger>>::default();
        let pages = (0..device_count).map(|device| NotedPages {
            inner: Arc::clone(&inner),
            ledger: Arc::clone(&ledger),
            device,
        });
        Arc::new(Self {
            pages: pages.collect(),
            inner,
            ledger,
            clock: Mutex::new(Clock::default()),
        })
    }

    pub(crate) fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().expect("nothing panics with it")
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics with it")
    }

    /// Has the n-th call of a method from now on refused, once, and no other that was to be.
    pub(crate) fn refuse(&self, method: Method, call: u64) {
        self.inner.clear();
        self.inner.plan(Fault::nth(method, call, FaultError::OutOfMemory));
    }
}

/// What was given; `None` for a shortage.
fn given<T: Copy>(answer: &Result<T>) -> Option<T> {
    match answer {
        Ok(given) => Some(*given),
        Err(Error::Memory(MemoryError::OutOfMemory { .. })) => None,
        Err(other) => panic!("the null kind is only ever short of memory: {other}"),
    }
}

// SAFETY: memory is the null kind's, which upholds the contract; marks are done in order, as the
// clock has it.
unsafe impl Backend for Numbers {
    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn device_count(&self) -> Result<usize> {
        self.inner.device_count()
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        self.inner.properties(device_index)
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        self.inner.memory_info(device_index)
    }

    fn priority_range(&self, device_index: usize) -> PriorityRange {
        self.inner.priority_range(device_index)
    }

    fn runs_on_host(&self) -> bool {
        false
    }

    fn has_host_addresses(&self) -> bool {
        false
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        self.inner.stream_create(device_index, priority)
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        forward!(self.inner, stream_destroy(stream))
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        forward!(self.inner, stream_wrap(device_index, native))
    }

    /// The handle itself: the program puts work there by it.
    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        Ok(stream.0)
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        forward!(self.inner, submit(stream, work));
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        forward!(self.inner, resume(stream, work));
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.clock().is_idle(stream))
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.clock().finish(stream, -1);
        Ok(())
    }

    unsafe fn mark(&self, stream: StreamHandle, _timed: bool) -> Result<Mark> {
        Ok(self.clock().mark(stream))
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        Ok(self.clock().is_done(mark))
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.clock().wait(mark);
        Ok(())
    }

    unsafe fn stream_wait(&self, _stream: StreamHandle, _mark: Mark) -> Result<()> {
        unreachable!("no program has a stream wait for another one")
    }

    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        self.clock().wait(mark);
        callback();
        Ok(())
    }

    unsafe fn elapsed_ns(&self, _start: Mark, _end: Mark) -> Result<i64> {
        Ok(0)
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        self.clock().release(mark);
        Ok(())
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let answer = self.inner.allocate(device_index, bytes, align_bytes);
        let base = given(&answer).map(|base| base.0);
        self.ledger().range(device_index, "allocate", bytes, base);
        answer
    }

    fn allocate_shared(&self, device: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        self.inner.allocate_shared(device, bytes, align_bytes)
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        self.ledger().end_range(device_index, "release", address.0);
        forward!(self.inner, release(device_index, address))
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        self.inner.allocate_host(bytes, align_bytes)
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        forward!(self.inner, release_host(address))
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        self.inner.pointer_owner(address)
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        forward!(self.inner, copy(stream, to, from, bytes))
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        forward!(self.inner, fill(stream, to, byte, bytes))
    }

    fn virtual_memory(&self, device_index: usize) -> Option<&dyn VirtualMemory> {
        self.pages.get(device_index).map(|pages| pages as &dyn VirtualMemory)
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        self.inner.shutdown(deadline)
    }
}

/// The virtual memory of one device.
#[derive(Debug)]
struct NotedPages {
    inner: Arc<FaultBackend>,
    ledger: Arc<Mutex<Ledger>>,
    device: usize,
}

impl NotedPages {
    fn inner(&self) -> &dyn VirtualMemory {
        self.inner.virtual_memory(self.device).expect("the null kind has it")
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics with it")
    }
}

// SAFETY: pages are the null kind's, which upholds the contract.
unsafe impl VirtualMemory for NotedPages {
    fn granularity_bytes(&self) -> usize {
        self.inner().granularity_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<Address> {
        let answer = self.inner().reserve(bytes);
        self.ledger().range(self.device, "reserve", bytes, given(&answer).map(|base| base.0));
        answer
    }

    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()> {
        self.ledger().end_range(self.device, "unreserve", range.0);
        forward!(self.inner(), unreserve(range, bytes))
    }

    fn create(&self, bytes: usize) -> Result<PhysicalHandle> {
        let answer = self.inner().create(bytes);
        self.ledger().create(self.device, bytes, given(&answer).map(|physical| physical.0));
        answer
    }

    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()> {
        self.ledger().map(self.device, physical.0, to.0);
        forward!(self.inner(), map(to, physical))
    }

    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()> {
        self.ledger().unmap(self.device, physical.0);
        forward!(self.inner(), unmap(physical))
    }

    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()> {
        self.ledger().unmap(self.device, physical.0);
        self.ledger().map(self.device, physical.0, to.0);
        forward!(self.inner(), relocate(physical, to))
    }

    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()> {
        self.ledger().drop_physical(self.device, physical.0);
        forward!(self.inner(), release(physical))
    }
}
