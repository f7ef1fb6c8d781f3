//! Assertions of an allocator's invariants: blocks tile, indices list free blocks, sums agree.

use std::collections::BTreeMap;

use crate::base::fork;
use crate::base::size::to_usize;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::request::Pools;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState, PoolClass, SegmentInfo, Snapshot};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::{PooledStat, Stat, Statistics};
use crate::memory::allocator::torch::Torch;
use crate::memory::allocator::torch_blocks::{BlockId, Segment, State};

impl CachingAllocator {
    /// Asserts all invariants, which hold between two calls. For tests: reads every block.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check_all(&self) {
        if fork::is_child() {
            return;
        }
        let snapshot = self.describe();
        let total = self.statistics_so_far();
        let state = self.state.lock();
        state.check_pending();
        let AllocatorState { ledger, torch, native, .. } = &*state;
        torch.check(&ledger.pools);
        native.check();
        check_apart(torch.ranges().chain(native.ranges()));
        let class_of = |info: &SegmentInfo, block: &BlockInfo| native.class_of(info, block);
        check_sums(&snapshot, &total, |info| native.held_back(info), class_of);
        let reserved_bytes = to_usize(ledger.statistics.reserved_bytes.all.current);
        // Between two calls nothing is asked for, so what was taken is what is reserved.
        assert_eq!(ledger.limits.taken_bytes, reserved_bytes, "{:?}", ledger.limits);
    }
}

/// Asserts that a snapshot's sums are the statistics. `held_back` returns the inactive splits of an
/// expandable segment, `class_of` the class that a block counts in. Source: PyTorch's
/// `_check_memory_stat_consistency`.
fn check_sums(
    snapshot: &Snapshot,
    statistics: &Statistics,
    held_back: impl Fn(&SegmentInfo) -> Vec<usize>,
    class_of: impl Fn(&SegmentInfo, &BlockInfo) -> PoolClass,
) {
    snapshot.segments.iter().for_each(check_segment);
    for class in [None, Some(PoolClass::Small), Some(PoolClass::Large)] {
        let is_wanted = |found: PoolClass| class.is_none_or(|class| class == found);
        let all = snapshot.segments.iter();
        let segments: Vec<&SegmentInfo> = all.filter(|info| is_wanted(info.class)).collect();
        let plain = segments.iter().filter(|info| !info.is_expandable);
        let blocks = snapshot
            .segments
            .iter()
            .flat_map(|info| info.blocks.iter().filter(|block| is_wanted(class_of(info, block))));
        let blocks: Vec<&BlockInfo> = blocks.collect();
        let of = |is_counted: fn(BlockState) -> bool, amount: fn(&BlockInfo) -> usize| {
            blocks.iter().filter(|block| is_counted(block.state)).map(|block| amount(block)).sum()
        };
        let (is_allocated, is_active) =
            (|state| state == BlockState::Allocated, BlockState::is_active);
        let requested_bytes = of(is_active, |block| block.requested_bytes);
        let inactive_of = |info: &&SegmentInfo| {
            let is_inactive = |block: &&BlockInfo| block.state == BlockState::Inactive;
            match info.blocks.len() {
                _ if info.is_expandable => held_back(info),
                1 => Vec::new(),
                _ => info.blocks.iter().filter(is_inactive).map(|block| block.bytes).collect(),
            }
        };
        let inactive: Vec<usize> = segments.iter().flat_map(inactive_of).collect();
        let rows: [(&str, &PooledStat, usize); 9] = [
            ("segment", &statistics.segment, plain.count()),
            ("reserved_bytes", &statistics.reserved_bytes, of(|_| true, |block| block.bytes)),
            ("allocated_bytes", &statistics.allocated_bytes, of(is_allocated, |block| block.bytes)),
            ("active_bytes", &statistics.active_bytes, of(is_active, |block| block.bytes)),
            ("requested_bytes", &statistics.requested_bytes, requested_bytes),
            ("allocation", &statistics.allocation, of(is_allocated, |_| 1)),
            ("active", &statistics.active, of(is_active, |_| 1)),
            ("inactive_split", &statistics.inactive_split, inactive.len()),
            ("inactive_split_bytes", &statistics.inactive_split_bytes, inactive.iter().sum()),
        ];
        for (name, stat, expected) in rows {
            let found = class.map_or(&stat.all, |class| stat.of(class));
            assert_eq!(to_usize(found.current), expected, "{name} of {class:?}");
            assert!(found.peak >= found.current, "{name} of {class:?}: {found:?}");
            let sum = |part: fn(&Stat) -> u64| {
                let [small, large] = [&stat.small_pool, &stat.large_pool].map(part);
                assert_eq!(part(&stat.all), small.wrapping_add(large), "{name}: {stat:?}");
            };
            sum(|it| it.current);
            sum(|it| it.allocated);
            sum(|it| it.freed);
        }
        let bytes = |stat: &PooledStat| class.map_or(&stat.all, |class| stat.of(class)).current;
        let Statistics { allocated_bytes, active_bytes, reserved_bytes, .. } = statistics;
        let sums = [allocated_bytes, active_bytes, reserved_bytes].map(bytes);
        assert!(sums.is_sorted(), "allocated, active and reserved: {sums:?}");
    }
}

/// Asserts that a segment's sums are those of its blocks.
fn check_segment(info: &SegmentInfo) {
    let mut sums = [0; 4];
    for block in &info.blocks {
        let (is_allocated, is_active) = match block.state {
            BlockState::Allocated => (1, 1),
            BlockState::Inactive => (0, 0),
            _ => (0, 1),
        };
        let requested_bytes = is_active * block.requested_bytes;
        let own = [block.bytes, is_allocated * block.bytes, is_active * block.bytes];
        for (sum, bytes) in sums.iter_mut().zip(own.into_iter().chain([requested_bytes])) {
            *sum += bytes;
        }
    }
    let SegmentInfo { total_bytes, allocated_bytes, active_bytes, requested_bytes, .. } = *info;
    assert_eq!([total_bytes, allocated_bytes, active_bytes, requested_bytes], sums, "{info:?}");
}

impl Torch {
    fn check(&self, pools: &Pools) {
        for (_, segment) in self.segments.iter() {
            self.check_tiling(segment);
            self.check_pages(segment);
        }
        self.check_indices();
        self.check_map();
        self.check_pools(pools);
    }

    /// Returns the address and the bytes of each segment.
    fn ranges(&self) -> impl Iterator<Item = (u64, usize)> {
        self.segments.iter().map(|(_, segment)| (segment.address, segment.bytes))
    }

    /// Asserts law 1: no gap, no overlap, no unmerged neighbours.
    fn check_tiling(&self, segment: &Segment) {
        let (mut at, mut previous) = (segment.address, None::<BlockId>);
        for (id, block) in self.blocks.chain(segment.first) {
            assert!(block.bytes > 0, "{block:?}");
            assert_eq!((block.address, block.previous), (at, previous), "{block:?}");
            let owner = &self.segments[block.segment];
            assert!(std::ptr::eq(owner, segment), "{block:?} is of another segment");
            if let Some(previous) = previous {
                let before = self.blocks[previous].state;
                let is_merged = matches!(block.state, State::Free | State::Unmapped);
                assert!(!is_merged || before != block.state, "two neighbours are {before:?}");
            }
            let is_mapped = block.state != State::Unmapped;
            assert!(is_mapped || segment.is_expandable(), "{block:?} has no memory");
            at = block.end();
            previous = Some(id);
        }
        assert_eq!(at, segment.address + segment.bytes as u64, "blocks end with their segment");
    }

    /// Asserts that pages are mapped except in unmapped blocks and those on their way.
    fn check_pages(&self, segment: &Segment) {
        let Some(pages) = &segment.pages else { return };
        let mut expected = 0;
        for (_, block) in self.blocks.chain(segment.first) {
            let page_of = |address: u64| to_usize(address - segment.address) / pages.page_bytes;
            let may_lack = [State::Unmapped, State::InFlight].contains(&block.state);
            if may_lack && !segment.has_memory_at(block.address) {
                for address in [block.address, block.end()] {
                    let offset = to_usize(address - segment.address);
                    assert!(offset.is_multiple_of(pages.page_bytes), "{block:?}");
                }
                continue;
            }
            assert_ne!(block.state, State::Unmapped, "{block:?} has memory");
            for index in page_of(block.address)..=page_of(block.end() - 1) {
                assert!(pages.get(index).is_some(), "page {index} of {block:?} has no memory");
            }
            expected += block.bytes;
        }
        assert_eq!(pages.handles().count() * pages.page_bytes, expected, "pages of no block");
    }

    /// Asserts that the indices list each free or unmapped block once, by its key.
    fn check_indices(&self) {
        let mut indexed: BTreeMap<BlockId, State> = BTreeMap::new();
        for (pool, class, index) in self.indices.iter() {
            let free = index.all().map(|id| (id, State::Free));
            let unmapped = index.all_unmapped().map(|id| (id, State::Unmapped));
            for (id, state) in free.chain(unmapped) {
                let owner = self.owner_of(id);
                assert_eq!((owner.pool, owner.class), (pool, class), "{id:?}");
                assert!(indexed.insert(id, state).is_none(), "{id:?} stands there twice");
            }
            index.check_keys(&self.blocks, |id| self.owner_of(id).stream);
        }
        let states = self.blocks.iter().map(|(id, block)| (id, block.state));
        let listed = states.filter(|(_, state)| matches!(state, State::Free | State::Unmapped));
        let expected: BTreeMap<BlockId, State> = listed.collect();
        assert_eq!(indexed, expected, "the indices list the free blocks");
    }

    fn check_map(&self) {
        let mapped: BTreeMap<u64, BlockId> = self.map.iter().collect();
        let expected: BTreeMap<u64, BlockId> =
            self.blocks.iter().map(|(id, block)| (block.address, id)).collect();
        assert_eq!(mapped, expected, "the map knows every block by its first byte");
        for (_, block) in self.blocks.iter() {
            let middle = block.address + block.bytes as u64 / 2;
            for address in [block.address, middle, block.end() - 1] {
                let found = self.map.containing(address, &self.blocks).map(|id| &self.blocks[id]);
                let found = found.map(|found| found.address);
                assert_eq!(found, Some(block.address), "{address:#x}");
            }
        }
    }

    fn check_pools(&self, pools: &Pools) {
        for (id, pool) in pools.iter() {
            let count = self.segments.iter().filter(|(_, segment)| segment.owner.pool == id);
            assert_eq!(pool.segments, count.count(), "segments of {id:?}");
        }
    }
}

/// Asserts that no two of these ranges of addresses overlap.
fn check_apart(ranges: impl Iterator<Item = (u64, usize)>) {
    let mut ranges: Vec<_> = ranges.map(|(begin, bytes)| begin..begin + bytes as u64).collect();
    ranges.sort_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:x?} overlap");
    }
}

#[cfg(test)]
mod tests {
    use super::check_apart;

    #[test]
    fn ranges_side_by_side_are_apart_in_any_order() {
        check_apart([(8, 4), (0, 8), (16, 1)].into_iter());
    }

    #[test]
    #[should_panic(expected = "[0..8, 7..c] overlap")]
    fn ranges_that_share_a_byte_are_told() {
        check_apart([(7, 5), (0, 8)].into_iter());
    }
}
