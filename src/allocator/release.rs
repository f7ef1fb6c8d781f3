//! Release: which free segments go back to the device, and how.
//!
//! Victims are chosen and taken out of the index under the lock, given back without it, and taken
//! out of the books under it again. What the device refuses to take back stays with it: whether it
//! is still there, nobody knows, so nobody uses it again.

use crate::allocator::block::BlockId;
use crate::allocator::books::{Books, Plan};
use crate::allocator::caching::CachingAllocator;
use crate::allocator::expandable::{Unmapping, Vacant};
use crate::allocator::free_index::FreeIndex;
use crate::allocator::pool::{Pool, PoolId};
use crate::allocator::snapshot::PoolClass;
use crate::backend::contract::Address;

/// Free memory that is on its way to the device.
#[derive(Debug)]
pub(super) enum Victim {
    /// A whole segment.
    Segment { id: BlockId, base: Address },
    /// Pages of an expandable one.
    Pages(Unmapping),
    /// The addresses of an expandable one that has no page.
    Addresses(Vacant),
}

impl CachingAllocator {
    /// Gives victims back to the device.
    pub(super) fn give_back(&self, victims: Vec<Victim>) {
        for victim in victims {
            match victim {
                Victim::Segment { id, base } => {
                    let _ = self.source.release(base); // see the head of this file
                    self.books.lock().end_release(id);
                }
                Victim::Pages(victim) => self.unmap(&victim),
                Victim::Addresses(vacant) => self.unreserve(&vacant),
            }
        }
    }
}

impl Books {
    /// Starts the release of a free block that is a whole segment or has whole pages, if nothing
    /// uses it any more.
    fn begin_release(&mut self, id: BlockId) -> Option<Victim> {
        let block = &self.blocks[id];
        let segment = &self.segments[block.segment];
        if self.is_busy(block) {
            return None;
        }
        if segment.is_expandable() {
            return self.begin_unmap(id).map(Victim::Pages);
        }
        let base = segment.base;
        if block.is_split() {
            return None;
        }
        self.take_out(id);
        self.releases_in_flight += 1;
        Some(Victim::Segment { id, base })
    }

    fn end_release(&mut self, id: BlockId) {
        self.releases_in_flight -= 1;
        let segment = self.forget_range(id);
        self.limits.give_back(segment.bytes);
        let statistics = &mut self.statistics;
        statistics.segment.decrease(segment.owner.class, 1);
        statistics.reserved_bytes.decrease(segment.owner.class, segment.bytes);
        statistics.num_device_free += 1;
        if segment.is_oversize {
            statistics.oversize_segments.decrease(1);
        }
    }

    /// All free memory that may go back: of the default pool, large segments first, and of private
    /// pools without users.
    pub(super) fn release_cached(&mut self) -> Vec<Victim> {
        self.release_pools(|id, pool| id == PoolId::DEFAULT || pool.users == 0)
    }

    /// All free memory of one pool.
    pub(super) fn release_pool_cached(&mut self, pool: PoolId) -> Vec<Victim> {
        self.release_pools(|id, _| id == pool)
    }

    fn release_pools(&mut self, is_wanted: impl Fn(PoolId, &Pool) -> bool) -> Vec<Victim> {
        let classes = [PoolClass::Large, PoolClass::Small];
        let (mut free, mut unmapped): (Vec<BlockId>, Vec<BlockId>) = Default::default();
        for (_, pool) in self.pools.iter().filter(|(id, pool)| is_wanted(*id, pool)) {
            for class in classes {
                free.extend(pool.index(class).all());
                unmapped.extend(pool.index(class).all_unmapped());
            }
        }
        let mut victims: Vec<Victim> =
            free.into_iter().filter_map(|id| self.begin_release(id)).collect();
        let vacant = unmapped.into_iter().filter_map(|id| self.begin_unreserve(id));
        victims.extend(vacant.map(Victim::Addresses));
        victims
    }

    /// Free pinned segments that are larger than those which are kept, unless something uses them;
    /// everything free when nothing is kept.
    pub(super) fn release_beyond_cache(&mut self) -> Vec<Victim> {
        if self.is_closed {
            return self.release_cached();
        }
        let Some(most_bytes) = self.config.pinned_max_cached_bytes.filter(|_| self.is_host) else {
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
        let single = first.filter(|id| !self.segments[self.blocks[*id].segment].is_expandable());
        if let Some(id) = single {
            let victim = self.begin_release(id);
            let is_enough = victim.is_some();
            return (victim.into_iter().collect(), is_enough);
        }
        let smaller: Vec<BlockId> = index
            .below_size(plan.owner.stream, key_bytes)
            .take_while(|id| self.blocks[*id].bytes >= most_split_bytes)
            .filter(|id| !self.segments[self.blocks[*id].segment].is_expandable())
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

    /// Large segments that have been free for longer than others on average, when more is reserved
    /// than the garbage collection's threshold.
    pub(super) fn release_garbage(&mut self) -> Vec<Victim> {
        let mut victims = Vec::new();
        let Some(mut wanted_bytes) = self.bytes_above_threshold() else { return victims };
        let index = self.pools[PoolId::DEFAULT].index(PoolClass::Large);
        let searches = index.searches;
        let mut old: Vec<(BlockId, u64)> = index
            .all()
            .filter(|id| {
                let block = &self.blocks[*id];
                !block.is_split() && !self.segments[block.segment].is_expandable()
            })
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
        let allowed_bytes = self.limits.allowed_bytes()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of a size; a byte more or less does not matter"
        )]
        let threshold_bytes = (threshold * allowed_bytes as f64) as usize;
        self.limits.taken_bytes.checked_sub(threshold_bytes).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: what goes back first. Method: free segments of every pool and class, noted by hand.

    use super::*;
    use crate::allocator::config::AllocatorConfig;
    use crate::allocator::segment::Owner;
    use crate::size::MIB;

    #[test]
    fn large_segments_go_back_before_small_ones_and_those_of_private_pools_last() {
        // Specification 2.7, release_cached_blocks: large pool, small pool, freeable private pools.
        let mut books = Books::new(AllocatorConfig::default(), 1 << 30, false, None);
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
        assert_eq!(victims.iter().map(base).collect::<Vec<_>>(), [4, 3, 2, 1]);
    }
}
