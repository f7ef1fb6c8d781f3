//! The adapter: each method of the contract calls a function of a table.
#![expect(unsafe_code, reason = "calls a driver's functions, whose table its maker vouches for")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::backend::callbacks::posting;
use crate::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Kernels, Leftover, Mark, MemoryInfo,
    MemoryKind, PointerOwner, PriorityRange, StreamHandle, Turn, VirtualMemory, Work,
    no_shared_memory,
};
use crate::backend::driver::ResumeThreads;
use crate::backend::foreign::capabilities::{DevicePages, ForeignKernels};
use crate::backend::foreign::check::copied_if_there;
use crate::backend::foreign::instance::{Instance, bytes, call_instance, text};
use crate::backend::foreign::table::{
    BackendTable, MEMORY_DEVICE, MEMORY_HOST, MEMORY_SHARED, Owner, Properties, TEXT_BYTES,
};
use crate::base::device::{Device, DeviceKind, MAX_DEVICE_INDEX};
use crate::base::error::{DeviceError, Error, Result};
use crate::base::sync::unmodelled::{AtomicBool, AtomicUsize};
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::base::thread::contain;

/// The least alignment of the contract.
const LEAST_ALIGN_BYTES: usize = 64;

/// Callbacks that drivers were given, by number: one that a driver calls again is not there.
static CALLBACKS: Mutex<BTreeMap<usize, DoneCallback>> =
    Mutex::new(LockRank::Backend, BTreeMap::new());

/// Keeps a callback until its call; a driver has the number as a pointer.
fn keep(callback: DoneCallback) -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only uniqueness matters.
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    CALLBACKS.lock().insert(number, callback);
    number
}

/// What drivers call.
extern "C" fn call_back(data: *mut c_void) {
    let callback = CALLBACKS.lock().remove(&data.addr());
    contain(|| {
        if let Some(callback) = callback {
            callback();
        }
    });
}

/// A backend over a table of C functions.
#[derive(Debug)]
pub struct ForeignBackend {
    instance: Arc<Instance>,
    device_count: OnceLock<usize>,
    resume_threads: ResumeThreads,
    /// Executes callbacks of marks, which a driver's threads only post: the header says that they
    /// call nothing of the driver.
    completions: Arc<ResumeThreads>,
    /// By device index; empty for a kind without virtual memory.
    pages: Vec<DevicePages>,
    kernels: Option<ForeignKernels>,
    /// Relaxed: a late reader submits what the driver executes or drops.
    is_shut_down: AtomicBool,
}

/// Calls a function of the table.
macro_rules! call {
    ($self:ident.$function:ident $arguments:tt $(, for $bytes:tt of $device:tt)?) => {
        call_instance!(
            $self.instance, $self.instance.table, $function $arguments $(, for $bytes of $device)?
        )
    };
}

impl ForeignBackend {
    /// Opens an instance of a table that [`check_table`](super::check_table) has passed.
    ///
    /// # Safety
    /// The table's functions do what `include/accelrt_backend.h` says, as long as the process runs.
    pub unsafe fn open(kind: DeviceKind, table: &BackendTable) -> Result<Arc<Self>> {
        // SAFETY: the caller promises the same.
        let instance = unsafe { Instance::open(kind, table) }?;
        // SAFETY: `check_table` has passed the tables that this one points to.
        let pages = unsafe { copied_if_there(table.virtual_memory) };
        let pages = pages.map_or(Vec::new(), |functions| {
            let indices = 0..=u64::from(MAX_DEVICE_INDEX);
            indices.map(|device| DevicePages::new(&instance, functions, device)).collect()
        });
        // SAFETY: as above.
        let kernels = unsafe { copied_if_there(table.kernels) };
        let kernels = kernels.map(|functions| ForeignKernels::new(&instance, functions));
        Ok(Arc::new(Self {
            instance,
            device_count: OnceLock::new(),
            resume_threads: ResumeThreads::new(kind, "accelrt-resume"),
            completions: Arc::new(ResumeThreads::new(kind, "accelrt-done")),
            pages,
            kernels,
            is_shut_down: AtomicBool::new(false),
        }))
    }

    fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Relaxed) // relaxed: see the field
    }

    /// A driver is not asked about devices that do not exist.
    fn device(&self, device_index: usize) -> Result<u64> {
        let count = self.device_count()?;
        let device = Device::new(self.instance.kind, device_index)?;
        if device_index >= count {
            return Err(Error::Device(DeviceError::NotFound { device, count }));
        }
        Ok(device_index as u64)
    }

    fn address(&self, address: u64, align_bytes: usize, call: &'static str) -> Result<Address> {
        if address == 0 || !address.is_multiple_of(align_bytes.max(LEAST_ALIGN_BYTES) as u64) {
            let message = format!("it returned {address:#x}, not aligned to {align_bytes} bytes");
            return Err(Error::refused(self.instance.kind, call, 0, message));
        }
        Ok(Address(address))
    }
}

/// Work that starts what its tasks submitted, behind each run: no thread may wait for it.
struct FlushAfterRun {
    instance: Arc<Instance>,
    stream: StreamHandle,
    work: Arc<dyn Work>,
}

impl Work for FlushAfterRun {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        Arc::clone(&self.work).run(turn);
        flush(&self.instance, self.stream);
    }

    fn refuse(self: Arc<Self>, reason: &Error) {
        Arc::clone(&self.work).refuse(reason);
    }
}

/// A driver that starts commands at once has no such function; what one cannot start now is told by
/// the next call that waits.
fn flush(instance: &Instance, stream: StreamHandle) {
    if instance.table.stream_flush.is_some() {
        let _ = call_instance!(instance, instance.table, stream_flush(stream.0));
    }
}

// SAFETY: the maker of the table promises what the trait asks for; `open` passes the promise on.
// Work is run by the thread that submits it, or by one resume thread.
unsafe impl Backend for ForeignBackend {
    fn kind(&self) -> DeviceKind {
        self.instance.kind
    }

    fn device_count(&self) -> Result<usize> {
        if let Some(count) = self.device_count.get() {
            return Ok(*count);
        }
        let mut count = 0;
        call!(self.device_count(&raw mut count))?;
        Ok(*self.device_count.get_or_init(|| bytes(count).min(usize::from(MAX_DEVICE_INDEX) + 1)))
    }

    fn properties(&self, device_index: usize) -> Result<DeviceProperties> {
        let device = self.device(device_index)?;
        let defaults = DeviceProperties::new("", 0);
        let mut found = Properties {
            size_bytes: size_of::<Properties>() as u64,
            name: [0; TEXT_BYTES],
            total_memory_bytes: 0,
            core_count: defaults.core_count as u64,
            page_bytes: defaults.page_bytes as u64,
            is_gpu: 0,
            has_shared_memory: 0,
        };
        call!(self.properties(device, &raw mut found))?;
        Ok(DeviceProperties {
            name: text(found.name),
            total_memory_bytes: bytes(found.total_memory_bytes),
            core_count: bytes(found.core_count),
            page_bytes: bytes(found.page_bytes),
            is_gpu: found.is_gpu != 0,
            has_shared_memory: found.has_shared_memory != 0,
            ..defaults
        })
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        let (device, mut free, mut total) = (self.device(device_index)?, 0, 0);
        call!(self.memory_info(device, &raw mut free, &raw mut total))?;
        let total_bytes = bytes(total);
        Ok(MemoryInfo { free_bytes: bytes(free).min(total_bytes), total_bytes })
    }

    fn priority_range(&self, device_index: usize) -> PriorityRange {
        let (mut least, mut greatest) = (0, 0);
        let asked = self.device(device_index).and_then(|device| {
            call!(self.priority_range(device, &raw mut least, &raw mut greatest))
        });
        match asked {
            Ok(()) => PriorityRange { least: least.max(0), greatest: greatest.min(0) },
            Err(_) => PriorityRange { least: 0, greatest: 0 },
        }
    }

    fn runs_on_host(&self) -> bool {
        false
    }

    fn stream_create(&self, device_index: usize, priority: i32) -> Result<StreamHandle> {
        let (device, mut stream) = (self.device(device_index)?, 0);
        call!(self.stream_create(device, priority, &raw mut stream))?;
        Ok(StreamHandle(stream))
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        call!(self.stream_destroy(stream.0))
    }

    unsafe fn stream_wrap(&self, device_index: usize, native: u64) -> Result<StreamHandle> {
        let (device, mut stream) = (self.device(device_index)?, 0);
        call!(self.stream_wrap(device, native, &raw mut stream))?;
        Ok(StreamHandle(stream))
    }

    unsafe fn stream_native(&self, stream: StreamHandle) -> Result<u64> {
        let mut native = 0;
        call!(self.stream_native(stream.0, &raw mut native))?;
        Ok(native)
    }

    unsafe fn submit(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if !self.is_shut_down() {
            work.run(&Turn::unshared());
            flush(&self.instance, stream);
        }
    }

    unsafe fn flush(&self, stream: StreamHandle) {
        flush(&self.instance, stream);
    }

    unsafe fn resume(&self, stream: StreamHandle, work: Arc<dyn Work>) {
        if self.is_shut_down() {
            return;
        }
        let needs_flush = self.instance.table.stream_flush.is_some();
        self.resume_threads.post(if needs_flush {
            Arc::new(FlushAfterRun { instance: Arc::clone(&self.instance), stream, work })
        } else {
            work
        });
    }

    unsafe fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        let mut is_idle = 0;
        call!(self.stream_query(stream.0, &raw mut is_idle))?;
        Ok(is_idle != 0)
    }

    unsafe fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        call!(self.stream_synchronize(stream.0))
    }

    unsafe fn mark(&self, stream: StreamHandle, timed: bool) -> Result<Mark> {
        let mut mark = 0;
        call!(self.mark(stream.0, u32::from(timed), &raw mut mark))?;
        Ok(Mark(mark))
    }

    unsafe fn mark_done(&self, mark: Mark) -> Result<bool> {
        let mut is_done = 0;
        call!(self.mark_done(mark.0, &raw mut is_done))?;
        Ok(is_done != 0)
    }

    unsafe fn wait_mark(&self, mark: Mark) -> Result<()> {
        call!(self.wait_mark(mark.0))
    }

    unsafe fn stream_wait(&self, stream: StreamHandle, mark: Mark) -> Result<()> {
        call!(self.stream_wait(stream.0, mark.0))
    }

    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        let number = keep(posting(&self.completions, callback)?);
        let data = ptr::without_provenance_mut(number);
        let asked = call!(self.when_done(mark.0, call_back, data));
        if asked.is_err() {
            let uncalled = CALLBACKS.lock().remove(&number);
            drop(uncalled); // without the lock: its drop may end what it holds
        }
        asked
    }

    unsafe fn elapsed_ns(&self, start: Mark, end: Mark) -> Result<i64> {
        let mut elapsed_ns = 0;
        call!(self.elapsed_ns(start.0, end.0, &raw mut elapsed_ns))?;
        Ok(elapsed_ns)
    }

    unsafe fn mark_release(&self, mark: Mark) -> Result<()> {
        call!(self.mark_release(mark.0))
    }

    fn allocate(&self, device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address> {
        let (device, mut address) = (self.device(device_index)?, 0);
        let (size, align) = (bytes as u64, align_bytes as u64);
        call!(self.allocate(device, size, align, &raw mut address), for bytes of device)?;
        self.address(address, align_bytes, "allocate")
    }

    fn allocate_shared(
        &self,
        device_index: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address> {
        let (device, mut address) = (self.device(device_index)?, 0);
        if self.instance.table.allocate_shared.is_none() {
            return Err(no_shared_memory(self.instance.kind));
        }
        let (size, align) = (bytes as u64, align_bytes as u64);
        call!(self.allocate_shared(device, size, align, &raw mut address), for bytes of device)?;
        self.address(address, align_bytes, "allocate_shared")
    }

    unsafe fn release(&self, device_index: usize, address: Address) -> Result<()> {
        call!(self.release(device_index as u64, address.0))
    }

    fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let mut address = 0;
        call!(self.allocate_host(bytes as u64, align_bytes as u64, &raw mut address))?;
        self.address(address, align_bytes, "allocate_host")
    }

    unsafe fn release_host(&self, address: Address) -> Result<()> {
        call!(self.release_host(address.0))
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let mut owner = Owner::default();
        call!(self.pointer_owner(address.0, &raw mut owner))?;
        let memory = match owner.memory {
            MEMORY_DEVICE => MemoryKind::Device,
            MEMORY_HOST => MemoryKind::Host,
            MEMORY_SHARED => MemoryKind::Shared,
            _ => return Ok(None),
        };
        let (device_index, base) = (bytes(owner.device), Address(owner.base));
        Ok(Some(PointerOwner { device_index, base, bytes: bytes(owner.bytes), memory }))
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        call!(self.copy(stream.0, to.0, from.0, bytes as u64))
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        call!(self.fill(stream.0, to.0, u32::from(byte), bytes as u64))
    }

    fn virtual_memory(&self, device_index: usize) -> Option<&dyn VirtualMemory> {
        self.pages.get(device_index).map(|pages| pages as &dyn VirtualMemory)
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        self.kernels.as_ref().map(|kernels| kernels as &dyn Kernels)
    }

    fn shutdown(&self, deadline: Instant) -> Leftover {
        self.is_shut_down.store(true, Ordering::Relaxed); // relaxed: see the field
        let resumed = self.resume_threads.shutdown(deadline);
        // A driver that fails to stop has nothing more to tell: its instance is closed next. It
        // calls back meanwhile.
        let _ = call!(self.shutdown());
        let called = self.completions.shutdown(deadline);
        Leftover { busy_threads: resumed.busy_threads + called.busy_threads }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{self, MaybeUninit};
    use std::sync::mpsc;

    use super::*;
    use crate::backend::foreign::check_table;
    use crate::backend::foreign::table::{ABI_VERSION, ErrorRecord};

    unsafe extern "C" fn count(_: *mut c_void, to: *mut u64, _: *mut ErrorRecord) -> i32 {
        // SAFETY: the adapter gives a place for the number.
        unsafe { *to = 1 };
        0
    }

    unsafe extern "C" fn open(_: *mut c_void, _: *mut *mut c_void, _: *mut ErrorRecord) -> i32 {
        0
    }

    unsafe extern "C" fn close(_: *mut c_void) {}

    /// A table with `open`, `close` and `device_count` alone.
    fn table() -> BackendTable {
        // SAFETY: zeros are a table without functions.
        let empty = unsafe { MaybeUninit::<BackendTable>::zeroed().assume_init() };
        BackendTable {
            size_bytes: size_of::<BackendTable>() as u64,
            abi_version: ABI_VERSION,
            type_code: 99,
            name: c"tables".as_ptr(),
            open: Some(open),
            close: Some(close),
            device_count: Some(count),
            ..empty
        }
    }

    fn refusal(table: &BackendTable) -> String {
        // SAFETY: it is a table.
        unsafe { check_table(ptr::from_ref(table).cast()) }.unwrap_err()
    }

    #[test]
    fn a_table_that_is_wrong_is_refused_with_what_is_wrong() {
        // SAFETY: null is allowed.
        assert_eq!(unsafe { check_table(ptr::null()) }.unwrap_err(), "it has no table");
        let wrong = BackendTable { abi_version: 7, ..table() };
        assert_eq!(refusal(&wrong), "its table is of version 7, and this is 1");
        let wrong = BackendTable { size_bytes: 16, ..table() };
        assert_eq!(refusal(&wrong), "its table says that it has 16 bytes");
        let wrong = BackendTable { name: ptr::null(), ..table() };
        assert_eq!(refusal(&wrong), "its table has no name");
        assert_eq!(refusal(&table()), "its table has no function properties");
        let size_bytes = mem::offset_of!(BackendTable, close) as u64;
        let shorter = BackendTable { size_bytes, ..table() };
        assert_eq!(refusal(&shorter), "its table has no function close", "what it lacks is null");
    }

    #[test]
    fn a_driver_is_not_asked_about_devices_that_it_does_not_have() {
        // SAFETY: the functions that are there do what the header says.
        let backend = unsafe { ForeignBackend::open(DeviceKind::NULL, &table()) }.unwrap();
        assert_eq!(backend.device_count().unwrap(), 1);
        let missing = backend.properties(1).unwrap_err().to_string();
        assert!(missing.contains("null:1 does not exist"), "{missing}");
        let unsupported = backend.allocate(0, 64, 64).unwrap_err().to_string();
        assert_eq!(unsupported, "null devices do not support allocate");
    }

    #[test]
    fn an_address_that_is_not_aligned_is_refused() {
        // SAFETY: as above.
        let backend = unsafe { ForeignBackend::open(DeviceKind::NULL, &table()) }.unwrap();
        for (address, align_bytes) in [(0, 1), (32, 1), (64, 128)] {
            assert!(backend.address(address, align_bytes, "allocate").is_err(), "{address}");
        }
        assert_eq!(backend.address(128, 128, "allocate").unwrap(), Address(128));
    }

    #[test]
    fn a_callback_that_a_driver_calls_again_is_called_once() {
        let (called, calls) = mpsc::channel();
        let number = keep(Box::new(move || called.send(()).unwrap()));
        for _ in 0..2 {
            call_back(ptr::without_provenance_mut(number));
        }
        assert_eq!(calls.into_iter().count(), 1);
    }
}
