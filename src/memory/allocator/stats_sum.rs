//! Sums the counts of all threads into the allocator's statistics.

use crate::memory::allocator::caches::{Caches, Threads};
use crate::memory::allocator::core::Native;
use crate::memory::allocator::pool_counters::{PeakCounters, PoolCounters};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::{PooledStat, Stat, Statistics};
use crate::memory::allocator::thread_cache::RemoteGuard;
use crate::memory::allocator::thread_counters::{CellSums, Part, Quantity, ThreadCounters};

/// Bytes in use under engine `native`.
#[derive(Clone, Copy, Debug)]
pub(super) struct InUse {
    /// Bytes that programs have, with cached ones where they are not told apart.
    pub(crate) allocated_bytes: u64,
    /// `allocated_bytes` and the bytes that await their free.
    pub(crate) active_bytes: u64,
}

impl Native {
    /// Bytes outside of the heaps; cached pieces count as allocated.
    pub(crate) fn in_use(&self) -> InUse {
        let [_, active_bytes] = self.out.all().current();
        let [_, awaiting_bytes, _] = self.awaiting_sums.all().current();
        InUse { allocated_bytes: active_bytes - awaiting_bytes, active_bytes }
    }
}

impl Caches {
    /// Adds the statistics of engine `native`.
    ///
    /// A peak is exact while one thread alone has counted since the reset of peaks. With several
    /// threads it is an upper bound, at most by the bytes that their caches held above it.
    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        let (mut counted, mut at_reset) = self.with_all(|threads, claimed| {
            let counted = self.count_by(threads, claimed, |_, counted| *counted);
            (counted, threads.at_reset)
        });
        let totals = counted_natively(statistics).into_iter();
        let parts = counted_natively(&mut counted).into_iter();
        for ((total, part), before) in totals.zip(parts).zip(counted_natively(&mut at_reset)) {
            add(total, part, before);
        }
    }

    /// Calls `look` with the bytes in use, under the lock.
    pub(crate) fn count_with<T>(&self, look: impl FnOnce(&AllocatorState, InUse) -> T) -> T {
        {
            let threads = self.threads.lock();
            let state = self.state.lock(); // from here none is opened
            let are_closed = threads.caches.iter().all(|cache| cache.is_closed());
            if are_closed && state.native.batches.is_empty() {
                // No thread keeps pieces, so the engine knows the bytes in use.
                return look(&state, state.native.in_use());
            }
        }
        self.with_all(|threads, claimed| {
            self.count_by(threads, claimed, |state, counted| {
                let [allocated_bytes, active_bytes] =
                    [counted.allocated_bytes, counted.active_bytes].map(|stat| stat.all.current);
                look(state, InUse { allocated_bytes, active_bytes })
            })
        })
    }

    /// Sums up all counts since the beginning.
    fn count_by<T>(
        &self,
        threads: &Threads,
        claimed: &mut [RemoteGuard<'_>],
        look: impl FnOnce(&AllocatorState, &Statistics) -> T,
    ) -> T {
        let mut statistics = Statistics::default();
        let state = self.state.lock(); // from here nothing moves
        let cells = claimed.iter_mut().map(|cache| cache.with(|kept| kept.cell().clone()));
        let cells: Vec<ThreadCounters> = cells.chain([threads.shared.clone()]).collect();
        let native = &state.native;
        // Heaps do not count requested bytes.
        let bounds = [Quantity::Count, Quantity::Bytes, Quantity::Bytes];
        let quantities = [Quantity::Count, Quantity::Bytes, Quantity::RequestedBytes];
        for (quantity, bound) in quantities.into_iter().zip(bounds) {
            let out = of_amounts(&native.out, bound);
            let used = sum_up(&cells, quantity, &out);
            let awaiting = of_amounts(&native.awaiting_sums, quantity);
            let active = with_awaiting(&used, &awaiting, &out);
            match quantity {
                Quantity::Count => {
                    (statistics.allocation, statistics.active) = (used, active);
                }
                Quantity::Bytes => {
                    (statistics.allocated_bytes, statistics.active_bytes) = (used, active);
                }
                Quantity::RequestedBytes => statistics.requested_bytes = active,
            }
        }
        look(&state, &statistics)
    }

    /// Resets the sums of both engines.
    pub(crate) fn reset_accumulated(&self) {
        self.with_all(|threads, claimed| {
            threads.at_reset = self.count_by(threads, claimed, |_, counted| *counted);
            let AllocatorState { ledger, native, .. } = &mut *self.state.lock();
            ledger.statistics.reset_accumulated();
            native.splits.reset_accumulated();
            native.lent.reset_accumulated();
        });
    }

    /// Lowers the peaks of both engines to the current values.
    pub(crate) fn reset_peaks(&self) {
        self.with_all(|threads, claimed| {
            let AllocatorState { ledger, native, .. } = &mut *self.state.lock(); // nothing moves
            for cache in claimed {
                cache.with(|kept| kept.cell().reset_peaks());
            }
            threads.shared.reset_peaks();
            native.out.reset_peaks();
            native.awaiting_sums.reset_peaks();
            native.splits.reset_peaks();
            native.lent.reset_peaks();
            ledger.statistics.reset_peaks();
        });
    }
}

/// Sums one quantity over all cells. `out` bounds the peak when several threads counted.
fn sum_up(cells: &[ThreadCounters], quantity: Quantity, out: &PooledStat) -> PooledStat {
    let sums: Vec<CellSums> = cells.iter().map(|cell| cell.sums(quantity)).collect();
    let mut moved = cells.iter().zip(&sums).filter(|(cell, _)| cell.is_moved());
    let only = match (moved.next(), moved.next()) {
        (Some((cell, sums)), None) if !cell.has_lost_peaks() => Some(*sums),
        (None, _) => Some(CellSums::default()), // nothing was above what is current
        _ => None,
    };
    let stat = |part: &dyn Fn(&CellSums) -> Part, bound: &Stat| {
        let current: i64 = sums.iter().map(|sums| part(sums).current).sum();
        let allocated = sums.iter().map(|sums| part(sums).allocated).fold(0, u64::wrapping_add);
        let peak = match &only {
            Some(only) => current - part(only).current + part(only).peak,
            None => bound.peak.cast_signed(),
        };
        let current = current.max(0); // between two looks a free may be seen before its request
        let peak = peak.max(current);
        let current = current.cast_unsigned();
        Stat {
            current,
            peak: peak.cast_unsigned(),
            allocated,
            freed: allocated.wrapping_sub(current),
        }
    };
    PooledStat {
        all: stat(&|sums| sums.all, &out.all),
        small_pool: stat(&|sums| sums.small, &out.small_pool),
        large_pool: stat(&|sums| sums.large, &out.large_pool),
    }
}

fn of_amounts<const N: usize>(amounts: &PoolCounters<N>, quantity: Quantity) -> PooledStat {
    let index = quantity as usize;
    let stat = |amount: &PeakCounters<N>| Stat {
        current: amount.current()[index],
        peak: amount.peaks()[index],
        ..Stat::default()
    };
    PooledStat {
        all: stat(amounts.all()),
        small_pool: stat(amounts.of(PoolClass::Small)),
        large_pool: stat(amounts.of(PoolClass::Large)),
    }
}

/// Adds pieces that await their free. `out` contains both, so its peak bounds their peak.
fn with_awaiting(used: &PooledStat, awaiting: &PooledStat, out: &PooledStat) -> PooledStat {
    let stat = |used: &Stat, awaiting: &Stat, out: &Stat| {
        let current = used.current + awaiting.current;
        let peak = (used.peak + awaiting.peak).min(out.peak).max(current);
        let freed = used.freed.wrapping_sub(awaiting.current);
        Stat { current, peak, allocated: used.allocated, freed }
    };
    PooledStat {
        all: stat(&used.all, &awaiting.all, &out.all),
        small_pool: stat(&used.small_pool, &awaiting.small_pool, &out.small_pool),
        large_pool: stat(&used.large_pool, &awaiting.large_pool, &out.large_pool),
    }
}

/// The statistics that threads count.
fn counted_natively(statistics: &mut Statistics) -> [&mut PooledStat; 5] {
    let Statistics { allocation, active, allocated_bytes, active_bytes, requested_bytes, .. } =
        statistics;
    [allocation, active, allocated_bytes, active_bytes, requested_bytes]
}

/// Adds one engine's counts since `before` to the other's. The sum of two peaks is an upper bound
/// of the peak of the sum.
fn add(total: &mut PooledStat, part: &PooledStat, before: &PooledStat) {
    for (total, part, before) in [
        (&mut total.all, &part.all, &before.all),
        (&mut total.small_pool, &part.small_pool, &before.small_pool),
        (&mut total.large_pool, &part.large_pool, &before.large_pool),
    ] {
        total.current += part.current;
        total.peak += part.peak;
        let since = |now: u64, then: u64| now.wrapping_sub(then);
        total.allocated = total.allocated.wrapping_add(since(part.allocated, before.allocated));
        total.freed = total.freed.wrapping_add(since(part.freed, before.freed));
    }
}
