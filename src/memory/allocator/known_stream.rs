//! Streams as an allocator knows them, which may go before what was used on them does.

use std::sync::{Arc, Weak};

use crate::engine::frontier::Progress;
use crate::engine::stream::core::StreamCore;

/// A stream, be it gone or not.
#[derive(Debug)]
pub(super) struct KnownStream {
    pub(super) progress: Arc<Progress>,
    /// For waiting alone: how far it is, the counter says, also when the stream is gone.
    pub(super) core: Weak<StreamCore>,
}

impl KnownStream {
    pub(super) fn of(stream: &Arc<StreamCore>) -> Self {
        Self { progress: Arc::clone(&stream.progress), core: Arc::downgrade(stream) }
    }
}
