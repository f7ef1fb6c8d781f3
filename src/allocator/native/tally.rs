//! Sums: what all threads counted, as the statistics of the allocator.

use crate::allocator::native::caches::{Caches, Threads};
use crate::allocator::native::cell::{Cell, CellSums, Part, Quantity};
use crate::allocator::native::core::Native;
use crate::allocator::native::out::Amounts;
use crate::allocator::native::thread_cache::claim;
use crate::allocator::snapshot::PoolClass;
use crate::allocator::stats::{PooledStat, Stat, Statistics};

impl Caches {
    /// Adds what programs have under the native policy, and what awaits its free.
    ///
    /// A peak is exact while one thread alone has counted since the peaks were reset. When several
    /// have, it is never below the truth: at most by what their caches held above it.
    pub(in crate::allocator) fn add_to(&self, statistics: &mut Statistics) {
        let threads = self.threads.lock();
        let mut claimed = claim(&threads.caches);
        let books = self.books.lock(); // from here nothing moves
        let cells = claimed.iter_mut().map(|cache| cache.with(|kept| kept.cell.clone()));
        let cells: Vec<Cell> = cells.chain([threads.shared.clone()]).collect();
        let native = &books.native;
        for quantity in [Quantity::Count, Quantity::Bytes, Quantity::RequestedBytes] {
            let used = sum_up(&cells, quantity, native);
            let awaiting = of_amounts(&native.awaiting_sums, quantity);
            let active = with_awaiting(&used, &awaiting);
            match quantity {
                Quantity::Count => {
                    add(&mut statistics.allocation, &used);
                    add(&mut statistics.active, &active);
                }
                Quantity::Bytes => {
                    add(&mut statistics.allocated_bytes, &used);
                    add(&mut statistics.active_bytes, &active);
                }
                Quantity::RequestedBytes => add(&mut statistics.requested_bytes, &active),
            }
        }
    }

    /// Every peak becomes the current value.
    pub(in crate::allocator) fn reset_peaks(&self) {
        let mut threads = self.threads.lock();
        let Threads { caches, shared } = &mut *threads;
        let mut claimed = claim(caches.iter());
        let mut books = self.books.lock(); // from here nothing moves
        for cache in &mut claimed {
            cache.with(|kept| kept.cell.reset_peaks());
        }
        shared.reset_peaks();
        books.native.out.reset_peaks();
        books.native.awaiting_sums.reset_peaks();
    }
}

/// One quantity of all cells.
fn sum_up(cells: &[Cell], quantity: Quantity, native: &Native) -> PooledStat {
    let sums: Vec<CellSums> = cells.iter().map(|cell| cell.sums(quantity)).collect();
    let mut moved = cells.iter().zip(&sums).filter(|(cell, _)| cell.is_moved());
    let only = match (moved.next(), moved.next()) {
        (Some((cell, sums)), None) if !cell.has_lost_peaks() => Some(*sums),
        (None, _) => Some(CellSums::default()), // nothing was above what is current
        _ => None,
    };
    let out = of_amounts(
        &native.out,
        match quantity {
            Quantity::Count => Quantity::Count,
            _ => Quantity::Bytes, // what is asked for is no more
        },
    );
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

fn of_amounts(amounts: &Amounts, quantity: Quantity) -> PooledStat {
    let index = quantity as usize;
    let stat = |amount: &super::out::Amount| Stat {
        current: amount.current[index],
        peak: amount.peak[index],
        ..Stat::default()
    };
    PooledStat {
        all: stat(amounts.all()),
        small_pool: stat(amounts.of(PoolClass::Small)),
        large_pool: stat(amounts.of(PoolClass::Large)),
    }
}

/// What is in use, and what awaits its free.
fn with_awaiting(used: &PooledStat, awaiting: &PooledStat) -> PooledStat {
    let stat = |used: &Stat, awaiting: &Stat| Stat {
        current: used.current + awaiting.current,
        peak: used.peak + awaiting.peak,
        allocated: used.allocated,
        freed: used.freed.wrapping_sub(awaiting.current),
    };
    PooledStat {
        all: stat(&used.all, &awaiting.all),
        small_pool: stat(&used.small_pool, &awaiting.small_pool),
        large_pool: stat(&used.large_pool, &awaiting.large_pool),
    }
}

/// Adds to what the other policy counted. The sum of two peaks is never below the peak of the sum.
fn add(total: &mut PooledStat, part: &PooledStat) {
    for (total, part) in [
        (&mut total.all, &part.all),
        (&mut total.small_pool, &part.small_pool),
        (&mut total.large_pool, &part.large_pool),
    ] {
        total.current += part.current;
        total.peak += part.peak;
        total.allocated = total.allocated.wrapping_add(part.allocated);
        total.freed = total.freed.wrapping_add(part.freed);
    }
}
