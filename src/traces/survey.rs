//! The sizes and the peak of a trace, without an allocator.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::base::size::MIB;
use crate::memory::allocator::replay::{Places, Step};
use crate::traces::{Events, TraceError};

/// Sizes are counted in MiB up to this number of them; larger ones count there.
const MOST_MIB: usize = 1 << 16;

/// What the events of a trace need, whatever serves them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The number of events.
    pub events: usize,
    /// How many of them are requests.
    pub requests: usize,
    /// The peak of the requested bytes in use.
    pub peak_live_bytes: usize,
    /// The largest request.
    pub largest_bytes: usize,
    /// How many requests there are of each size above 1 MiB, in whole MiB, rounded up.
    pub requests_by_mib: BTreeMap<usize, usize>,
}

/// Visits a trace once.
///
/// ```
/// use accelrt::allocator::replay::Operation;
/// use accelrt::traces::survey;
///
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let found = survey(&events[..])?;
/// assert_eq!((found.peak_live_bytes, found.requests_by_mib[&3]), (3 << 20, 1));
/// # Ok::<(), accelrt::traces::TraceError>(())
/// ```
pub fn survey(events: &(impl Events + ?Sized)) -> Result<Survey, TraceError> {
    let (mut places, mut found) = (Places::default(), Survey::default());
    // Sizes of a table are any numbers: their sum may be none of a word.
    let (mut live_bytes, mut peak_bytes) = (0_u128, 0);
    events.visit(&mut |batch| {
        found.events += batch.len();
        for event in batch {
            let Step { bytes, stream, .. } = places.take(event)?;
            if stream.is_none() {
                live_bytes -= bytes as u128;
                continue;
            }
            live_bytes += bytes as u128;
            peak_bytes = peak_bytes.max(live_bytes);
            found.requests += 1;
            found.largest_bytes = found.largest_bytes.max(bytes);
            if bytes > MIB {
                let mib = bytes.div_ceil(MIB).min(MOST_MIB);
                *found.requests_by_mib.entry(mib).or_default() += 1;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.peak_live_bytes = usize::try_from(peak_bytes).unwrap_or(usize::MAX);
    Ok(found)
}
