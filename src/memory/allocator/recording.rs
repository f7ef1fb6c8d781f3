//! What an allocator's requests and frees tell its recorder, and what the recorder is asked.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::fork;
use crate::base::sync::Ordering;
use crate::engine::log::context::{self, AllocationContext, NameId};
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::pending::ALL;
use crate::memory::allocator::recorder::{KnownBlock, Place, Recorded, Recorder};
use crate::memory::allocator::request::Request;
use crate::memory::allocator::snapshot::SegmentInfo;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::Stat;
use crate::memory::allocator::thread_cache::LastUsed;

/// What an allocator has at one moment.
#[derive(Debug, Default)]
pub struct Moment {
    /// The segments, by their addresses.
    pub segments: Vec<SegmentInfo>,
    /// The blocks of which more is known than their size, by address.
    pub known: HashMap<u64, KnownBlock>,
}

/// Sets the tag of this thread's requests; returns the one before. Blocks of requests with a tag
/// are counted by it until they are freed.
#[expect(clippy::must_use_candidate, reason = "callers may ignore what was there before")]
pub fn exchange_tag(tag: NameId) -> NameId {
    // The fast path knows no tags: the thread finds its cache again on the slow one.
    LastUsed::forget();
    context::exchange_tag(tag)
}

impl CachingAllocator {
    /// Tells the log what this allocator does from here on, or no longer.
    pub(crate) fn record(&self, recorded: Option<Recorded>) {
        if fork::is_child() {
            return;
        }
        if let Some(recorded) = recorded {
            self.recorded.get_or_init(|| recorded);
        }
        let ledger = &mut self.state.lock().ledger;
        ledger.recorder.switch(recorded);
        self.caches.switch(ledger);
        // Relaxed: a request that reads it late is not recorded.
        self.is_recorded.store(recorded.is_some(), Ordering::Relaxed);
    }

    /// The bytes that are reserved from the device, without the counts of threads: reading those
    /// moves pieces to the heap.
    #[doc(hidden)]
    #[must_use]
    pub fn reserved_bytes_so_far(&self) -> u64 {
        let AllocatorState { ledger, native, .. } = &*self.state.lock();
        let mut reserved_bytes = ledger.statistics.reserved_bytes;
        reserved_bytes.lend(&native.lent);
        reserved_bytes.all.current
    }

    /// True while a log is told what the allocator does.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Relaxed) // see `record`
    }

    /// What records are about, while the log is told.
    #[inline]
    pub(super) fn recorded(&self) -> Option<Recorded> {
        self.recorded.get().copied().filter(|_| self.is_recorded())
    }

    /// True when a request that begins now has to be noted.
    #[inline]
    pub(super) fn begin_noting(&self) -> bool {
        let is_noted = self.is_recorded() || AllocationContext::has_tag();
        if is_noted {
            Recorder::begin_request();
        }
        is_noted
    }

    /// Notes the block that a request got from this thread's cache. The thread is inside the cache,
    /// so that a snapshot has both the block and its record, or neither.
    #[inline]
    pub(super) fn note_cached(&self, request: &Request, block: &mut Allocated) {
        if self.is_recorded() || AllocationContext::has_tag() {
            self.note_cached_at(&Place::of_block(block, request), request.bytes, block);
        }
    }

    #[cold]
    fn note_cached_at(&self, place: &Place, requested_bytes: usize, block: &mut Allocated) {
        let context = AllocationContext::current();
        if let Some(recorded) = self.recorded().filter(|_| context == AllocationContext::NONE) {
            return recorded.tell(Recorder::served(), place, requested_bytes, context);
        }
        if self.state.lock().ledger.recorder.note_served(place, requested_bytes) {
            block.set_noted();
        }
    }

    /// The segments and known blocks of one moment. At that moment no thread requests or frees, all
    /// events so far are recorded, and `then` is called. A `marker` is recorded as a snapshot.
    #[doc(hidden)]
    pub fn moment(&self, marker: Option<u64>, then: impl FnOnce()) -> Moment {
        if fork::is_child() {
            return Moment::default();
        }
        self.caches.empty();
        self.poll_waited_for(ALL);
        let mut then = Some(then);
        loop {
            let moment = self.caches.while_closed(|| {
                let mut state = self.state.lock();
                if state.native.is_mapping {
                    return None; // pages are on their way, of which nothing is recorded yet
                }
                state.complete_some_if_free(ALL);
                if let Some(marker) = marker {
                    state.ledger.recorder.note_snapshot(marker);
                }
                if let Some(then) = then.take() {
                    then();
                }
                let segments = self.describe_locked(&state);
                Some(Moment { segments, known: state.ledger.recorder.known().collect() })
            });
            match moment {
                Some(mut moment) => {
                    moment.segments.iter_mut().for_each(SegmentInfo::join_free);
                    return moment;
                }
                None => drop(self.lock_when(|state| !state.native.is_mapping)),
            }
        }
    }

    /// The blocks of which more is known than their size, by address.
    #[doc(hidden)]
    pub fn known_blocks(&self) -> Vec<(u64, KnownBlock)> {
        if fork::is_child() {
            return Vec::new();
        }
        let mut known: Vec<_> = self.state.lock().ledger.recorder.known().collect();
        known.sort_by_key(|(address, _)| *address);
        known
    }

    /// The bytes of blocks in use by the tag of their requests, sorted by tag.
    #[must_use]
    pub fn tag_statistics(&self) -> Vec<(Arc<str>, Stat)> {
        if fork::is_child() {
            return Vec::new();
        }
        let tags: Vec<_> = self.state.lock().ledger.recorder.tags().collect();
        let mut named: Vec<_> = tags.into_iter().map(|(tag, stat)| (tag.text(), stat)).collect();
        named.sort_by(|one, other| one.0.cmp(&other.0));
        named
    }
}
