//! Streams that free blocks of policy `torch` may still be in use on: their own.

use std::sync::Arc;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::known_stream::KnownStream;

/// The known streams that are checked for each new one.
const LOOKS: usize = 2;

/// The streams on which blocks were freed, without ended streams whose tasks are done.
#[derive(Debug, Default)]
pub(super) struct Homes(StreamMap<KnownStream>);

impl Homes {
    /// Notes a stream that has used blocks of its own.
    pub(super) fn note(&mut self, stream: &Arc<StreamCore>) {
        if self.0.get(stream.key()).is_none() {
            self.0.extract_if(LOOKS, |_, home| home.progress.is_over());
            self.0.insert(stream.key(), KnownStream::of(stream));
        }
    }

    /// True when a stream has not passed its task `ticket`. A stream that is only a number uses
    /// nothing after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        ticket > 0 && self.0.get(stream).is_some_and(|home| home.progress.done() < ticket)
    }

    /// The live stream with a key, if known.
    pub(super) fn known(&self, key: u64) -> Option<&KnownStream> {
        self.0.get(key)
    }
}
