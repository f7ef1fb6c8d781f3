//! The caching allocator of one device: what a program asks, and in which steps it is answered.

use std::sync::{Arc, OnceLock, Weak};

use crate::backend::contract::Backend;
use crate::base::config::AllocatorConfig;
use crate::base::device::Device;
use crate::base::error::{ConfigError, Error, Result};
use crate::base::fork;
use crate::base::size::MIB;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::wait::Interrupt;
use crate::memory::allocator::allocated::{Allocated, ForeignBlock};
use crate::memory::allocator::host::{HostStatistics, Meter};
use crate::memory::allocator::ledger::{Ledger, Purpose};
use crate::memory::allocator::native::caches::Caches;
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::handle::Held;
use crate::memory::allocator::native::thread_cache::LastUsed;
use crate::memory::allocator::observers::{Observers, new_observer_id};
use crate::memory::allocator::pending::{ALL, LOOKS, LOOKS_BEFORE_GROWTH, UsePoint, Wanted};
use crate::memory::allocator::pool::{PoolId, PoolOptions};
use crate::memory::allocator::request::Request;
use crate::memory::allocator::snapshot::BlockInfo;
use crate::memory::allocator::source::{DevicePages, Source};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::Statistics;
use crate::memory::allocator::torch::{Plan, Torch};

/// Memory of one device, kept when it is freed and handed out again.
///
/// A stream is a number here; what one frees it may have again at once, others may not. Any thread
/// may call anything. One lock guards what it knows; it is given back before the device is called
/// or waited for. Under policy `native`, the default, a thread keeps some of what it freed, and has
/// it again without the lock.
///
/// In a forked child it is the parent's, whose threads may have been inside: requests fail with
/// `BadFork`, frees do nothing, and questions are answered as by one with nothing in it.
///
/// ```
/// use accelrt::allocator::{CachingAllocator, Request};
/// use accelrt::backend::null::{NullBackend, NullConfig};
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
#[derive(Debug)]
pub struct CachingAllocator {
    pub(super) source: Source,
    pub(super) state: Arc<Mutex<AllocatorState>>,
    pub(super) caches: Arc<Caches>,
    pub(super) observers: Observers,
    /// The other allocator of the same capacity, where there is one.
    pub(super) sibling: OnceLock<Weak<Self>>,
}

impl CachingAllocator {
    /// The allocator of a device, with nothing in it. Asks the device for its capacity.
    pub fn new(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Result<Self> {
        let total_bytes = backend.memory_info(device.index())?.total_bytes;
        let source = Source { backend, device, host: None, is_shared: false };
        let config = source.in_force(config);
        let page_bytes = source.virtual_memory().map(DevicePages::granularity_bytes);
        let state = AllocatorState::new(config, total_bytes, Purpose::Device, page_bytes);
        Ok(Self::of_source(source, state))
    }

    /// The allocator of pinned host memory that the devices of a kind reach; its errors name
    /// `device`. Its segments are as large as `pinned_reserve_segment_size_mb` says, or as a larger
    /// request; its blocks split, and no request is rounded to a power of two.
    #[must_use]
    pub fn pinned(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Self {
        Self::of_host(backend, device, config, Purpose::Pinned)
    }

    /// The same for the heap of a process, whose programs keep addresses alone: what they free is
    /// found by its address (`native::by_address`), under the native policy.
    #[cfg(not(loom))]
    pub(crate) fn heap(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Self {
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
        let is_cached = state.ledger.has_thread_caches();
        let state = Arc::new(Mutex::new(LockRank::Allocator, state));
        let caches = Caches::new(Arc::clone(&state));
        caches.switch(is_cached);
        let (observers, sibling) = (Observers::new(), OnceLock::new());
        Self { source, state, caches, observers, sibling }
    }

    /// Has something done with an engine, under the lock.
    pub(super) fn with_torch<T>(&self, act: impl FnOnce(&mut Torch, &mut Ledger) -> T) -> T {
        let AllocatorState { torch, ledger, .. } = &mut *self.state.lock();
        act(torch, ledger)
    }

    /// The same with the other one.
    pub(super) fn with_native<T>(&self, act: impl FnOnce(&mut Native, &mut Ledger) -> T) -> T {
        let AllocatorState { native, ledger, .. } = &mut *self.state.lock();
        act(native, ledger)
    }

    /// The device whose memory it hands out.
    #[must_use]
    pub fn device(&self) -> Device {
        self.source.device
    }

    /// Memory for a request. Waits for no stream as long as there is free memory or the device has
    /// more. Fails with `OutOfMemory` when neither is so after everything free went back to the
    /// device and its observers were told, and with `InvalidSetting` for an alignment that is no
    /// power of two; nothing has changed then but what was given back. A pool that was not made is
    /// one without users.
    #[inline(always)]
    pub fn allocate(&self, request: Request) -> Result<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        // Nothing goes through memory but here: what is above stays in registers.
        let Request { bytes, stream, pool, align_bytes } = request;
        let block = self.allocate_uninterrupted(bytes, stream, pool, align_bytes)?;
        Ok(block)
    }

    /// As [`CachingAllocator::allocate`], where waits may be given up. `home` is the stream that
    /// the request names, where it is more than a number.
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
        self.allocate_shared(&request, None, &mut None)
    }

    #[cold]
    #[inline(never)]
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
        match self.unless_native(request, |ledger| Plan::of(request, ledger)) {
            None => self.allocate_native(request, home, interrupt),
            Some(None) => Err(self.out_of_memory(request)),
            Some(Some(plan)) => {
                self.search(&plan).map_or_else(|| self.take_or_reclaim(&plan, interrupt), Ok)
            }
        }
    }

    /// What a request comes to, unless the engine `native` serves it: as a rule that is told
    /// without the lock. A policy that changes just now changes behind the request.
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

    /// A free block for a request, handed out.
    pub(super) fn search(&self, plan: &Plan) -> Option<Allocated> {
        self.search_behind(plan, LOOKS).or_else(|| {
            let are_more = self.state.lock().pending.are_many_waited_for();
            if are_more { self.search_behind(plan, LOOKS_BEFORE_GROWTH) } else { None }
        })
    }

    /// The same, with what as many streams have passed.
    fn search_behind(&self, plan: &Plan, most_looks: usize) -> Option<Allocated> {
        self.poll_waited_for(most_looks);
        let (block, victims) = {
            let mut state = self.state.lock();
            state.complete_some_if_free(most_looks);
            let AllocatorState { torch, ledger, .. } = &mut *state;
            let block = torch.find(ledger, plan).map(|id| torch.allocate_block(ledger, id, plan));
            (block, torch.release_beyond_cache(ledger))
        };
        self.give_back(victims);
        block
    }

    /// Gives a block back, which no task uses any more, of its own stream either: that one may have
    /// it again at once. Of another allocator it is handed back, and nothing has changed.
    #[inline(always)]
    pub fn free(&self, block: Allocated) -> Result<(), ForeignBlock> {
        if self.caches.keep(LastUsed::get(), &block, 0) {
            return Ok(());
        }
        self.free_shared(block, None, &[])
    }

    /// Gives a block of this allocator back behind its uses: those on its own stream up to a task
    /// there, and those on others.
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
        if is_freed { Ok(()) } else { Err(ForeignBlock { block, device: self.device() }) }
    }

    /// Frees under the lock, and gives back what is not to be cached. False when nothing was freed.
    pub(super) fn free_locked(&self, free: impl FnOnce(&mut AllocatorState) -> bool) -> bool {
        let (victims, is_closed, most_bytes) = {
            let state = &mut *self.state.lock();
            if !free(state) {
                return false;
            }
            let AllocatorState { torch, ledger, .. } = state;
            if !ledger.is_closed && !ledger.is_host() {
                return true; // a device's is cached without a bound
            }
            (torch.release_beyond_cache(ledger), ledger.is_closed, ledger.most_segment_bytes())
        };
        self.give_back(victims);
        if is_closed {
            self.shrink_native(|_, _| true);
        } else if let Some(most_bytes) = most_bytes {
            self.shrink_segments_above(most_bytes);
        }
        true
    }

    /// What is known of the block in use that an address is in, at its beginning or further on.
    /// Information: it frees nothing, and is out of date as soon as the block's owner frees it.
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

    /// Waits until no stream uses free memory, and gives all of it back to the device, but that of
    /// private pools with users.
    pub fn empty_cache(&self) {
        let waited = self.empty_cache_unless(&mut None);
        let is_expected = waited.is_ok() || fork::is_child();
        debug_assert!(is_expected, "nobody interrupts it: {waited:?}");
    }

    /// As [`CachingAllocator::empty_cache`], where waits may be given up; what is not in use has
    /// gone back then.
    pub(crate) fn empty_cache_unless(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        fork::check()?;
        self.caches.empty(); // what threads keep may be in use as well
        let waited = self.wait_for_users(interrupt);
        self.trim();
        waited
    }

    /// True when no stream has to be waited for to give all free memory back.
    pub(crate) fn is_idle(&self) -> bool {
        self.caches.empty();
        self.poll_waited_for(ALL);
        self.holders(Wanted::Back).is_empty()
    }

    /// The host has waited for a device: frees that wait for its streams are over, for good.
    pub(crate) fn device_was_synchronized(&self, device: Device) {
        self.state.lock().complete_behind_synchronize(device);
    }

    /// Keeps nothing from now on, for users of pools neither: what is free goes back, now or when
    /// no stream uses it.
    pub(crate) fn close(&self) {
        {
            let ledger = &mut self.state.lock().ledger;
            ledger.is_closed = true;
            ledger.pools.end_all();
            self.caches.switch(ledger.has_thread_caches());
        }
        self.trim();
    }

    /// The settings in force: `expandable_segments` is not where there is no virtual memory.
    #[must_use]
    pub fn config(&self) -> AllocatorConfig {
        if fork::is_child() {
            return AllocatorConfig::default();
        }
        self.state.lock().ledger.config.clone()
    }

    /// Serves the next requests by other settings; what was handed out stays as it is.
    pub fn set_config(&self, config: AllocatorConfig) {
        if fork::is_child() {
            return;
        }
        let config = self.source.in_force(config);
        {
            let ledger = &mut self.state.lock().ledger;
            ledger.set_config(config);
            self.caches.switch(ledger.has_thread_caches());
        }
        self.caches.empty();
    }

    /// The part of the device's memory that may be reserved; 1 leaves it to the device.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        if fork::is_child() { 1.0 } else { self.state.lock().ledger.limits.fraction }
    }

    /// Limits what may be reserved from now on to a part of the device's memory. Fails when that is
    /// not from 0 to 1.
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

    /// As [`CachingAllocator::statistics`], with what threads keep given back first, as
    /// [`CachingAllocator::snapshot`] does: it is free memory then, in `inactive_split` too.
    #[must_use]
    pub fn statistics_at_rest(&self) -> Statistics {
        if !fork::is_child() {
            self.caches.empty();
        }
        self.statistics()
    }

    /// What it counts, with frees taken in whose streams have passed them. Under policy `native`
    /// what threads keep of what they freed is neither allocated nor free.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        if fork::is_child() {
            return Statistics::default();
        }
        self.poll_waited_for(ALL);
        self.state.lock().complete_some_if_free(ALL);
        self.statistics_so_far()
    }

    /// The same without a look at the streams.
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

    /// Size of the pages that page operations are counted in.
    pub(crate) fn page_bytes(&self) -> usize {
        self.source.virtual_memory().map_or(2 * MIB, DevicePages::granularity_bytes)
    }

    /// Every peak becomes the current value, of what threads keep given back first, as of
    /// [`CachingAllocator::statistics_at_rest`].
    pub fn reset_peak_statistics(&self) {
        if fork::is_child() {
            return;
        }
        self.caches.empty();
        self.caches.reset_peaks();
    }

    /// Every sum and every count becomes zero; what threads keep is given back before.
    pub fn reset_accumulated_statistics(&self) {
        if fork::is_child() {
            return;
        }
        self.caches.empty();
        self.caches.reset_accumulated();
        if let Some(host) = &self.source.host {
            host.reset();
        }
    }

    /// What an allocator of pinned memory counts, with PyTorch's names for it; `None` for one of a
    /// device's memory.
    #[must_use]
    pub fn host_statistics(&self) -> Option<HostStatistics> {
        let meter = self.source.host.as_ref()?;
        Some(meter.statistics(&self.statistics()))
    }

    /// Calls `observer` with each error of a request that failed for want of memory, on the thread
    /// of the request, without a lock; the number ends it.
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        let id = new_observer_id();
        self.observers.list.lock().push((id, Arc::new(observer)));
        id
    }

    /// Ends what [`CachingAllocator::add_oom_observer`] of this allocator began; nothing for any
    /// other number.
    pub fn remove_oom_observer(&self, id: u64) {
        let gone: Vec<_> =
            self.observers.list.lock().extract_if(.., |(known, _)| *known == id).collect();
        drop(gone); // a user's, without the lock
    }

    /// Makes a private pool, or counts one more user of it: as long as it has users, its memory is
    /// its own, also while it is free. Does nothing for the default pool, which needs none.
    pub fn retain_pool(&self, id: PoolId, options: PoolOptions) {
        if id != PoolId::DEFAULT && !fork::is_child() {
            self.state.lock().ledger.pools.retain(id, options);
        }
    }

    /// Counts one user less of a private pool. Without users, the memory that is free in it goes
    /// back when the cache is emptied or memory is short. Does nothing when it has none.
    pub fn release_pool(&self, id: PoolId) {
        if !fork::is_child() {
            self.state.lock().ledger.pools.release(id);
        }
    }
}

impl Drop for CachingAllocator {
    /// Everything goes back that no stream uses: a block's owner keeps the allocator alive.
    /// What a stream that does not end still uses stays with the device.
    fn drop(&mut self) {
        if !fork::is_child() {
            self.close(); // in a child the parent has it
        }
    }
}
