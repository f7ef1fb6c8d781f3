//! Streams that free blocks of policy `torch` may still be in use on: their own.

use std::sync::Arc;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::known_stream::KnownStream;

/// How many known streams are looked at for each one that becomes known.
const LOOKS: usize = 2;

/// The streams that blocks were freed on, but those that are gone with all they did.
#[derive(Debug, Default)]
pub(super) struct Homes(StreamMap<KnownStream>);

impl Homes {
    /// A stream has used blocks of its own.
    pub(super) fn note(&mut self, stream: &Arc<StreamCore>) {
        if self.0.get(stream.key()).is_none() {
            self.0.extract_if(LOOKS, |_, home| home.progress.is_over());
            self.0.insert(stream.key(), KnownStream::of(stream));
        }
    }

    /// True when a stream has not passed its task `ticket`. Streams that are only numbers never
    /// use anything after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        ticket > 0 && self.0.get(stream).is_some_and(|home| home.progress.done() < ticket)
    }

    /// The stream with a key, if it is known and there.
    pub(super) fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        self.0.get(key)?.core.upgrade()
    }
}
