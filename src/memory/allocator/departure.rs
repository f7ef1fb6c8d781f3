//! Departures: memory on its way back to the device.
//!
//! An engine chooses and forgets memory under the lock; it goes back without the lock, because the
//! device may hand out its addresses again before its call returns. A part that the device refuses
//! is never used again. The limit counts a part until the call is over.

use std::panic::resume_unwind;
use std::thread;

use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::source::Departing;

impl CachingAllocator {
    /// Gives parts back to the device.
    pub(super) fn give_back(&self, parts: Vec<Departing>) {
        self.try_give_back(parts).unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Returns what a request was served with, unless the device has panicked since: then the block
    /// goes back, because the caller gets the panic.
    pub(super) fn unless_panicked(
        &self,
        served: Option<Allocated>,
        outcome: thread::Result<()>,
    ) -> Option<Allocated> {
        if let Err(panic) = outcome {
            self.free(served.unwrap_or_default()).expect("it is from here");
            resume_unwind(panic)
        }
        served
    }

    /// As `give_back`. Returns the first panic of the device, after all parts went back.
    pub(super) fn try_give_back(&self, parts: Vec<Departing>) -> thread::Result<()> {
        let mut outcome = Ok(());
        for Departing { part, bytes, block } in parts {
            outcome = outcome.and(self.source.give_back(part));
            let vacant =
                block.and_then(|id| self.with_torch(|it, ledger| it.end_unmap(ledger, id)));
            if let Some(addresses) = vacant {
                // The addresses go back after their last page.
                outcome = outcome.and(self.source.give_back(addresses));
            }
            self.state.lock().ledger.note_left(bytes);
        }
        outcome
    }
}
