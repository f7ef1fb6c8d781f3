//! Statistics of an allocator.

use crate::base::config::AllocatorConfig;
use crate::memory::allocator::snapshot::PoolClass;

/// A value and its history. Equation: until the sums are reset, `current` is `allocated - freed`;
/// `peak` is the largest `current` since the last reset of peaks. Under policy `native` memory may
/// change its class: it is in the `current` of one and then of the other, and in the sums of
/// `reserved_bytes` only when it comes from the device, or goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The value now.
    pub current: u64,
    /// The largest value.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

impl Stat {
    pub(super) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    pub(super) fn decrease(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "{amount} of {self:?}");
        self.current -= amount;
        self.freed += amount;
    }

    /// Increases or decreases, without a branch: which of both is not foreseen.
    #[inline(always)]
    fn change(&mut self, amount: i64) {
        debug_assert!(amount >= 0 || self.current >= amount.unsigned_abs(), "{amount} of {self:?}");
        self.current = self.current.wrapping_add_signed(amount);
        self.peak = self.peak.max(self.current);
        self.allocated += amount.max(0).cast_unsigned();
        self.freed += amount.min(0).unsigned_abs();
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated = self.allocated.wrapping_add(other.allocated);
        self.freed = self.freed.wrapping_add(other.freed);
    }

    /// Counts `part` in another statistic, whose peak stays within `most`, that of both together.
    /// Sums do not change.
    fn lend(&mut self, to: &mut Self, part: &Self, most: u64) {
        self.current -= part.current;
        to.current += part.current;
        to.peak = (to.peak + part.peak).min(most);
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(super) fn reset_accumulated(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }

    fn add_entries(&self, name: &str, entries: &mut Vec<(String, i64)>) {
        let values = [
            ("current", self.current),
            ("peak", self.peak),
            ("allocated", self.allocated),
            ("freed", self.freed),
        ];
        for (key, value) in values {
            entries.push((format!("{name}.{key}"), value.cast_signed()));
        }
    }
}

/// A statistic for each class of requests, and for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PooledStat {
    /// Both classes.
    pub all: Stat,
    /// The small class.
    pub small_pool: Stat,
    /// The large class.
    pub large_pool: Stat,
}

impl PooledStat {
    /// Returns the statistic of one class.
    #[must_use]
    pub fn of(&self, class: PoolClass) -> &Stat {
        match class {
            PoolClass::Small => &self.small_pool,
            PoolClass::Large => &self.large_pool,
        }
    }

    pub(super) fn of_mut(&mut self, class: PoolClass) -> &mut Stat {
        match class {
            PoolClass::Small => &mut self.small_pool,
            PoolClass::Large => &mut self.large_pool,
        }
    }

    pub(super) fn increase(&mut self, class: PoolClass, amount: usize) {
        self.all.increase(amount as u64);
        self.of_mut(class).increase(amount as u64);
    }

    pub(super) fn decrease(&mut self, class: PoolClass, amount: usize) {
        self.all.decrease(amount as u64);
        self.of_mut(class).decrease(amount as u64);
    }

    /// Increases or decreases by a signed amount.
    #[inline(always)]
    pub(super) fn change(&mut self, class: PoolClass, amount: isize) {
        self.all.change(amount as i64);
        self.of_mut(class).change(amount as i64);
    }

    /// Moves an amount between the classes. `all` and the sums do not change.
    pub(super) fn transfer(&mut self, from: PoolClass, to: PoolClass, amount: usize) {
        if from != to {
            self.of_mut(from).current -= amount as u64;
            let to = self.of_mut(to);
            to.current += amount as u64;
            to.peak = to.peak.max(to.current);
        }
    }

    /// Adds another count of the same quantity. The sum of two peaks is an upper bound.
    pub(super) fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.small_pool.add(&other.small_pool);
        self.large_pool.add(&other.large_pool);
    }

    pub(super) fn reset_peaks(&mut self) {
        self.all.reset_peak();
        self.small_pool.reset_peak();
        self.large_pool.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.all.reset_accumulated();
        self.small_pool.reset_accumulated();
        self.large_pool.reset_accumulated();
    }

    /// Counts `parts`, the bytes that blocks have in memory of the other class, in their own class.
    /// Peaks of a class become upper bounds.
    pub(super) fn lend(&mut self, parts: &Self) {
        let Self { all, small_pool, large_pool } = self;
        small_pool.lend(large_pool, &parts.large_pool, all.peak);
        large_pool.lend(small_pool, &parts.small_pool, all.peak);
    }

    fn parts(&self) -> [(&'static str, &Stat); 3] {
        [("all", &self.all), ("small_pool", &self.small_pool), ("large_pool", &self.large_pool)]
    }
}

/// Makes the struct, its flat keys and its resets from one list of fields.
macro_rules! statistics {
    (
        pooled { $($(#[$pooled_doc:meta])* $pooled:ident,)* }
        single { $($(#[$single_doc:meta])* $single:ident,)* }
        counter { $($(#[$counter_doc:meta])* $counter:ident,)* }
    ) => {
        /// Statistics of an allocator, with PyTorch's names and meanings where it has them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[$pooled_doc])* pub $pooled: PooledStat,)*
            $($(#[$single_doc])* pub $single: Stat,)*
            $($(#[$counter_doc])* pub $counter: u64,)*
            /// The setting `max_split_size_mb` in bytes; -1 for no limit.
            pub max_split_size: i64,
        }

        impl Statistics {
            /// Returns every value by its flat key, sorted by key.
            #[must_use]
            pub fn entries(&self) -> Vec<(String, i64)> {
                let mut entries = vec![("max_split_size".to_owned(), self.max_split_size)];
                $(for (part, stat) in self.$pooled.parts() {
                    let name = format!("{}.{part}", stringify!($pooled));
                    stat.add_entries(&name, &mut entries);
                })*
                $(self.$single.add_entries(stringify!($single), &mut entries);)*
                $(entries.push((stringify!($counter).to_owned(), self.$counter.cast_signed()));)*
                entries.sort();
                entries
            }

            pub(super) fn reset_peaks(&mut self) {
                $(self.$pooled.reset_peaks();)*
                $(self.$single.reset_peak();)*
            }

            pub(super) fn reset_accumulated(&mut self) {
                $(self.$pooled.reset_accumulated();)*
                $(self.$single.reset_accumulated();)*
                $(self.$counter = 0;)*
            }
        }
    };
}

statistics! {
    pooled {
        /// Allocated blocks: handed out and not freed.
        allocation,
        /// Bytes of the allocated blocks.
        allocated_bytes,
        /// Segments from the device; expandable ones do not count.
        segment,
        /// Bytes of segments and mapped pages.
        reserved_bytes,
        /// Active blocks: allocated ones, and those that await their free.
        active,
        /// Bytes of the active blocks.
        active_bytes,
        /// Requested bytes of the active blocks.
        requested_bytes,
        /// Free blocks that cannot go back to the device because other blocks share their segment.
        /// Under policy `native` also the free parts of slabs and, where pages go back one by one,
        /// the parts of free blocks that share a page with other blocks.
        inactive_split,
        /// Bytes of the inactive split blocks.
        inactive_split_bytes,
    }
    single {
        /// Allocated blocks of at least `max_split_size`.
        oversize_allocations,
        /// Segments of at least `max_split_size`; expandable ones do not count.
        oversize_segments,
    }
    counter {
        /// Requests that asked the device again after all free memory was to go back.
        num_alloc_retries,
        /// Requests that failed because memory ran out.
        num_ooms,
        /// Times that all free memory was to go back: the cache was emptied, or memory was short. A
        /// shortage waits for the streams that hold enough, in PyTorch for all.
        num_sync_all_streams,
        /// Segments and ranges of pages taken from the device.
        num_device_alloc,
        /// Segments and ranges of pages given back.
        num_device_free,
        /// Not in PyTorch: requests that failed at once because of `throw_on_cudamalloc_oom`.
        num_oom_rejections,
        /// Not in PyTorch: pages moved to addresses that lacked them.
        num_pages_stolen,
        /// Not in PyTorch: requests served from another stream's memory.
        num_frontier_reuses,
    }
}

impl Statistics {
    /// Counts a block that is handed out.
    pub(super) fn begin_use(&mut self, class: PoolClass, bytes: usize, requested_bytes: usize) {
        self.allocation.increase(class, 1);
        self.allocated_bytes.increase(class, bytes);
        self.active.increase(class, 1);
        self.active_bytes.increase(class, bytes);
        self.requested_bytes.increase(class, requested_bytes);
    }

    /// Counts a block that is freed, while streams may still use it.
    pub(super) fn end_allocation(&mut self, class: PoolClass, bytes: usize) {
        self.allocation.decrease(class, 1);
        self.allocated_bytes.decrease(class, bytes);
    }

    /// Counts a freed block that no stream uses any more.
    pub(super) fn end_use(&mut self, class: PoolClass, bytes: usize, requested_bytes: usize) {
        self.active.decrease(class, 1);
        self.active_bytes.decrease(class, bytes);
        self.requested_bytes.decrease(class, requested_bytes);
    }

    pub(super) fn change_inactive_split(&mut self, class: PoolClass, blocks: isize, bytes: isize) {
        self.inactive_split.change(class, blocks);
        self.inactive_split_bytes.change(class, bytes);
    }

    /// Returns the statistics of an allocator before its first request.
    pub(crate) fn of_nothing(config: &AllocatorConfig) -> Self {
        let most_split = config.max_split_bytes.map(|bytes| i64::try_from(bytes).ok());
        let max_split_size = most_split.map_or(-1, |bytes| bytes.unwrap_or(i64::MAX));
        Self { max_split_size, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_122_keys_of_pytorch_and_ours_are_sorted() {
        let entries = Statistics::default().entries();
        let ours = ["num_frontier_reuses", "num_oom_rejections", "num_pages_stolen"];
        assert_eq!(entries.len(), 122 + ours.len());
        assert!(entries.is_sorted());
        for key in ["allocation.all.peak", "oversize_segments.freed", "max_split_size"] {
            assert!(entries.iter().any(|(name, _)| name == key), "{key}");
        }
    }

    proptest::proptest! {
        /// Goal: the sums of classes are what came and went, whatever changes its class.
        #[test]
        fn transfers_and_loans_change_no_sums(
            steps in proptest::collection::vec((0..4_u8, 0..100_usize), 1..50)
        ) {
            let (mut stat, mut lent) = (PooledStat::default(), PooledStat::default());
            let (mut sums, mut currents) = ([[0_u64; 2]; 2], [0_u64; 2]);
            let classes = [PoolClass::Small, PoolClass::Large];
            for (step, amount) in steps {
                let (index, class) = (usize::from(step % 2), classes[usize::from(step % 2)]);
                let bytes = amount.min(usize::try_from(currents[index]).unwrap());
                if step < 2 {
                    stat.increase(class, amount);
                    sums[index][0] += amount as u64;
                    currents[index] += amount as u64;
                } else if amount % 2 == 0 {
                    stat.decrease(class, bytes);
                    sums[index][1] += bytes as u64;
                    currents[index] -= bytes as u64;
                } else {
                    stat.transfer(class, classes[1 - index], bytes);
                    currents[index] -= bytes as u64;
                    currents[1 - index] += bytes as u64;
                }
                // Blocks of the other class have some of it.
                let lends = currents[0].min(amount as u64);
                lent.large_pool = Stat { current: lends, peak: lends, ..Stat::default() };
                let mut shown = stat;
                shown.lend(&lent);
                let found = classes.map(|class| {
                    let Stat { allocated, freed, .. } = *shown.of(class);
                    [allocated, freed]
                });
                proptest::prop_assert_eq!(found, sums);
                let found = classes.map(|class| shown.of(class).current);
                proptest::prop_assert_eq!(found, [currents[0] - lends, currents[1] + lends]);
                for class in classes {
                    proptest::prop_assert!(shown.of(class).peak >= shown.of(class).current);
                }
            }
        }
    }

    #[test]
    fn resets_leave_what_is_current() {
        let mut statistics = Statistics::default();
        statistics.active_bytes.increase(PoolClass::Large, 30);
        statistics.active_bytes.change(PoolClass::Large, -20);
        statistics.num_ooms = 3;
        statistics.reset_accumulated();
        let expected = Stat { current: 10, peak: 30, allocated: 0, freed: 0 };
        assert_eq!(statistics.active_bytes.all, expected);
        assert_eq!(statistics.num_ooms, 0);
        statistics.reset_peaks();
        assert_eq!(*statistics.active_bytes.of(PoolClass::Large), Stat { peak: 10, ..expected });
        assert_eq!(statistics.active_bytes.small_pool, Stat::default());
    }
}
