//! Events: the requests and frees of a recorded program, visited in batches.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use accelrt::{CachingAllocator, Error};

use crate::replay::Replay;

/// An event of a recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request.
    Allocate {
        /// The number that its free names: any that no block in use has.
        id: u64,
        /// The requested size.
        bytes: usize,
        /// The stream of the request.
        stream: u64,
    },
    /// A completed free: no stream uses the block any more.
    Free {
        /// The number of the request.
        id: u64,
    },
}

/// The figures of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayFigures {
    /// The number of events replayed: all, or those before the one that failed.
    pub events: usize,
    /// The peak of the requested bytes in use.
    pub peak_live_bytes: usize,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: usize,
    /// The number of maps and moves of pages.
    pub page_operations: u64,
    /// The mean time of an event, in nanoseconds.
    pub ns_per_event: f64,
    /// The index of the event whose request ran out of memory.
    pub failed_at: Option<usize>,
}

/// Takes a batch of events; breaks when it needs no more.
pub type Visitor<'a> = dyn FnMut(&[Operation]) -> Result<ControlFlow<()>, TraceError> + 'a;

/// The events in a batch: few enough for the cache of a core, enough that a batch's own cost does
/// not show.
pub(crate) const BATCH: usize = 1024;

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
/// use accelrt_replay::{Accounting, Operation};
/// use accelrt_replay::replay_all;
///
/// let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
/// let accounting = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
/// let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
/// let figures = replay_all(&accounting.allocator()?, &events[..], true)?;
/// assert_eq!((figures.events, figures.peak_reserved_bytes), (1, 4 << 20));
/// # Ok::<(), accelrt_replay::TraceError>(())
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

/// Why a pass over a trace ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line of a table is none, or contradicts the lines before it.
    #[error("cannot read {}: line {line}{text}", path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with the line, behind its number.
        text: String,
    },
    /// A file cannot be opened or read.
    #[error("cannot read {}: {}", path.display(), reason(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The allocator or its device failed, or events in memory contradict themselves.
    #[error(transparent)]
    Replay(#[from] Error),
    /// The visitor asked for the end, for a reason of its own.
    #[error("The pass over the trace was interrupted")]
    Interrupted,
}

/// The system's words without the number that the standard library appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
