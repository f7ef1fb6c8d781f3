//! A trace as a sequence of batches, wherever its events are kept.

use std::ops::ControlFlow;

use crate::memory::allocator::CachingAllocator;
use crate::memory::allocator::replay::{Operation, Replay, ReplayFigures};
use crate::traces::TraceError;

/// Takes a batch of events; breaks when it needs no more.
pub type Visitor<'a> = dyn FnMut(&[Operation]) -> Result<ControlFlow<()>, TraceError> + 'a;

/// The events in a batch: few enough for the cache of a core, enough that a batch's own cost does
/// not show.
pub(super) const BATCH: usize = 1024;

/// Recorded events, which may be visited any number of times.
pub trait Events {
    /// Hands all events to `visitor`, in their order and in batches, until it breaks or fails.
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError>;
}

impl Events for [Operation] {
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError> {
        for batch in self.chunks(BATCH) {
            if visitor(batch)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Replays a trace to its end, or to a request that runs out of memory. The events behind that are
/// checked if `checks_all`, and not visited otherwise.
///
/// ```
/// use accelrt::AllocatorConfig;
/// use accelrt::allocator::replay::{Accounting, Operation};
/// use accelrt::traces::replay_all;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let figures = replay_all(&accounting.allocator()?, &events[..], true)?;
/// assert_eq!((figures.events, figures.peak_reserved_bytes), (1, 4 << 20));
/// # Ok::<(), accelrt::traces::TraceError>(())
/// ```
pub fn replay_all(
    allocator: &CachingAllocator,
    events: &(impl Events + ?Sized),
    checks_all: bool,
) -> Result<ReplayFigures, TraceError> {
    let mut replay = Replay::new(allocator);
    events.visit(&mut |batch| {
        let goes_on = replay.run(batch)? || checks_all;
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(replay.finish())
}
