//! Release: which free segments go back to the device, and how.
//!
//! Victims are chosen and forgotten under the lock, and given back without it: from then on their
//! addresses belong to the device, which may hand them out again before its call returns. What the
//! device refuses to take back stays with it: whether it is still there is unknown, so it is never
//! used again. The limit counts a victim until the call is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::backend::contract::Address;
use crate::memory::allocator::block::{BlockId, State};
use crate::memory::allocator::books::{Books, Plan};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::expandable::{Unmapping, Vacant};
use crate::memory::allocator::free_index::FreeIndex;
use crate::memory::allocator::limits::part_of;
use crate::memory::allocator::pool::{Pool, PoolId};
use crate::memory::allocator::snapshot::PoolClass;

/// Free memory that is on its way to the device, and forgotten here.
#[derive(Debug)]
pub(super) enum Victim {
    /// A whole segment.
    Segment { base: Address, bytes: usize },
    /// Pages of an expandable one.
    Pages(Unmapping),
    /// The addresses of an expandable one that has no page.
    Addresses(Vacant),
}

impl Victim {
    /// How much counts against the limit until the device has it.
    fn bytes(&self) -> usize {
        match self {
            Self::Segment { bytes, .. } => *bytes,
            Self::Pages(victim) => victim.bytes(),
            Self::Addresses(_) => 0,
        }
    }
}

/// A victim that is counted as coming free, until this is dropped: also by a panic, as threads that
/// are short of memory wait for it.
#[derive(Debug)]
struct Coming<'a> {
    allocator: &'a CachingAllocator,
    bytes: usize,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut books = self.allocator.books.lock();
        books.releases_in_flight -= 1;
        books.sleepers.wake();
        books.departures += 1;
        books.limits.give_back(self.bytes);
    }
}

impl CachingAllocator {
    /// Gives victims back to the device.
    pub(super) fn give_back(&self, victims: Vec<Victim>) {
        let outcome = try_each(victims, |victim| {
            let _coming = Coming { allocator: self, bytes: victim.bytes() };
            match victim {
                Victim::Segment { base, .. } => {
                    let _ = self.source.release(base); // see the head of this file
                }
                Victim::Pages(victim) => self.unmap(&victim),
                Victim::Addresses(vacant) => self.unreserve(&vacant),
            }
        });
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl CachingAllocator {
    /// Gives a free segment back, or the pages of an expandable one, as a recording says; false
    /// when there is none of this size at the address, or something is in it.
    pub(super) fn release_recorded(&self, address: u64, bytes: usize) -> bool {
        let victim = self.books.lock().release_at(address);
        let is_right = victim.as_ref().is_some_and(|victim| victim.bytes() == bytes);
        self.give_back(victim.into_iter().collect());
        is_right
    }
}

/// Acts on each item, also when it panicked for one before; the first panic.
pub(super) fn try_each<T>(
    items: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T),
) -> thread::Result<()> {
    let attempts = items.into_iter().map(|item| catch_unwind(AssertUnwindSafe(|| act(item))));
    attempts.fold(Ok(()), thread::Result::and)
}

impl Books {
    /// Forgets a free block that is a whole segment, or its whole pages, if nothing uses it any
    /// more.
    fn begin_release(&mut self, id: BlockId) -> Option<Victim> {
        let block = &self.blocks[id];
        if self.is_busy(block) {
            return None;
        }
        let victim = if self.is_expandable(id) {
            Victim::Pages(self.begin_unmap(id)?)
        } else if block.is_split() {
            return None;
        } else {
            self.forget_segment(id)
        };
        self.releases_in_flight += 1;
        Some(victim)
    }

    /// The free block that an address is in, as far as it may go back.
    fn release_at(&mut self, address: u64) -> Option<Victim> {
        let id = self.map.containing(address, &self.blocks)?;
        if self.blocks[id].state == State::Free { self.begin_release(id) } else { None }
    }

    fn forget_segment(&mut self, id: BlockId) -> Victim {
        self.take_out(id);
        let segment = self.forget_range(id);
        let statistics = &mut self.statistics;
        statistics.segment.decrease(segment.owner.class, 1);
        statistics.reserved_bytes.decrease(segment.owner.class, segment.bytes);
        statistics.num_device_free += 1;
        if segment.is_oversize {
            statistics.oversize_segments.decrease(1);
        }
        Victim::Segment { base: segment.base, bytes: segment.bytes }
    }

    /// All free memory that may go back: of the default pool, large segments first, and of private
    /// pools without users, small ones first.
    pub(super) fn release_cached(&mut self) -> Vec<Victim> {
        self.release_pools(|id, pool| id == PoolId::DEFAULT || pool.users == 0)
    }

    /// All free memory of these pools.
    pub(super) fn release_pools(
        &mut self,
        is_wanted: impl Fn(PoolId, &Pool) -> bool,
    ) -> Vec<Victim> {
        let (mut free, mut unmapped): (Vec<BlockId>, Vec<BlockId>) = Default::default();
        for (id, pool) in self.pools.iter().filter(|(id, pool)| is_wanted(*id, pool)) {
            let mut classes = [PoolClass::Large, PoolClass::Small];
            classes.rotate_left(usize::from(id != PoolId::DEFAULT));
            for index in classes.map(|class| pool.index(class)) {
                let is_whole = |id: &BlockId| !self.is_expandable(*id);
                let (whole, pages): (Vec<_>, Vec<_>) = index.all().partition(is_whole);
                free.extend(whole.into_iter().chain(pages));
                unmapped.extend(index.all_unmapped());
            }
        }
        let mut victims: Vec<Victim> =
            free.into_iter().filter_map(|id| self.begin_release(id)).collect();
        if self.is_closed {
            // Before, addresses for which a request got no page serve the next one, as in PyTorch.
            let vacant: Vec<Vacant> =
                unmapped.into_iter().filter_map(|id| self.begin_unreserve(id)).collect();
            self.releases_in_flight += vacant.len();
            victims.extend(vacant.into_iter().map(Victim::Addresses));
        }
        victims
    }

    /// Free pinned segments that are larger than those which are kept, unless something uses them;
    /// everything free when nothing is kept.
    pub(super) fn release_beyond_cache(&mut self) -> Vec<Victim> {
        if self.is_closed {
            return self.release_cached();
        }
        let Some(most_bytes) = self.config.pinned_max_cached_bytes.filter(|_| self.is_host())
        else {
            return Vec::new();
        };
        let classes = [PoolClass::Large, PoolClass::Small];
        let pools = self.pools.iter().flat_map(|(_, pool)| classes.map(|class| pool.index(class)));
        let free = pools.flat_map(FreeIndex::all);
        let beyond: Vec<BlockId> = free.filter(|id| self.blocks[*id].bytes > most_bytes).collect();
        beyond.into_iter().filter_map(|id| self.begin_release(id)).collect()
    }

    /// Free blocks that are too large to be split, when there is a limit to splits: one that is
    /// large enough, or the largest ones until they are. What goes back, and whether it is enough.
    pub(super) fn release_oversize(&mut self, plan: &Plan) -> (Vec<Victim>, bool) {
        let Some(most_split_bytes) = self.config.max_split_bytes else {
            return (Vec::new(), false);
        };
        let key_bytes = plan.search_bytes.max(most_split_bytes);
        let index = self.pools[plan.owner.pool].index(plan.owner.class);
        let first = index.of_size(plan.owner.stream, key_bytes).next();
        let single = first.filter(|id| !self.is_expandable(*id));
        if let Some(id) = single {
            let victim = self.begin_release(id);
            let is_enough = victim.is_some();
            return (victim.into_iter().collect(), is_enough);
        }
        let smaller: Vec<BlockId> = index
            .below_size(plan.owner.stream, key_bytes)
            .take_while(|id| self.blocks[*id].bytes >= most_split_bytes)
            .filter(|id| !self.is_expandable(*id))
            .collect();
        let (mut victims, mut released_bytes) = (Vec::new(), 0);
        for id in smaller {
            if released_bytes >= key_bytes {
                break;
            }
            let bytes = self.blocks[id].bytes;
            if let Some(victim) = self.begin_release(id) {
                released_bytes += bytes;
                victims.push(victim);
            }
        }
        (victims, released_bytes >= key_bytes)
    }

    /// True when free memory is chosen from, of which nothing may be in use, before memory is
    /// short: garbage, or blocks that are too large to be split.
    pub(super) fn chooses_among_free(&self) -> bool {
        self.config.max_split_bytes.is_some() || self.bytes_above_threshold().is_some()
    }

    /// Large segments that have been free for longer than others on average, when more is reserved
    /// than the garbage collection's threshold.
    pub(super) fn release_garbage(&mut self) -> Vec<Victim> {
        let mut victims = Vec::new();
        let Some(mut wanted_bytes) = self.bytes_above_threshold() else { return victims };
        let index = self.pools[PoolId::DEFAULT].index(PoolClass::Large);
        let searches = index.searches;
        let mut old: Vec<(BlockId, u64)> = index
            .all()
            .filter(|id| !self.blocks[*id].is_split() && !self.is_expandable(*id))
            .map(|id| (id, searches - self.blocks[id].freed_at_search))
            .filter(|(id, _)| !self.is_busy(&self.blocks[*id]))
            .collect();
        while wanted_bytes > 0 && !old.is_empty() {
            let (mut ages, mut count) = (0, 0);
            for (_, age) in &old {
                ages += age;
                count += 1;
            }
            // At least the average: compared without a division.
            let is_old = |age: u64| age * count >= ages;
            for (id, _) in old.extract_if(.., |(_, age)| is_old(*age)) {
                wanted_bytes = wanted_bytes.saturating_sub(self.blocks[id].bytes);
                victims.extend(self.begin_release(id));
            }
        }
        victims
    }

    fn bytes_above_threshold(&self) -> Option<usize> {
        let threshold = self.config.garbage_collection_threshold?;
        let threshold_bytes = part_of(self.limits.allowed_bytes()?, threshold);
        self.limits.taken_bytes.checked_sub(threshold_bytes).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: what goes back first, and at the end. Method: free segments of every pool and class,
    //! noted by hand; memory of a pool with a user.

    use super::*;
    use crate::backend::null::{NullBackend, NullConfig};
    use crate::base::config::AllocatorConfig;
    use crate::base::device::{Device, DeviceKind};
    use crate::base::size::MIB;
    use crate::memory::allocator::books::{Purpose, Request};
    use crate::memory::allocator::pool::PoolOptions;
    use crate::memory::allocator::segment::Owner;

    #[test]
    fn large_segments_go_back_before_small_ones_and_those_of_private_pools_last() {
        // As PyTorch's: large pool, small pool, and of private pools the small one first.
        let mut books = Books::new(AllocatorConfig::default(), 1 << 30, Purpose::Device, None);
        let private = PoolId(0, 1);
        books.pools.make(private);
        let noted = [
            (private, PoolClass::Small),
            (private, PoolClass::Large),
            (PoolId::DEFAULT, PoolClass::Small),
            (PoolId::DEFAULT, PoolClass::Large),
        ];
        for (number, (pool, class)) in (1..).zip(noted) {
            let (base, owner) = (number * MIB as u64, Owner { stream: 0, class, pool });
            let id = books.add_segment(base, Address(base), MIB, owner);
            books.put_in(id);
        }
        let base = |victim: &Victim| match victim {
            Victim::Segment { base, .. } => base.0 / MIB as u64,
            other => panic!("{other:?}"),
        };
        let victims = books.release_cached();
        assert_eq!(victims.iter().map(base).collect::<Vec<_>>(), [4, 3, 1, 2]);
    }

    #[test]
    fn behind_a_close_all_that_is_free_goes_back_also_of_pools_with_users() {
        for settings in ["policy:torch", "policy:native"] {
            let device = Device::new(DeviceKind::NULL, 0).unwrap();
            let (null, config) = (NullBackend::new(NullConfig::default()), settings.parse());
            let allocator = CachingAllocator::new(null, device, config.unwrap()).unwrap();
            let reserved_bytes = || allocator.statistics().reserved_bytes.all.current;
            let pool = PoolId(0, 1);
            allocator.retain_pool(pool, PoolOptions::default());
            let blocks = [30 * MIB, 50 * MIB].map(|bytes| {
                allocator.allocate(Request { pool, ..Request::new(bytes, 0) }).unwrap()
            });
            let [kept, freed] = blocks;
            allocator.free(freed).unwrap();
            assert_eq!(reserved_bytes(), 80 * MIB as u64, "{settings}: it has a user");
            allocator.close();
            assert_eq!(reserved_bytes(), 30 * MIB as u64, "{settings}: free before");
            allocator.free(kept).unwrap();
            assert_eq!(reserved_bytes(), 0, "{settings}: freed behind it");
        }
    }
}
