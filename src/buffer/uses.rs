//! Which tasks use an allocation: per stream the last one.

use std::sync::Arc;

use crate::stream::core::StreamCore;

/// A stream, and its last task that uses the memory.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) stream: Arc<StreamCore>,
    pub(super) ticket: u64,
}

impl Use {
    /// True when the task is known to be done.
    pub(super) fn is_done(&self) -> bool {
        self.stream.progress.done() >= self.ticket
    }

    /// True when nobody will ask for this use again: it is done, and cannot have failed.
    fn is_over(&self) -> bool {
        self.is_done() && !self.stream.failures.has_failed()
    }

    fn is_on(&self, stream: &Arc<StreamCore>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }

    fn raise_to(&mut self, ticket: u64) {
        self.ticket = self.ticket.max(ticket);
    }
}

/// The uses of one allocation, at most one a stream.
///
/// The usual case is one stream, the home stream or another one: recording is then a comparison and
/// a maximum. A use on a further stream first forgets those that are over.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// On the home stream, which the allocation names; 0 when there was none.
    pub(super) home_ticket: u64,
    first: Option<Use>,
    more: Vec<Use>,
}

impl Uses {
    /// Notes a use on the home stream.
    #[inline]
    pub(super) fn record_home(&mut self, ticket: u64) {
        self.home_ticket = self.home_ticket.max(ticket);
    }

    /// Notes a use on another stream. What is returned was forgotten, and is dropped without a
    /// lock: it may be the last reference to a stream.
    #[inline]
    pub(super) fn record(&mut self, stream: &Arc<StreamCore>, ticket: u64) -> Vec<Use> {
        if let Some(known) = self.others_mut().find(|known| known.is_on(stream)) {
            known.raise_to(ticket);
            return Vec::new();
        }
        self.record_further(Use { stream: Arc::clone(stream), ticket })
    }

    #[cold]
    fn record_further(&mut self, new: Use) -> Vec<Use> {
        let mut forgotten: Vec<Use> = self.more.extract_if(.., |known| known.is_over()).collect();
        forgotten.extend(self.first.take_if(|known| known.is_over()));
        if self.first.is_none() {
            self.first = Some(new);
        } else {
            self.more.push(new);
        }
        forgotten
    }

    fn others_mut(&mut self) -> impl Iterator<Item = &mut Use> {
        self.first.iter_mut().chain(&mut self.more)
    }

    /// The uses on streams that are not the home stream.
    pub(super) fn others(&self) -> impl Iterator<Item = &Use> {
        self.first.iter().chain(&self.more)
    }

    /// The same, as the last thing that is asked.
    pub(super) fn into_others(self) -> impl Iterator<Item = Use> {
        self.first.into_iter().chain(self.more)
    }
}
