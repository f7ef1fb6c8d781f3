//! A stream as an allocator knows it. The stream may end before its uses of memory do.

use std::sync::{Arc, Weak};

use crate::engine::frontier::Progress;
use crate::engine::stream::core::StreamCore;

#[derive(Debug)]
pub(super) struct KnownStream {
    pub(super) progress: Arc<Progress>,
    /// For waits only: the counter says how far the stream is, even after its end.
    pub(super) core: Weak<StreamCore>,
}

impl KnownStream {
    pub(super) fn of(stream: &Arc<StreamCore>) -> Self {
        Self { progress: Arc::clone(&stream.progress), core: Arc::downgrade(stream) }
    }
}
