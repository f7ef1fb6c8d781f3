//! Which streams' tasks the calling thread is inside of.
//!
//! A worker is inside one; a task that waits for another stream may help it, which is the second.
//! Deeper than that nobody helps: what is drained there is a driver's submissions, or cancelled.

use std::cell::Cell;

use crate::sync::per_thread;

per_thread! {
    /// Keys of the streams being drained on this thread, innermost first; 0 is none.
    static FRAMES: Cell<[u64; 2]> = Cell::new([0; 2]);
}

/// This thread is inside a stream until the frame is dropped.
#[derive(Debug)]
pub(crate) struct Frame {
    outer: [u64; 2],
}

impl Frame {
    #[inline]
    pub(crate) fn enter(stream_key: u64) -> Self {
        let outer = FRAMES.with(Cell::get);
        if outer[1] == 0 {
            FRAMES.with(|frames| frames.set([stream_key, outer[0]]));
        }
        Self { outer }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        FRAMES.with(|frames| frames.set(self.outer));
    }
}

/// True when this thread executes a task of some stream.
#[inline]
pub(crate) fn is_inside_task() -> bool {
    FRAMES.with(Cell::get)[0] != 0
}

/// True when this thread executes a task of this stream, directly or below a helped one.
#[inline]
pub(crate) fn is_inside(stream_key: u64) -> bool {
    FRAMES.with(Cell::get).contains(&stream_key)
}

/// True when this thread may execute a stream that it waits for.
#[inline]
pub(crate) fn may_help() -> bool {
    FRAMES.with(Cell::get)[1] == 0
}
