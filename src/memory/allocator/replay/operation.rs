//! What is replayed, and what comes out of it.

/// One event of a recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request.
    Allocate {
        /// What the free names: any number, used once at a time.
        id: u64,
        /// What was asked for.
        bytes: usize,
        /// The stream that the memory was asked for.
        stream: u64,
    },
    /// The end of a block's life, uses on other streams included.
    Free {
        /// The number that the request was given.
        id: u64,
    },
}

/// What a replay showed.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayFigures {
    /// How many events were replayed: all, or those before the one that failed.
    pub events: usize,
    /// The most bytes that were asked for and not freed at one moment.
    pub peak_live_bytes: usize,
    /// The most bytes that were taken from the device at one moment.
    pub peak_reserved_bytes: usize,
    /// Pages that were mapped, or moved, each counted once a time.
    pub page_operations: u64,
    /// Time of the whole over its events.
    pub ns_per_event: f64,
    /// The event whose request failed for want of memory, from 0.
    pub failed_at: Option<usize>,
}
