//! What happens when no free block serves a request, and what is said when nothing helps.
//!
//! In order, until the request has its block: old free segments go back; the device is asked; pools
//! that help out are searched; oversize blocks go back; everything free goes back, after which both
//! the cache and the device are asked again; streams that still use free memory are waited for, if
//! all of it may be enough, and both are asked after each of them (`turn`).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::backend::contract::MemoryInfo;
use crate::base::error::{Error, MemoryError, Result, RuntimeError};
use crate::base::fork;
use crate::base::shortage::Shortage;
use crate::base::size::to_usize;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held, yield_now};
use crate::engine::stream::wait::Interrupt;
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::books::{Books, MOST_BYTES, Plan, Request};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::tally::InUse;
use crate::memory::allocator::pending::{ALL, Holder, Wanted};
use crate::memory::allocator::pool::{Pool, PoolId};
use crate::memory::allocator::release::Victim;
use crate::memory::allocator::stats::PooledStat;
use crate::memory::allocator::turn::{Attempt, Wants};

/// Looks at a device after which an error takes the numbers although others go on moving memory.
const MOST_LOOKS: usize = 100;
/// What segments have more than a request without a word about it.
const PAGE_BYTES: usize = 4096;

/// Called with what failed, before the request does.
type Observer = dyn Fn(&Error) + Send + Sync;

/// A number for an observer that no other one in this process has: given to an allocator or a
/// runtime that did not hand it out, it means nobody's.
pub(crate) fn new_observer_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed) // only uniqueness matters
}

/// Who is told when a request fails for want of memory.
pub(super) struct Observers {
    list: Mutex<Vec<(u64, Arc<Observer>)>>,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self { list: Mutex::new(LockRank::Allocator, Vec::new()) }
    }

    /// Calls each, without a lock. Of requests that fail inside of an observer none is told: it
    /// would be told of its own for as long as there is a stack.
    fn tell(&self, error: &Error) {
        let Some(_telling) = Telling::begin() else { return };
        let observers = self.list.lock().clone();
        assert_no_lock_held();
        for (_, observer) in observers {
            observer(error);
        }
    }
}

/// Stands for this thread's being inside of observers, until it is dropped.
struct Telling;

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Telling {
    /// `None` inside of another one.
    fn begin() -> Option<Self> {
        (!IS_TELLING.replace(true)).then_some(Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        IS_TELLING.set(false);
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.list.lock().len())
    }
}

impl CachingAllocator {
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
        let removed: Vec<_> =
            self.observers.list.lock().extract_if(.., |(known, _)| *known == id).collect();
        drop(removed); // a user's, without the lock
    }

    /// A block for a request that no free one serves. The order is PyTorch's, but that the cache is
    /// searched again after memory went back to the device.
    pub(super) fn take_or_reclaim(
        &self,
        plan: &Plan,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<BlockId> {
        if self.books.lock().chooses_among_free() {
            self.poll_holders(); // what streams have passed may go back as well
        }
        let garbage = self.books.lock().release_garbage();
        self.give_back(garbage);
        let grow = || self.grow(plan).map_err(|error| self.told_of(error));
        if let Some(id) = grow()? {
            return Ok(id);
        }
        if let Some(id) = self.books.lock().help_out(plan) {
            return Ok(id);
        }
        let (oversize, is_enough) = self.books.lock().release_oversize(plan);
        self.give_back(oversize);
        if is_enough && let Some(id) = grow()? {
            return Ok(id);
        }
        {
            let statistics = &mut self.books.lock().statistics;
            statistics.num_sync_all_streams += 1;
            statistics.num_alloc_retries += 1;
        }
        let attempt = &mut |attempt| match attempt {
            Attempt::Another => self.search_or_grow(plan),
            Attempt::Last => Ok(None),
        };
        let (request, bytes) = (plan.request(), plan.search_bytes);
        // What would be free, the device alone says.
        self.take_in_turn(
            &mut Wants { request, bytes, attempt, could_serve: &|_, _| true },
            interrupt,
        )
    }

    fn search_or_grow(&self, plan: &Plan) -> Result<Option<BlockId>> {
        loop {
            if let Some(id) = self.search(plan) {
                return Ok(Some(id));
            }
            let (is_coming, departures) = {
                let books = self.books.lock();
                (books.releases_in_flight > 0, books.departures)
            };
            if let Some(id) = self.grow(plan)? {
                return Ok(Some(id));
            }
            if !is_coming {
                return Ok(self.books.lock().help_out(plan)); // with what came free since
            }
            // Another thread is giving memory back.
            drop(self.lock_when(|books| {
                books.releases_in_flight == 0 || books.departures != departures
            }));
        }
    }

    /// Gives all free memory back that no stream uses, but that of private pools with users. Waits
    /// for nobody.
    pub fn trim(&self) {
        if fork::is_child() {
            return;
        }
        self.trim_and_see(|_| ());
    }

    /// The same, with a look at the books before what may go back leaves them. A stream may pass
    /// its use of a block at any time: what was not in use at the look goes back.
    pub(super) fn trim_and_see<T>(&self, see: impl FnOnce(&Books) -> T) -> T {
        let take = |books: &mut Books| (see(books), books.release_cached());
        self.give_back_taken(take, |books, pool| !books.pools.is_somebodys_own(pool))
    }

    /// Gives the free memory of one pool back that no stream uses. Waits for nobody.
    pub(crate) fn trim_pool(&self, pool: PoolId) {
        let take = |books: &mut Books| ((), books.release_pools(|id, _| id == pool));
        self.give_back_taken(take, |_, id| id == pool);
        self.books.lock().native.note_left_pool(pool);
    }

    /// Gives victims back, and what the native policy has free in these pools.
    fn give_back_taken<T>(
        &self,
        take: impl FnOnce(&mut Books) -> (T, Vec<Victim>),
        is_wanted: impl Fn(&Books, PoolId) -> bool,
    ) -> T {
        self.caches.empty();
        self.poll_holders();
        let (seen, victims) = {
            let mut books = self.books.lock();
            books.complete_passed();
            take(&mut books)
        };
        self.give_back(victims);
        self.shrink_native(is_wanted);
        seen
    }

    /// Looks at some private pools that had memory in use when their last user went, and gives back
    /// what is free in them by now.
    pub(crate) fn trim_left_pools(&self) {
        let left = self.books.lock().native.take_left_pools();
        for pool in left {
            self.trim_pool(pool);
        }
    }

    /// Waits until no stream uses freed memory any more: first for those that others than its own
    /// stream use, then for its own, on which it is free by then.
    pub(super) fn wait_for_users(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.books.lock().statistics.num_sync_all_streams += 1;
        for _ in 0..2 {
            for holder in self.holders(Wanted::Back) {
                // Refused behind this thread's own task, or as a lost device: what it holds stays.
                if let Err(Error::Runtime(RuntimeError::Interrupted)) =
                    self.wait_for_holder(&holder, interrupt)
                {
                    return Err(Error::Runtime(RuntimeError::Interrupted));
                }
            }
        }
        Ok(())
    }

    /// Asks drivers how far the streams are that something waits for and that are looked at next.
    pub(super) fn poll_waited_for(&self, most: usize) {
        let streams = self.books.lock().users.next_on_drivers(most);
        for (stream, ticket) in streams.into_iter().filter_map(|(stream, ticket)| {
            Some((stream.upgrade()?, ticket)) // gone: its counter says what it knows
        }) {
            stream.poll_ticket(ticket);
        }
    }

    /// Asks drivers how far the streams are that use free memory: others than its own first, as
    /// [`Self::wait_for_users`].
    fn poll_holders(&self) {
        for _ in 0..2 {
            for Holder { stream, ticket, .. } in self.holders(Wanted::Served) {
                stream.poll_ticket(ticket);
            }
        }
    }

    /// The streams that use free memory, as far as they are known to be.
    pub(super) fn holders(&self, wanted: Wanted) -> Vec<Holder> {
        let mut books = self.books.lock();
        books.complete_passed();
        books.holders(wanted)
    }

    pub(super) fn device_free_bytes(&self) -> usize {
        self.source.memory_info().map_or(0, |info| info.free_bytes)
    }

    /// The error of a request that is not tried, after its observers were told.
    pub(super) fn out_of_memory(&self, request: &Request) -> Error {
        self.poll_waited_for(ALL);
        self.books.lock().complete_some_if_free(ALL);
        self.told(self.refusal(request))
    }

    /// Counts a request that fails, and tells its observers.
    pub(super) fn told(&self, refusal: Error) -> Error {
        self.books.lock().statistics.num_ooms += 1;
        self.observers.tell(&refusal);
        refusal
    }

    /// Tells observers of a request that was rejected, which is counted as that alone.
    pub(super) fn told_of(&self, error: Error) -> Error {
        if let Error::Memory(MemoryError::OutOfMemory { .. }) = error {
            self.observers.tell(&error);
        }
        error
    }

    /// The error of a request. Its numbers are of one moment: they are read under the lock, and
    /// what the device said to be free before is so still, as far as this allocator knows. Memory
    /// that is on its way there or from there has passed.
    pub(super) fn refusal(&self, request: &Request) -> Error {
        let device = self.source.device;
        let requested_bytes = request.bytes;
        for look in 1.. {
            let before = self.books.lock().holding_if_settled();
            let unknown = MemoryInfo { free_bytes: 0, total_bytes: 0 };
            let info = self.source.memory_info().unwrap_or(unknown);
            let is_host = self.source.host.is_some();
            let numbers = self.caches.count_with(|books, counted| {
                let is_still = before.is_some() && books.holding_if_settled() == before;
                if !is_still && look < MOST_LOOKS {
                    return None;
                }
                let free_bytes = books.limits.segment_free_bytes(info.free_bytes);
                let total_bytes = if is_host { info.total_bytes } else { books.limits.total_bytes };
                let shortage = books.shortage(counted, request, free_bytes, is_host);
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

impl Books {
    /// True when the device is not even asked; counts it. As in PyTorch that is a matter of what
    /// the settings allow, where the limit, which a program may have set otherwise, allows more.
    pub(super) fn is_rejected(&mut self, plan: &Plan) -> bool {
        let fraction = self.config.per_process_memory_fraction.unwrap_or(1.0);
        let bytes = self.segment_bytes(plan);
        let is_rejected = self.config.reject_above_fraction
            && !self.is_host()
            && self.limits.is_only_above(bytes, fraction);
        self.statistics.num_oom_rejections += u64::from(is_rejected);
        is_rejected
    }

    /// The private pools that help out when memory of a pool is short.
    pub(super) fn helpers(&self, of: PoolId) -> impl Iterator<Item = PoolId> {
        let is_helper = move |pool: &Pool| of == PoolId::DEFAULT && pool.options.use_on_oom;
        self.pools.iter().filter(move |(_, pool)| is_helper(pool)).map(|(id, _)| id)
    }

    /// A free block of one of them.
    pub(super) fn help_out(&mut self, plan: &Plan) -> Option<BlockId> {
        let helpers: Vec<PoolId> = self.helpers(plan.owner.pool).collect();
        helpers.into_iter().find_map(|pool| {
            let mut plan = *plan;
            plan.owner.pool = pool;
            let id = self.find(&plan)?;
            Some(self.hand_out(id, &plan))
        })
    }

    /// The largest request like this one that could have been served: under policy `native` from
    /// free memory and what the device and the limit have left, which pages put together; else from
    /// the free blocks among which it is searched.
    fn most_bytes(&self, request: &Request, device_free_bytes: usize) -> usize {
        if self.serves_natively(request.pool) {
            return self.native_most_bytes(request, self.left_bytes(device_free_bytes));
        }
        let bytes = request.bytes.min(MOST_BYTES); // larger ones have no plan
        let plan = self.plan(&Request { bytes, ..*request });
        let Some(Plan { align_bytes, owner, .. }) = plan else { return 0 };
        let pools = std::iter::once(owner.pool).chain(self.helpers(owner.pool));
        let indices = pools.map(|pool| self.pools[pool].index(owner.class));
        let free = indices.flat_map(|index| index.below_size(owner.stream, usize::MAX));
        let aligned = free.map(|id| {
            let block = &self.blocks[id];
            let begin = block.address.checked_next_multiple_of(align_bytes as u64);
            to_usize(begin.map_or(0, |begin| block.end().saturating_sub(begin)))
        });
        aligned.max().unwrap_or(0)
    }

    /// What was taken from the device and how often something went back, when nothing is on its
    /// way: both are the same as long as the device has as much.
    fn holding_if_settled(&self) -> Option<(usize, u64)> {
        Some((self.limits.taken_bytes, self.departures_if_settled()?))
    }

    /// What the device would be asked for, where a segment of its own has a least size.
    fn large_segment_bytes(&self, request: &Request) -> Option<usize> {
        if self.serves_natively(request.pool) || self.config.expandable_segments {
            return None;
        }
        let bytes = self.segment_bytes(&self.plan(request)?);
        (bytes > request.bytes.saturating_add(PAGE_BYTES)).then_some(bytes)
    }

    /// What stands behind an error: of how much was asked for, and how much the device has.
    /// `counted` is what the native policy counts.
    fn shortage(
        &self,
        counted: InUse,
        request: &Request,
        device_free_bytes: usize,
        is_pinned: bool,
    ) -> Shortage {
        let own = &self.statistics;
        let bytes = |own: &PooledStat, counted: u64| to_usize(own.all.current + counted);
        let limit_bytes = self.limits.allowed_bytes();
        let segment_bytes = self.large_segment_bytes(request);
        let needed_bytes = segment_bytes.unwrap_or(request.bytes);
        Shortage {
            allocated_bytes: bytes(&own.allocated_bytes, counted.allocated_bytes),
            active_bytes: bytes(&own.active_bytes, counted.active_bytes),
            reserved_bytes: to_usize(own.reserved_bytes.all.current),
            limit_bytes,
            largest_free_bytes: self.most_bytes(request, device_free_bytes),
            segment_bytes,
            is_growth_counted: self.serves_natively(request.pool),
            is_only_limited: limit_bytes.is_some() && device_free_bytes >= needed_bytes,
            is_pinned,
        }
    }
}
