//! The processor that a thread runs on, where the system tells.
#![expect(unsafe_code, reason = "which processor a thread has is the C library's to say")]

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;

/// No processor has this number.
const UNKNOWN: u64 = u64::MAX;

/// Remembers the processor of the thread that called [`LastProcessor::note`] last.
#[derive(Debug)]
pub(super) struct LastProcessor(AtomicU64);

impl LastProcessor {
    /// No thread has called `note` yet.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }

    /// Notes this thread's processor.
    pub(super) fn note(&self) {
        let own = current();
        // Relaxed, here and below: a hint orders nothing. Written only when it changes, because
        // every worker reads it.
        if self.0.load(Ordering::Relaxed) != own {
            self.0.store(own, Ordering::Relaxed);
        }
    }

    /// True when this thread now has the noted thread's processor: only one of the two runs.
    pub(super) fn is_current(&self) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != UNKNOWN && last == current()
    }
}

/// The number of the processor that this thread has at the moment.
fn current() -> u64 {
    // SAFETY: the function has no pre-condition; it touches the calling thread alone.
    let number = unsafe { libc::sched_getcpu() };
    u64::try_from(number).unwrap_or(UNKNOWN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobodys_processor_is_not_ours() {
        assert!(!LastProcessor::new().is_current());
    }

    #[test]
    fn the_processor_of_this_thread_is_ours_until_it_moves() {
        let last = LastProcessor::new();
        // A thread that moved in between sees another one: then it stays for a while.
        let is_seen = (0..1_000).any(|_| {
            last.note();
            last.is_current()
        });
        assert!(is_seen);
    }
}
