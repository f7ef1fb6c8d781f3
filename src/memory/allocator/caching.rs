//! The caching allocator of one device: its public face, and the steps of a request.

use std::sync::{Arc, OnceLock, Weak};

use crate::backend::contract::Backend;
use crate::base::config::AllocatorConfig;
use crate::base::device::Device;
use crate::base::error::{ConfigError, Error, Result};
use crate::base::fork;
use crate::base::size::MIB;
#[cfg(not(loom))]
use crate::base::size::to_usize;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::log::immediate::Immediate;
use crate::engine::stream::interrupt::Interrupt;
#[cfg(not(loom))]
use crate::memory::allocator::addresses::{Addresses, Owner};
#[cfg(not(loom))]
use crate::memory::allocator::allocated::{Allocated, Handle};
use crate::memory::allocator::caches::Caches;
use crate::memory::allocator::core::Native;
use crate::memory::allocator::host::{HostStatistics, Meter};
use crate::memory::allocator::ledger::{Ledger, Purpose};
#[cfg(not(loom))]
use crate::memory::allocator::live_table::LiveEntry;
use crate::memory::allocator::pending::{ALL, WaitTarget};
use crate::memory::allocator::recorder::Recorded;
#[cfg(not(loom))]
use crate::memory::allocator::request::Request;
use crate::memory::allocator::request::{PoolId, PoolOptions};
use crate::memory::allocator::snapshot::BlockInfo;
use crate::memory::allocator::source::{DevicePages, Source};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::Statistics;
use crate::memory::allocator::thread_cache::LastUsed;
use crate::memory::allocator::torch::Torch;

/// Memory of one device, kept when it is freed and handed out again.
///
/// A stream is a number here. Memory that a stream freed serves it again at once, other streams
/// only when its tasks are done. Any thread may call any method. One lock guards the state, and is
/// released before the device is called or waited for. Under policy `native`, the default, a thread
/// caches some freed memory, and takes it without the lock.
///
/// In a forked child requests fail with `BadFork`, frees do nothing, and queries answer as those of
/// an empty allocator: threads of the parent may have been inside.
///
/// ```
/// use accelrt::allocator::{CachingAllocator, Request};
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// use accelrt::{AllocatorConfig, Device, DeviceKind};
///
/// let device = Device::new(DeviceKind::NULL, 0)?;
/// let null = NullBackend::new(NullConfig::default());
/// let allocator = CachingAllocator::new(null, device, AllocatorConfig::default())?;
/// let block = allocator.allocate(Request::new(1000, 0))?;
/// assert_eq!(block.bytes(), 1024);
/// allocator.free(block).expect("it is its own");
/// assert_eq!(allocator.statistics().reserved_bytes.all.current, 2 << 20);
/// allocator.empty_cache();
/// assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use accelrt::allocator::{CachingAllocator, PoolId, PoolOptions, Request};
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let device = accelrt::Device::cpu(0);
/// let allocator = runtime.allocator(device)?;
/// let observer = allocator.add_oom_observer(|error| eprintln!("{error}"));
/// allocator.set_memory_fraction(0.5)?; // of the device's memory, for this process
/// assert_eq!(allocator.memory_fraction(), 0.5);
/// let settings = allocator.config();
/// allocator.set_config(settings);
///
/// // A pool: its memory serves its own requests alone.
/// let pool = PoolId(0, 7);
/// allocator.retain_pool(pool, PoolOptions::default());
/// let block = allocator.allocate(Request::new(5000, 0).from_pool(pool))?;
/// assert_eq!(allocator.snapshot().segments.len(), 1);
/// assert!(allocator.block_at(block.address()).is_some());
/// allocator.free(block).expect("it is its own");
/// allocator.release_pool(pool);
///
/// allocator.reset_peak_statistics();
/// allocator.reset_accumulated_statistics();
/// assert_eq!(allocator.statistics_at_rest().requested_bytes.all.current, 0);
/// assert!(allocator.tag_statistics().is_empty(), "no memory has a tag");
/// allocator.trim(); // what is free goes back to the device
/// allocator.check_all(); // panics when the allocator contradicts itself
/// allocator.remove_oom_observer(observer);
/// assert!(runtime.pinned_allocator(device)?.host_statistics().is_some());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct CachingAllocator {
    pub(super) source: Source,
    pub(super) state: Arc<Mutex<AllocatorState>>,
    pub(super) caches: Arc<Caches>,
    /// Told of the errors of requests that fail for want of memory.
    pub(super) shortages: Immediate<Error>,
    /// Asked for memory before such a request fails. They answer whether they have freed some, or
    /// `None` when they had none to ask.
    pub(super) reclaimers: Immediate<Error, Option<bool>>,
    /// True while the recorder is on.
    pub(super) is_recorded: AtomicBool,
    /// What its records are about, always.
    pub(super) recorded: OnceLock<Recorded>,
    /// The other allocator of the same device memory, if any.
    pub(super) sibling: OnceLock<Weak<Self>>,
}

impl CachingAllocator {
    /// Creates the empty allocator of a device. Asks the device for its capacity.
    pub fn new(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Result<Self> {
        let total_bytes = backend.memory_info(device.index())?.total_bytes;
        let source = Source { backend, device, host: None, is_shared: false };
        let config = source.in_force(config);
        let page_bytes = source.virtual_memory().map(DevicePages::granularity_bytes);
        let state = AllocatorState::new(config, total_bytes, Purpose::Device, page_bytes);
        Ok(Self::of_source(source, state))
    }

    /// Creates the allocator of pinned host memory that the devices of a kind can access; its
    /// errors name `device`. Segments have the size of `pinned_reserve_segment_size_mb`, or of a
    /// larger request. Blocks are split, and no request is rounded to a power of two.
    #[must_use]
    pub fn pinned(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Self {
        Self::of_host(backend, device, config, Purpose::Pinned)
    }

    /// Creates the allocator of a process's host heap, under policy `native`. Programs keep
    /// addresses alone, so a free finds its piece by the address (`native::by_address`).
    #[cfg(not(loom))]
    #[doc(hidden)]
    #[must_use]
    pub fn heap(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Self {
        Self::of_host(backend, device, config, Purpose::Heap)
    }

    fn of_host(
        backend: Arc<dyn Backend>,
        device: Device,
        config: AllocatorConfig,
        purpose: Purpose,
    ) -> Self {
        let source = Source { backend, device, host: Some(Meter::new()), is_shared: false };
        let config = source.in_force(config);
        Self::of_source(source, AllocatorState::new(config, usize::MAX, purpose, None))
    }

    pub(super) fn of_source(source: Source, state: AllocatorState) -> Self {
        fork::ON_CHILD.get_or_init(|| LastUsed::forget);
        fork::watch();
        let state = Arc::new(Mutex::new(LockRank::Allocator, state));
        let caches = Caches::new(Arc::clone(&state));
        caches.switch(&state.lock().ledger);
        let (shortages, reclaimers) = (Immediate::new(), Immediate::new());
        let is_recorded = AtomicBool::new(false);
        let (recorded, sibling) = (OnceLock::new(), OnceLock::new());
        Self { source, state, caches, shortages, reclaimers, is_recorded, recorded, sibling }
    }

    /// Calls `act` with engine `torch`, under the lock.
    pub(super) fn with_torch<T>(&self, act: impl FnOnce(&mut Torch, &mut Ledger) -> T) -> T {
        let AllocatorState { torch, ledger, .. } = &mut *self.state.lock();
        act(torch, ledger)
    }

    /// Calls `act` with engine `native`, under the lock.
    pub(super) fn with_native<T>(&self, act: impl FnOnce(&mut Native, &mut Ledger) -> T) -> T {
        let AllocatorState { native, ledger, .. } = &mut *self.state.lock();
        act(native, ledger)
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.source.device
    }

    /// Describes the block in use that contains an address. The description is out of date as soon
    /// as the block is freed.
    ///
    /// ```compile_fail
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.zeros(1000, accelrt::Device::cpu(0))?;
    /// let allocator = runtime.allocator(accelrt::Device::cpu(0))?;
    /// let block = allocator.block_at(buffer.address()?).expect("it is in use");
    /// allocator.free(block).expect("it is its own"); // the buffer's memory
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.zeros(1000, accelrt::Device::cpu(0))?;
    /// let allocator = runtime.allocator(accelrt::Device::cpu(0))?;
    /// let block = allocator.block_at(buffer.address()?).expect("it is in use");
    /// assert_eq!((block.requested_bytes, block.bytes), (1000, 1024));
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<BlockInfo> {
        if fork::is_child() {
            return None;
        }
        let state = self.state.lock();
        let piece = state.native.describe_at(address);
        piece.or_else(|| state.torch.block_in_use_at(address).map(BlockInfo::from))
    }

    /// Waits until no stream uses free memory, and gives it back to the device, except that of
    /// private pools with users.
    pub fn empty_cache(&self) {
        let waited = self.empty_cache_unless(&mut Interrupt::default());
        let is_expected = waited.is_ok() || fork::is_child();
        debug_assert!(is_expected, "nothing interrupts it: {waited:?}");
    }

    /// As [`CachingAllocator::empty_cache`], with an interrupt of its waits. Memory that is unused
    /// by then goes back also after an interrupt.
    #[doc(hidden)]
    pub fn empty_cache_unless(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        fork::check()?;
        self.caches.empty(); // streams may use cached pieces too
        let waited = self.wait_for_users(interrupt);
        self.trim();
        waited
    }

    /// True when all free memory could go back without a wait for a stream.
    #[doc(hidden)]
    pub fn is_idle(&self) -> bool {
        self.caches.empty();
        self.poll_waited_for(ALL);
        self.holders(WaitTarget::Back).is_empty()
    }

    /// Completes the frees that wait for streams of a device that the host has synchronised with.
    pub(crate) fn device_was_synchronized(&self, device: Device) {
        self.state.lock().complete_behind_synchronize(device);
    }

    /// Stops caching, also for private pools with users: free memory goes back at once, or as soon
    /// as no stream uses it.
    pub(crate) fn close(&self) {
        {
            let ledger = &mut self.state.lock().ledger;
            ledger.is_closed = true;
            ledger.pools.end_all();
            self.caches.switch(ledger);
        }
        self.trim();
    }

    /// The settings in force. `expandable_segments` is off without virtual memory.
    #[must_use]
    pub fn config(&self) -> AllocatorConfig {
        let known = (!fork::is_child()).then(|| self.state.lock().ledger.config.clone());
        known.unwrap_or_default()
    }

    /// Sets the settings of later requests. Memory in use is unaffected.
    pub fn set_config(&self, config: AllocatorConfig) {
        if fork::is_child() {
            return;
        }
        self.switch_config(config);
        self.caches.empty();
    }

    /// As [`Self::set_config`], under a caller's lock: what threads have cached stays until they
    /// need room, or until [`Self::empty_thread_caches`].
    pub(crate) fn switch_config(&self, config: AllocatorConfig) {
        let config = self.source.in_force(config);
        let ledger = &mut self.state.lock().ledger;
        ledger.set_config(config);
        self.caches.switch(ledger);
    }

    /// Has what threads cached be free memory of the allocator. Sleeps while a thread stays in its
    /// cache off its processor.
    pub(crate) fn empty_thread_caches(&self) {
        self.caches.empty();
    }

    /// The fraction of the device's memory that may be reserved; 1 means that only the device
    /// limits.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        if fork::is_child() { 1.0 } else { self.state.lock().ledger.limits.fraction }
    }

    /// Limits later reservations to a fraction of the device's memory. Fails when it is not from 0
    /// to 1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            let value = fraction.to_string();
            let (name, allowed) = ("memory fraction", "a number from 0 to 1");
            return Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }));
        }
        fork::check()?;
        self.state.lock().ledger.limits.set_fraction(fraction);
        Ok(())
    }

    /// As [`CachingAllocator::statistics`], after threads have returned their cached pieces, as for
    /// [`CachingAllocator::snapshot`]. These count as free then, in `inactive_split` too.
    #[must_use]
    pub fn statistics_at_rest(&self) -> Statistics {
        if !fork::is_child() {
            self.caches.empty();
        }
        self.statistics()
    }

    /// The statistics, after pending frees that streams have passed were completed. Under policy
    /// `native` pieces in thread caches count as neither allocated nor free.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        if fork::is_child() {
            return Statistics::default();
        }
        self.poll_waited_for(ALL);
        self.state.lock().complete_some_if_free(ALL);
        self.statistics_so_far()
    }

    /// As `statistics`, without a check of the streams.
    pub(super) fn statistics_so_far(&self) -> Statistics {
        let mut statistics = {
            let AllocatorState { ledger, native, .. } = &*self.state.lock();
            let mut statistics = ledger.statistics;
            native.splits.add_to(&mut statistics);
            statistics.reserved_bytes.lend(&native.lent);
            statistics
        };
        self.caches.add_to(&mut statistics);
        statistics
    }

    /// The unit of page operations, in bytes.
    #[doc(hidden)]
    pub fn page_bytes(&self) -> usize {
        self.source.virtual_memory().map_or(2 * MIB, DevicePages::granularity_bytes)
    }

    /// Lowers every peak to its current value, after threads have returned their cached pieces.
    pub fn reset_peak_statistics(&self) {
        if !fork::is_child() {
            self.caches.empty();
            self.caches.reset_peaks();
            self.state.lock().ledger.recorder.reset_peaks();
        }
    }

    /// Resets every sum and count, after threads have returned their cached pieces.
    pub fn reset_accumulated_statistics(&self) {
        if fork::is_child() {
            return;
        }
        self.caches.empty();
        self.caches.reset_accumulated();
        self.state.lock().ledger.recorder.reset_accumulated();
        if let Some(host) = &self.source.host {
            host.reset();
        }
    }

    /// The statistics of a pinned allocator, by PyTorch's names; `None` for device memory.
    #[must_use]
    pub fn host_statistics(&self) -> Option<HostStatistics> {
        let meter = self.source.host.as_ref()?;
        Some(meter.statistics(&self.statistics()))
    }

    /// Makes a private pool, or adds a user. While a pool has users, its free memory serves only
    /// its own requests. Does nothing for the default pool.
    pub fn retain_pool(&self, id: PoolId, options: PoolOptions) {
        if id != PoolId::DEFAULT && !fork::is_child() {
            self.state.lock().ledger.pools.retain(id, options);
        }
    }

    /// Removes a user of a private pool, if there is one. Without users, free memory of the pool
    /// goes back when the cache is emptied or memory is short.
    pub fn release_pool(&self, id: PoolId) {
        if !fork::is_child() {
            self.state.lock().ledger.pools.release(id);
        }
    }
}

/// The host heap, whose pieces are found by their addresses alone, as `malloc`'s are.
#[cfg(not(loom))]
impl CachingAllocator {
    /// Allocates at least `bytes` bytes, aligned to 64. `None` when memory is short.
    #[inline]
    pub fn give(&self, bytes: usize) -> Option<usize> {
        let block = self.allocate(Request::new(bytes.max(1), 0)).ok()?;
        let address = to_usize(block.address());
        if let Some(LiveEntry::Block(_)) = block.handle().mark() {
            self.addresses().begin(address);
        }
        Some(address)
    }

    /// Frees a piece from [`Self::give`]. A repeated free has no effect, nor has a concurrent one
    /// of a larger piece; after the memory was handed out again it ends the new use. False when no
    /// piece in use begins at the address, `None` when this allocator has no memory there.
    #[inline]
    pub fn free_at(&self, address: usize) -> Option<bool> {
        let Some(owner) = self.addresses().at(address) else {
            return self.has_memory_at(address).then_some(false);
        };
        let Some((piece, bytes)) = owner.piece(address) else { return Some(false) };
        let is_first = match owner {
            Owner::Slab { .. } => true,
            Owner::Large { id, pages } => self.addresses().end(address, id, pages),
            Owner::Spare { .. } => false,
        };
        let Some(mark) = self.caches.live.mark(piece).filter(|_| is_first) else {
            return Some(false);
        };
        let handle = Handle::of_mark(mark, self.caches.live.tag());
        let freed = self.free(Allocated::of_piece(handle, address as u64, bytes, 0, 0));
        Some(freed.is_ok())
    }

    /// Returns the size of the piece that begins at an address; `None` when none does.
    pub fn usable_bytes_at(&self, address: usize) -> Option<usize> {
        Some(self.addresses().at(address)?.piece(address)?.1)
    }

    #[cold]
    fn has_memory_at(&self, address: usize) -> bool {
        self.state.lock().native.has_memory_at(address as u64)
    }

    fn addresses(&self) -> &Addresses {
        self.caches.addresses.as_ref().expect("a heap's allocator")
    }
}

impl Drop for CachingAllocator {
    /// Gives back the memory that no stream uses. No block is in use, because owners of blocks keep
    /// their allocator alive.
    fn drop(&mut self) {
        if !fork::is_child() {
            self.close();
        }
    }
}
