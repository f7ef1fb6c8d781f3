//! The caching allocator of one device: its public face, and the steps of a request.

use std::sync::{Arc, OnceLock, Weak};

use crate::backend::contract::Backend;
use crate::base::config::AllocatorConfig;
use crate::base::device::Device;
use crate::base::error::{ConfigError, Error, Result};
use crate::base::fork;
use crate::base::size::MIB;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{LockRank, Mutex, MutexGuard};
use crate::engine::log::immediate::Immediate;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::allocated::{Allocated, ForeignBlock, Held};
use crate::memory::allocator::host::{HostStatistics, Meter};
use crate::memory::allocator::ledger::{Ledger, Purpose};
use crate::memory::allocator::native::caches::Caches;
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::thread_cache::LastUsed;
use crate::memory::allocator::pending::{ALL, LOOKS, LOOKS_BEFORE_GROWTH, UsePoint, Wanted};
use crate::memory::allocator::recorder::Recorded;
use crate::memory::allocator::request::{PoolId, PoolOptions, Request};
use crate::memory::allocator::snapshot::BlockInfo;
use crate::memory::allocator::source::{DevicePages, Source};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::Statistics;
use crate::memory::allocator::torch::{Plan, Torch};

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

    /// Allocates memory. While memory is short, gives all free memory back and waits for streams
    /// that use some; then fails with `OutOfMemory`, after its observers were called. Fails with
    /// `InvalidSetting` for an alignment that is no power of two.
    #[inline(always)]
    pub fn allocate(&self, request: Request) -> Result<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        // Passed in parts: the fast path above stays in registers.
        let Request { bytes, stream, pool, align_bytes } = request;
        let block = self.allocate_uninterrupted(bytes, stream, pool, align_bytes)?;
        Ok(block)
    }

    /// As [`CachingAllocator::allocate`], with an interrupt of its waits. `home` is the requesting
    /// stream, unless that is only a number.
    #[inline]
    pub(crate) fn allocate_unless(
        &self,
        request: Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        self.allocate_shared(&request, home, interrupt)
    }

    #[cold]
    #[inline(never)]
    fn allocate_uninterrupted(
        &self,
        bytes: usize,
        stream: u64,
        pool: PoolId,
        align_bytes: usize,
    ) -> Result<Allocated> {
        let request = Request { bytes, stream, pool, align_bytes };
        self.allocate_shared(&request, None, &mut Interrupt::default())
    }

    #[inline(always)]
    fn allocate_shared(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        fork::check()?;
        request.check()?;
        if request.bytes == 0 {
            return Ok(Allocated::default());
        }
        if !self.begin_noting() {
            return self.serve(request, home, interrupt);
        }
        let served = self.serve(request, home, interrupt);
        LastUsed::forget_under_tag();
        served
    }

    /// Serves a request of a byte or more, with either engine.
    #[cold]
    #[inline(never)]
    fn serve(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        match self.unless_native(request, |ledger| Plan::of(request, ledger)) {
            None => self.allocate_native(request, home, interrupt),
            Some(None) => Err(self.out_of_memory(request)),
            Some(Some(plan)) => {
                self.search(&plan).map_or_else(|| self.take_or_reclaim(&plan, interrupt), Ok)
            }
        }
    }

    /// The result of `plan`, unless engine `native` serves the request; mostly decided without the
    /// lock. A concurrent change of the policy applies to later requests.
    pub(super) fn unless_native<T>(
        &self,
        request: &Request,
        plan: impl FnOnce(&Ledger) -> T,
    ) -> Option<T> {
        if request.pool == PoolId::DEFAULT && self.caches.is_on() {
            return None;
        }
        let ledger = &self.state.lock().ledger;
        (!ledger.serves_natively(request.pool)).then(|| plan(ledger))
    }

    /// Takes a free block.
    pub(super) fn search(&self, plan: &Plan) -> Option<Allocated> {
        self.search_behind(plan, LOOKS).or_else(|| {
            let are_more = self.state.lock().pending.are_many_waited_for();
            if are_more { self.search_behind(plan, LOOKS_BEFORE_GROWTH) } else { None }
        })
    }

    /// As `search`, after up to `most_looks` streams were checked.
    fn search_behind(&self, plan: &Plan, most_looks: usize) -> Option<Allocated> {
        self.poll_waited_for(most_looks);
        let (block, victims) = {
            let mut state = self.state.lock();
            state.complete_some_if_free(most_looks);
            let AllocatorState { torch, ledger, .. } = &mut *state;
            let block = torch.find(ledger, plan).map(|id| torch.allocate_block(ledger, id, plan));
            (block, torch.release_beyond_cache(ledger))
        };
        self.unless_panicked(block, self.try_give_back(victims))
    }

    /// Frees a block that no task uses any more, not even on its own stream. A block of another
    /// allocator is returned unchanged.
    #[inline(always)]
    pub fn free(&self, block: Allocated) -> Result<(), ForeignBlock> {
        if self.caches.keep(LastUsed::get(), &block, 0) {
            return Ok(());
        }
        self.free_shared(block, None, &[])
    }

    /// Frees a block of this allocator behind its uses: on its own stream up to a task, and on
    /// other streams.
    #[inline]
    pub(crate) fn free_behind(
        &self,
        block: Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        let last_used = LastUsed::get();
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let ticket = home.map_or(0, |home| home.ticket);
        if !is_own || !others.is_empty() || !self.caches.keep(last_used, &block, ticket) {
            self.free_shared(block, home, others).expect("it is kept with its allocator");
        }
    }

    #[cold]
    #[inline(never)]
    fn free_shared(
        &self,
        block: Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> Result<(), ForeignBlock> {
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let ticket = home.map_or(0, |home| home.ticket);
        if is_own && others.is_empty() && self.caches.leave(LastUsed::get(), &block, ticket) {
            return Ok(());
        }
        if fork::is_child() {
            return Ok(()); // the parent has it
        }
        let is_freed = match block.held() {
            Held::Nothing => true,
            Held::Piece => self.free_native(&block, home, others),
            Held::Block(id) => {
                self.free_locked(|state| state.free_block(id, block.handout(), home, others))
            }
        };
        LastUsed::forget_under_tag();
        if is_freed { Ok(()) } else { Err(ForeignBlock { block, device: self.device() }) }
    }

    /// Calls `free` under the lock, then gives back memory that is not cached. Returns its result.
    #[inline(always)]
    pub(super) fn free_locked(&self, free: impl FnOnce(&mut AllocatorState) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_freed = free(&mut state);
        if is_freed && (state.ledger.is_closed || state.ledger.is_host()) {
            self.give_back_uncached(state);
        }
        is_freed // device memory is cached without a bound
    }

    #[inline(never)]
    fn give_back_uncached(&self, mut state: MutexGuard<'_, AllocatorState>) {
        let AllocatorState { torch, ledger, .. } = &mut *state;
        let victims = torch.release_beyond_cache(ledger);
        let (is_closed, most_bytes) = (ledger.is_closed, ledger.most_segment_bytes());
        drop(state);
        self.give_back(victims);
        if is_closed {
            self.shrink_native(|_, _| true);
        } else if let Some(most_bytes) = most_bytes {
            self.shrink_segments_above(most_bytes);
        }
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
        self.holders(Wanted::Back).is_empty()
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

impl Drop for CachingAllocator {
    /// Gives back the memory that no stream uses. No block is in use, because owners of blocks keep
    /// their allocator alive.
    fn drop(&mut self) {
        if !fork::is_child() {
            self.close();
        }
    }
}
