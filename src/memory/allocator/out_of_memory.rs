//! The error of a request without memory, its numbers, and the functions that a program registers.
//!
//! Before a request fails, *reclaimers* can free memory of the program. After it has failed,
//! *observers* are called with its error. `allocate` has the order of all steps.

use std::cell::Cell;
use std::sync::Arc;

use crate::backend::contract::MemoryInfo;
use crate::base::error::{Error, MemoryError, Result, RuntimeError};
use crate::base::fork;
use crate::base::shortage::Shortage;
use crate::base::size::to_usize;
use crate::base::sync::yield_now;
use crate::engine::log::context::AllocationContext;
use crate::engine::log::immediate::Immediate;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::pending::{ALL, BlockingStream, WaitTarget};
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::PooledStat;
use crate::memory::allocator::stats_sum::InUse;
use crate::memory::allocator::torch::{MOST_BYTES, Plan, Torch};
/// The reads of the device's memory after which an error takes the numbers although other threads
/// still move memory.
const MOST_LOOKS: usize = 100;
/// The most tags, and the most places of a program, that an error lists.
const MOST_TAGS: usize = 3;
const MOST_STACKS: usize = 5;
/// An error does not mention a difference of segment and request up to this.
const PAGE_BYTES: usize = 4096;

impl CachingAllocator {
    /// Counts a request before all free memory goes back.
    pub(super) fn count_retry(&self) {
        let statistics = &mut self.state.lock().ledger.statistics;
        statistics.num_sync_all_streams += 1;
        statistics.num_alloc_retries += 1;
    }

    /// Gives back all free memory that no stream uses, except that of private pools with users.
    /// Waits for no stream.
    pub fn trim(&self) {
        if !fork::is_child() {
            self.trim_and_see(|_| ());
        }
    }

    /// As `trim`, with a call of `see` under the same lock before memory is removed, so that all
    /// memory unused at the call goes back.
    pub(super) fn trim_and_see<T>(&self, see: impl FnOnce(&AllocatorState) -> T) -> T {
        self.give_back_free(see, |ledger, pool| !ledger.pools.is_reserved(pool))
    }

    /// Gives back the unused free memory of one pool. Waits for no stream.
    pub(crate) fn trim_pool(&self, pool: PoolId) {
        self.give_back_free(|_| (), |_, id| id == pool);
        self.state.lock().native.note_left_pool(pool);
    }

    fn give_back_free<T>(
        &self,
        see: impl FnOnce(&AllocatorState) -> T,
        is_wanted: impl Fn(&Ledger, PoolId) -> bool,
    ) -> T {
        self.caches.empty();
        self.poll_holders();
        let (seen, victims) = {
            let mut state = self.state.lock();
            state.complete_some(ALL);
            let seen = see(&state);
            let AllocatorState { torch, ledger, .. } = &mut *state;
            (seen, torch.release_pools(ledger, &is_wanted))
        };
        self.give_back(victims);
        self.shrink_native(is_wanted);
        seen
    }

    /// Checks some private pools without users that still had memory in use, and gives back what is
    /// free by now.
    pub(crate) fn trim_left_pools(&self) {
        let left = self.state.lock().native.take_left_pools();
        for pool in left {
            self.trim_pool(pool);
        }
    }

    /// Waits until no stream uses freed memory: first for the uses of other streams, then for each
    /// block's own stream, which has it free by then.
    pub(super) fn wait_for_users(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.state.lock().ledger.statistics.num_sync_all_streams += 1;
        for _ in 0..2 {
            for holder in self.holders(WaitTarget::Back) {
                // The stream is behind this thread's own task, or its device is lost: its memory
                // stays.
                if let Err(Error::Runtime(RuntimeError::Interrupted)) = holder.wait(interrupt) {
                    return Err(Error::Runtime(RuntimeError::Interrupted));
                }
            }
        }
        Ok(())
    }

    /// Asks drivers for the progress of the next waited-for streams.
    pub(super) fn poll_waited_for(&self, most: usize) {
        let streams = self.state.lock().pending.next_on_drivers(most);
        for (stream, ticket) in streams {
            if let Some(stream) = stream.upgrade() {
                stream.poll_ticket(ticket);
            }
        }
    }

    /// Asks drivers for the progress of the streams that use free memory, in the order of
    /// [`Self::wait_for_users`].
    pub(super) fn poll_holders(&self) {
        for _ in 0..2 {
            for holder in self.holders(WaitTarget::Served) {
                holder.poll();
            }
        }
    }

    /// The streams that use free memory, as far as known.
    pub(super) fn holders(&self, wanted: WaitTarget) -> Vec<BlockingStream> {
        let mut state = self.state.lock();
        state.complete_some(ALL);
        state.holders(wanted)
    }

    pub(super) fn device_free_bytes(&self) -> usize {
        self.source.memory_info().map_or(0, |info| info.free_bytes)
    }

    /// The error of a rejected request, after its observers were called.
    pub(super) fn out_of_memory(&self, request: &Request) -> Error {
        self.caches.empty(); // what threads keep is free
        self.poll_waited_for(ALL);
        self.state.lock().complete_some_if_free(ALL);
        self.count_and_report_oom(self.refusal(request))
    }

    /// The error of a request, with numbers of one moment: read under the lock while no memory is
    /// on its way, with a number of free bytes that the device reported meanwhile.
    pub(super) fn refusal(&self, request: &Request) -> Error {
        let device = self.source.device;
        let requested_bytes = request.bytes;
        for look in 1.. {
            let before = self.state.lock().holding_if_settled();
            let unknown = MemoryInfo { free_bytes: 0, total_bytes: 0 };
            let info = self.source.memory_info().unwrap_or(unknown);
            let is_host = self.source.host.is_some();
            let numbers = self.caches.count_with(|state, counted| {
                let is_still = before.is_some() && state.holding_if_settled() == before;
                if !is_still && look < MOST_LOOKS {
                    return None;
                }
                let free_bytes = state.ledger.limits.segment_free_bytes(info.free_bytes);
                let total_bytes =
                    if is_host { info.total_bytes } else { state.ledger.limits.total_bytes };
                let shortage = state.shortage(counted, request, free_bytes, is_host);
                Some((free_bytes, total_bytes, Some(Box::new(shortage))))
            });
            if let Some((free_bytes, total_bytes, cache)) = numbers {
                return Error::Memory(MemoryError::OutOfMemory {
                    device,
                    requested_bytes,
                    free_bytes,
                    total_bytes,
                    cache,
                });
            }
            yield_now();
        }
        unreachable!("the last look has numbers")
    }
}

impl Torch {
    /// True, and counted, when the device is not asked: PyTorch decides this by the settings, even
    /// if a program has set a higher limit.
    pub(super) fn is_rejected(&self, ledger: &mut Ledger, plan: &Plan) -> bool {
        let fraction = ledger.config.per_process_memory_fraction.unwrap_or(1.0);
        let bytes = self.segment_bytes(ledger, plan);
        !ledger.is_host() && ledger.rejects(|limits| limits.is_only_above(bytes, fraction))
    }

    /// A free block of a pool that helps out.
    pub(super) fn take_from_helpers(
        &mut self,
        ledger: &mut Ledger,
        plan: &Plan,
    ) -> Option<Allocated> {
        let helpers: Vec<PoolId> = ledger.helpers(plan.owner.pool).collect();
        helpers.into_iter().find_map(|pool| {
            let mut of_helper = *plan;
            of_helper.owner.pool = pool;
            let id = self.find(ledger, &of_helper)?;
            Some(self.allocate_block(ledger, id, plan))
        })
    }

    /// The largest request like this one that the searched free blocks could serve.
    fn most_bytes(&self, ledger: &Ledger, request: &Request) -> usize {
        let bytes = request.bytes.min(MOST_BYTES); // larger ones have no plan
        let plan = Plan::of(&Request { bytes, ..*request }, ledger);
        let Some(Plan { align_bytes, owner, .. }) = plan else { return 0 };
        let pools = std::iter::once(owner.pool).chain(ledger.helpers(owner.pool));
        let indices = pools.map(|pool| self.indices.of(pool, owner.class));
        let free = indices.flat_map(|index| index.below_size(owner.stream, usize::MAX));
        let aligned = free.map(|id| {
            let block = &self.blocks[id];
            let begin = block.address.checked_next_multiple_of(align_bytes as u64);
            to_usize(begin.map_or(0, |begin| block.end().saturating_sub(begin)))
        });
        aligned.max().unwrap_or(0)
    }
}

impl AllocatorState {
    /// The bytes taken from the device and the number of departures; `None` while memory is on its
    /// way. Equal values mean that the device has as much as before.
    fn holding_if_settled(&self) -> Option<(usize, u64)> {
        Some((self.ledger.limits.taken_bytes, self.departures_if_settled()?))
    }

    /// The bytes that the device would have to give for the request: a segment, or the pages that
    /// an expandable segment lacks. `None` where it need not have a certain size.
    fn needed_segment_bytes(&self, request: &Request) -> Option<usize> {
        let ledger = &self.ledger;
        if ledger.serves_natively(request.pool) {
            return None;
        }
        let plan = Plan::of(request, ledger)?;
        Some(if ledger.config.expandable_segments && !ledger.is_host() {
            self.torch.growth_bytes(ledger, &plan)
        } else {
            self.torch.segment_bytes(ledger, &plan)
        })
    }

    /// The numbers of an error. `counted` is what engine `native` counts.
    fn shortage(
        &self,
        counted: InUse,
        request: &Request,
        device_free_bytes: usize,
        is_pinned: bool,
    ) -> Shortage {
        let ledger = &self.ledger;
        let own = &ledger.statistics;
        let bytes = |own: &PooledStat, counted: u64| to_usize(own.all.current + counted);
        let limit_bytes = ledger.limits.allowed_bytes();
        let growth_bytes = self.needed_segment_bytes(request);
        let is_large = |bytes: &usize| *bytes > request.bytes.saturating_add(PAGE_BYTES);
        let segment_bytes = growth_bytes.filter(is_large);
        let is_native = ledger.serves_natively(request.pool);
        let left_bytes = ledger.left_bytes(device_free_bytes);
        let largest_free_bytes = if is_native {
            // Pages join free memory and what the device and the limit leave.
            self.native.most_bytes(ledger, request, left_bytes)
        } else {
            self.torch.most_bytes(ledger, request)
        };
        let is_expandable = ledger.config.expandable_segments && !is_native && !is_pinned;
        // Behind the free block before its pages, an expandable segment needs the rest.
        let needed_bytes = growth_bytes.filter(|_| is_expandable).or(segment_bytes);
        let needed_bytes = needed_bytes.unwrap_or(request.bytes);
        let at_hand_bytes =
            if is_expandable { left_bytes } else { left_bytes.max(largest_free_bytes) };
        Shortage {
            allocated_bytes: bytes(&own.allocated_bytes, counted.allocated_bytes),
            active_bytes: bytes(&own.active_bytes, counted.active_bytes),
            reserved_bytes: to_usize(own.reserved_bytes.all.current),
            limit_bytes,
            largest_free_bytes,
            segment_bytes,
            is_growth_counted: is_native,
            is_only_limited: limit_bytes.is_some() && device_free_bytes >= needed_bytes,
            is_pinned,
            lacking_bytes: needed_bytes.saturating_sub(at_hand_bytes),
            largest_tags: ledger.recorder.largest_users(MOST_TAGS, AllocationContext::of_tag),
            largest_stacks: ledger.recorder.largest_users(MOST_STACKS, AllocationContext::of_stack),
        }
    }
}

impl CachingAllocator {
    /// Calls `observer` with the error of each request that fails for lack of memory, on the
    /// requesting thread and without a lock. Returns an id for
    /// [`CachingAllocator::remove_oom_observer`].
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        self.shortages.subscribe(observer)
    }

    /// Removes an observer of this allocator by its id. An unknown id has no effect.
    pub fn remove_oom_observer(&self, id: u64) {
        self.shortages.unsubscribe(id);
    }

    /// Registers a function that frees memory when a request is about to fail. The allocator calls
    /// `reclaimer` with the error of the request, on the requesting thread and without a lock.
    /// Returns an id for [`CachingAllocator::remove_reclaimer`].
    ///
    /// A reclaimer returns true when it has freed memory. The allocator then tries the request
    /// again, and waits for streams that still use the freed memory if it must. If the request
    /// still lacks memory, the reclaimers are called again, so each call may free a little. The
    /// allocator calls reclaimers in the order of their registration, until one returns true. It
    /// calls none for a request above its limit, or for one made inside a reclaimer or an observer.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// # let config = accelrt::Config::builder().cpu_memory_bytes(64 << 20).build()?;
    /// # let runtime = accelrt::Runtime::new(config)?;
    /// # let device = accelrt::Device::cpu(0);
    /// let cached = Arc::new(Mutex::new(vec![runtime.empty(48 << 20, device)?]));
    /// let allocator = runtime.allocator(device)?;
    /// let gives = Arc::clone(&cached);
    /// let id = allocator.add_reclaimer(move |_| gives.lock().unwrap().pop().is_some());
    /// assert!(runtime.empty(48 << 20, device).is_ok());
    /// assert!(cached.lock().unwrap().is_empty());
    /// allocator.remove_reclaimer(id);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn add_reclaimer(&self, reclaimer: impl Fn(&Error) -> bool + Send + Sync + 'static) -> u64 {
        self.reclaimers.subscribe(move |error| Some(reclaimer(error)))
    }

    /// Registers all reclaimers of a runtime as one reclaimer of this allocator.
    pub(crate) fn add_reclaimers(&self, reclaimers: Arc<Immediate<Error, bool>>) {
        self.reclaimers.subscribe(move |error| {
            reclaimers.has_any().then(|| reclaimers.ask(error, |freed| freed))
        });
    }

    /// Removes a reclaimer of this allocator by its id. An unknown id has no effect.
    pub fn remove_reclaimer(&self, id: u64) {
        self.reclaimers.unsubscribe(id);
    }

    /// Counts a request that failed for lack of memory, and calls the observers with its error.
    pub(super) fn count_and_report_oom(&self, refusal: Error) -> Error {
        self.state.lock().ledger.statistics.num_ooms += 1;
        self.report_oom(refusal)
    }

    /// Calls the observers with an out-of-memory error, and ignores other errors. Does not count
    /// the request: one that the settings reject is already counted in `num_oom_rejections`.
    pub(super) fn report_oom(&self, error: Error) -> Error {
        if let Error::Memory(MemoryError::OutOfMemory { requested_bytes, free_bytes, .. }) = error {
            self.state.lock().ledger.recorder.note_refused(requested_bytes, free_bytes);
            // Not inside an observer or reclaimer, because reports could recurse without end.
            if let Some(_guard) = ReentrancyGuard::enter() {
                self.shortages.tell(&error);
            }
        }
        error
    }

    /// Calls the reclaimers for a request that lacks memory. True when one of them has freed
    /// memory, `None` when none was called.
    pub(super) fn ask_reclaimers(&self, refusal: &Error) -> Option<bool> {
        let Error::Memory(MemoryError::OutOfMemory { requested_bytes, total_bytes, cache, .. }) =
            refusal
        else {
            return None;
        };
        let limit_bytes = cache.as_ref().and_then(|cache| cache.limit_bytes);
        let most_bytes = limit_bytes.unwrap_or(*total_bytes);
        if most_bytes > 0 && *requested_bytes > most_bytes {
            return None; // no amount of freed memory would be enough
        }
        // Not inside an observer or reclaimer, whose own requests must not call them again.
        let (_guard, is_asked) = (ReentrancyGuard::enter()?, Cell::new(false));
        let has_freed = self.reclaimers.ask(refusal, |freed| {
            is_asked.set(is_asked.get() || freed.is_some());
            freed == Some(true)
        });
        is_asked.get().then_some(has_freed)
    }
}

/// While it exists, this thread is inside an observer or a reclaimer.
struct ReentrancyGuard;

thread_local! {
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
}

impl ReentrancyGuard {
    /// `None` inside an observer or a reclaimer.
    fn enter() -> Option<Self> {
        // In a closure, because the drop of an unused guard would end the outer one.
        (!IS_ENTERED.replace(true)).then(|| Self)
    }
}

impl Drop for ReentrancyGuard {
    fn drop(&mut self) {
        IS_ENTERED.set(false);
    }
}
