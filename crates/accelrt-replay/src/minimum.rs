//! The smallest capacity of a device on which a trace completes.

use std::collections::BTreeMap;

use crate::events::{Events, TraceError};
use crate::replay::{Accounting, ReplayFigures, replay_all};

/// The smallest capacity on which a trace completes, and what it was found by.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Minimum {
    /// The replay on the largest capacity.
    pub figures: ReplayFigures,
    /// The peak of the live bytes in whole granules: less suffices for no allocator.
    pub bound_bytes: usize,
    /// The smallest capacity found, in whole granules: the trace completes on it, and fails on one
    /// granule less. `None` when it completes on no capacity up to the largest.
    pub bytes: Option<usize>,
    /// The largest capacity above that on which the trace fails again, of those that were tried.
    pub fails_again_bytes: Option<usize>,
    /// How often the trace was replayed.
    pub replays: usize,
}

/// Searches the smallest capacity, up to that of `most`, on which a trace completes.
///
/// By bisection between the bound and what the trace reserves when there is enough. An allocator
/// may fail on more memory and complete on less, so capacities below and above the result are tried
/// too, at distances that double: one below that completes begins the search again.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt_replay::{Accounting, Operation};
/// use accelrt_replay::minimum;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let most = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let found = minimum(&events[..], &most)?;
/// assert_eq!((found.bytes, found.bound_bytes), (Some(4 << 20), 4 << 20));
/// # Ok::<(), accelrt_replay::TraceError>(())
/// ```
pub fn minimum(events: &(impl Events + ?Sized), most: &Accounting) -> Result<Minimum, TraceError> {
    let granularity_bytes = most.granularity_bytes;
    let figures = replay_all(&most.allocator()?, events, true)?;
    let mut search = Search {
        events,
        most,
        bound: figures.peak_live_bytes.div_ceil(granularity_bytes),
        tried: BTreeMap::new(),
        replays: 1,
    };
    let reserved = figures.peak_reserved_bytes.div_ceil(granularity_bytes);
    let least = if figures.failed_at.is_none() { search.least(reserved)? } else { None };
    let again = search.tried.iter().filter(|(granules, completes)| {
        !**completes && least.is_some_and(|least| **granules > least)
    });
    Ok(Minimum {
        bound_bytes: search.bound * granularity_bytes,
        bytes: least.map(|granules| granules * granularity_bytes),
        fails_again_bytes: again.map(|(granules, _)| granules * granularity_bytes).max(),
        replays: search.replays,
        figures,
    })
}

/// A search, in granules.
struct Search<'a, E: ?Sized> {
    events: &'a E,
    most: &'a Accounting,
    bound: usize,
    /// Whether the trace completes on each capacity that was tried.
    tried: BTreeMap<usize, bool>,
    replays: usize,
}

impl<E: Events + ?Sized> Search<'_, E> {
    fn completes(&mut self, granules: usize) -> Result<bool, TraceError> {
        if let Some(known) = self.tried.get(&granules) {
            return Ok(*known);
        }
        let capacity_bytes = granules * self.most.granularity_bytes;
        let accounting = Accounting { capacity_bytes, ..self.most.clone() };
        let figures = replay_all(&accounting.allocator()?, self.events, false)?;
        self.replays += 1;
        self.tried.insert(granules, figures.failed_at.is_none());
        Ok(figures.failed_at.is_none())
    }

    /// Returns the least capacity, beginning at what was reserved when there was enough.
    fn least(&mut self, reserved: usize) -> Result<Option<usize>, TraceError> {
        let largest = self.most.capacity_bytes / self.most.granularity_bytes;
        let Some(first) = self.completing_from(reserved.max(self.bound), largest)? else {
            return Ok(None);
        };
        let mut least = first;
        loop {
            least = self.bisect(least)?;
            let Some(lower) = self.completing_below(least)? else { break };
            least = lower;
        }
        for distance in doubling().take_while(|distance| least + distance < first) {
            self.completes(least + distance)?;
        }
        // Below the bound nothing was tried.
        let has_failed_below = least == 0 || !self.completes(least - 1)?;
        let is_least = has_failed_below && self.completes(least)?;
        assert!(is_least, "the search for a capacity ended at {least} granules");
        Ok(Some(least))
    }

    /// The first capacity from one on that completes, at distances that double.
    fn completing_from(
        &mut self,
        begin: usize,
        largest: usize,
    ) -> Result<Option<usize>, TraceError> {
        let later = doubling().map(|distance| begin.saturating_add(distance).min(largest));
        for granules in std::iter::once(begin.min(largest)).chain(later) {
            if self.completes(granules)? {
                return Ok(Some(granules));
            }
            if granules == largest {
                break;
            }
        }
        Ok(None)
    }

    /// Halves the range between the bound, below which nothing completes, and one that completes.
    fn bisect(&mut self, completing: usize) -> Result<usize, TraceError> {
        let (mut low, mut high) = (self.bound, completing);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.completes(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(high)
    }

    fn completing_below(&mut self, least: usize) -> Result<Option<usize>, TraceError> {
        let most = least - self.bound.min(least);
        for distance in doubling().take_while(|distance| *distance <= most) {
            if self.completes(least - distance)? {
                return Ok(Some(least - distance));
            }
        }
        Ok(None)
    }
}

/// 1, 2, 4 and so on.
fn doubling() -> impl Iterator<Item = usize> {
    (0..usize::BITS - 1).map(|power| 1 << power)
}
