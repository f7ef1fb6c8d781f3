//! The events of a replay, and its figures.

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
