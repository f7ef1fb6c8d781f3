//! The processor that a thread runs on, where the system reports it.
#![expect(unsafe_code, reason = "asks the C library for the current processor")]

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;

/// The value before the first record, and where the system reports no processor.
const UNKNOWN: u64 = u64::MAX;

/// The processor of the last thread that called [`LastProcessor::record_current`].
#[derive(Debug)]
pub(super) struct LastProcessor(AtomicU64);

impl LastProcessor {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }

    /// Records the processor that the calling thread runs on.
    pub(super) fn record_current(&self) {
        let own = current();
        // Relaxed, here and below: a hint orders nothing. The store happens only on a change,
        // because it evicts the line from the caches of the workers that read it.
        if self.0.load(Ordering::Relaxed) != own {
            self.0.store(own, Ordering::Relaxed);
        }
    }

    /// True when this thread runs on the recorded processor and so keeps the noting thread off it.
    pub(super) fn is_current(&self) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != UNKNOWN && last == current()
    }
}

fn current() -> u64 {
    // SAFETY: the call has no pre-condition, and only reads the calling thread's state.
    let number = unsafe { libc::sched_getcpu() };
    u64::try_from(number).unwrap_or(UNKNOWN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_unset_processor_is_not_current() {
        assert!(!LastProcessor::new().is_current());
    }

    #[test]
    fn a_noted_processor_is_current() {
        let last = LastProcessor::new();
        // An attempt fails if the system moves the thread between its two calls; most succeed.
        let is_raised = (0..1_000).any(|_| {
            last.record_current();
            last.is_current()
        });
        assert!(is_raised);
    }
}
