//! Turns: the last steps of a request that neither free memory nor the device served.
//!
//! Between the steps of such a request other threads could take what it waited for, and memory on
//! its way to the device is not available. So one thread at a time has the *turn*: until its end no
//! other thread takes memory from the device or moves pages, and caches stay closed. Frees go on.
//! In its turn a thread gives back free memory, tries, and learns under one lock why it failed:
//!
//! 1. memory in use leaves too little, or no stream uses free memory: the thread ends the turn and
//!    asks the reclaimers. If they have nothing, which may take long, it takes a last turn for what
//!    came meanwhile; if none is asked, the request fails;
//! 2. another thread has freed memory meanwhile: the thread tries again;
//! 3. streams use free memory: the thread ends the turn, waits for the stream that uses the most,
//!    and takes another turn.
//!
//! No thread waits for a stream in its turn, so a turn lasts as long as the device's calls.
//!
//! # Shared memory
//!
//! Memory that a device shares with the host has an allocator of its own, the *sibling*. Both take
//! from the device's capacity, so each gives its free memory back when the other is short.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::thread;

use crate::base::config::AllocatorConfig;
use crate::base::error::{Error, Result, RuntimeError};
use crate::base::size::to_usize;
use crate::base::sync::{MutexGuard, yield_now};
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::allocate::{Pass, Planned, Step};
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::{Purpose, lock_when};
use crate::memory::allocator::pending::{ALL, BlockingStream, WaitTarget};
use crate::memory::allocator::plan::Search;
use crate::memory::allocator::source::Source;
use crate::memory::allocator::state::AllocatorState;
/// A request fails after this many turns in which other threads took what it waited for, or before
/// which reclaimers claimed a free that there was not.
const MOST_TURNS: usize = 1000;
/// The most looks of one turn while other threads free memory.
const MOST_LOOKS: usize = 100;
/// Frees after a turn until threads cache again: while memory is short, other threads would have to
/// empty the caches.
pub(super) const CLOSED_FREES: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Another,
    /// Also takes memory that the settings had withheld.
    Last,
}

enum Outcome {
    Served(Allocated),
    /// The most bytes that could be had. The request fails with this error unless more comes.
    Short {
        reachable_bytes: usize,
        refusal: Error,
    },
    /// The streams that use free memory, largest use first.
    InUse {
        holders: Vec<BlockingStream>,
        reachable_bytes: usize,
    },
}

/// This thread's turn, given up on drop.
struct ReclaimGuard<'a>(&'a CachingAllocator);

impl Drop for ReclaimGuard<'_> {
    fn drop(&mut self) {
        let AllocatorState { ledger, native, .. } = &mut *self.0.state.lock();
        ledger.turn = None;
        native.opens_from = native.frees + CLOSED_FREES;
        ledger.sleepers.wake();
    }
}

impl CachingAllocator {
    /// Serves a request, waiting only for streams that this thread may wait for and whose memory
    /// can suffice. Fails with `OutOfMemory`, which observers are told, with the numbers of the
    /// last turn.
    pub(super) fn take_in_turn(
        &self,
        planned: &Planned<'_>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let (mut refused, mut yielded_behind) = (BTreeSet::new(), None);
        let (mut turns, mut freed_bytes, mut is_given_up) = (0, 0, false);
        while turns < MOST_TURNS {
            turns += 1;
            // What was waited for may serve as it is; then nothing goes back.
            let again = if turns > 1 { self.attempt(planned, Attempt::Another) } else { Ok(None) };
            if let Some(taken) = again.map_err(|error| self.report_oom(error))? {
                return Ok(taken);
            }
            let outcome = self.take_turn().run(planned, &refused);
            let outcome = outcome.map_err(|error| self.report_oom(error))?;
            let (holders, reachable_bytes, refusal) = match outcome {
                Outcome::Served(taken) => return Ok(taken),
                Outcome::Short { reachable_bytes, refusal } => {
                    (Vec::new(), reachable_bytes, Some(refusal))
                }
                Outcome::InUse { holders, reachable_bytes } => (holders, reachable_bytes, None),
            };
            // What the sibling frees behind its last yield may be what is missing.
            let freed_beside = Some(self.freed_bytes_beside());
            if std::mem::replace(&mut yielded_behind, freed_beside) != freed_beside
                && self.have_sibling_yield(planned.least_bytes(), reachable_bytes, interrupt)?
            {
                continue;
            }
            if let Some(refusal) = refusal {
                let answer = if is_given_up { None } else { self.ask_reclaimers(&refusal) };
                // They may have taken long: what others freed meanwhile serves.
                is_given_up = !answer.ok_or_else(|| self.count_and_report_oom(refusal))?;
                // As often as they free something, however little.
                let now_bytes = self.freed_bytes().wrapping_add(self.freed_bytes_beside());
                turns = if freed_bytes == now_bytes { turns } else { 1 };
                (freed_bytes, yielded_behind) = (now_bytes, None);
                continue;
            }
            let Some(holder) = holders.first() else { break };
            match holder.wait(interrupt) {
                Ok(()) if holder.has_passed() => {}
                Err(Error::Runtime(RuntimeError::Interrupted)) => {
                    return Err(Error::Runtime(RuntimeError::Interrupted));
                }
                // The stream is behind this thread's own task, or its device is lost: its memory
                // stays.
                _ => drop(refused.insert(holder.key())),
            }
        }
        Err(self.count_and_report_oom(self.refusal(&planned.request())))
    }

    fn attempt(&self, planned: &Planned<'_>, attempt: Attempt) -> Result<Option<Allocated>> {
        match (attempt, planned) {
            (Attempt::Another, planned) => {
                self.take_steps(planned, Step::Search(Search::Bounded), Pass::InTurn)
            }
            (Attempt::Last, Planned::Native(plan)) => self.take_anywhere(plan, Search::Last),
            (Attempt::Last, Planned::Torch(_)) => Ok(None),
        }
    }

    /// Locks the state once `is_so` holds; sleeps until a change wakes this thread.
    pub(super) fn lock_when(
        &self,
        is_so: impl Fn(&AllocatorState) -> bool,
    ) -> MutexGuard<'_, AllocatorState> {
        lock_when(&self.state, is_so, |state| &mut state.ledger.sleepers)
    }

    /// Waits until no other thread moves pages or has the turn.
    pub(super) fn wait_for_pages(&self) {
        drop(self.lock_when(|state| state.native.may_move_pages(&state.ledger)));
    }

    fn take_turn(&self) -> ReclaimGuard<'_> {
        let mut state = self.lock_when(|state| state.ledger.turn.is_none());
        state.ledger.turn = Some(thread::current().id());
        ReclaimGuard(self)
    }

    /// The number of departures; `None` while memory is on its way from or to the device.
    fn departures(&self) -> Option<u64> {
        let own = self.state.lock().departures_if_settled()?;
        let sibling = self.sibling.get().and_then(Weak::upgrade);
        let beside = sibling.map(|sibling| sibling.state.lock().departures_if_settled());
        Some(own + beside.unwrap_or(Some(0))?)
    }

    /// The bytes of all frees, also of memory that streams still use.
    fn freed_bytes(&self) -> u64 {
        self.statistics().allocated_bytes.all.freed
    }

    fn freed_bytes_beside(&self) -> u64 {
        let sibling = self.sibling.get().and_then(Weak::upgrade);
        sibling.map_or(0, |sibling| sibling.freed_bytes())
    }
}

impl AllocatorState {
    /// False when the request could not be served even if no stream used free memory, with this
    /// many bytes left by the device and the limit. Under policy torch only the device knows.
    fn could_serve_if_idle(&self, planned: &Planned<'_>, left_bytes: usize) -> bool {
        let Planned::Native(plan) = planned else { return true };
        !self.torch.is_empty() || self.native.could_serve_if_idle(&self.ledger, plan, left_bytes)
    }

    /// The number of frees that both engines have seen.
    fn count_frees(&self) -> u64 {
        self.torch.frees + self.native.frees
    }
}

impl ReclaimGuard<'_> {
    fn run(&self, planned: &Planned<'_>, refused: &BTreeSet<u64>) -> Result<Outcome> {
        let allocator = self.0;
        let (mut looks, mut reachable_bytes) = (0, 0);
        while looks < MOST_LOOKS {
            // Memory freed from here on may come too late to go back with the rest.
            let look =
                |state: &AllocatorState| (state.holders(WaitTarget::Served), state.count_frees());
            let (before, frees) = allocator.trim_and_see(look);
            let was_in_use = before.iter().any(|holder| !refused.contains(&holder.key()));
            // This ends: no other thread begins here.
            drop(allocator.lock_when(|state| state.departures_if_settled().is_some()));
            let departures = allocator.departures();
            if departures.is_none() && looks + 1 < MOST_LOOKS {
                looks += 1; // the sibling's threads may go on and on
                yield_now();
                continue;
            }
            if let Some(taken) = allocator.attempt(planned, Attempt::Another)? {
                return Ok(Outcome::Served(taken));
            }
            let free_bytes = allocator.device_free_bytes();
            if allocator.departures() != departures {
                continue; // what came free then, others had
            }
            looks += 1;
            let (is_still, could_serve, mut holders) = {
                let mut state = allocator.state.lock();
                state.complete_some(ALL);
                reachable_bytes = state.reachable_bytes(free_bytes);
                let could_serve = reachable_bytes >= planned.least_bytes()
                    && state.could_serve_if_idle(planned, state.ledger.left_bytes(free_bytes));
                (state.count_frees() == frees, could_serve, state.holders(WaitTarget::Served))
            };
            if !could_serve {
                break;
            }
            holders.retain(|holder| !refused.contains(&holder.key()));
            // Memory freed or no longer used since the attempt may be what the request wants.
            let may_have_come = !is_still || was_in_use && holders.is_empty();
            if may_have_come && looks < MOST_LOOKS {
                continue;
            }
            if holders.is_empty() {
                break;
            }
            holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
            return Ok(Outcome::InUse { holders, reachable_bytes });
        }
        if let Some(taken) = allocator.attempt(planned, Attempt::Last)? {
            return Ok(Outcome::Served(taken));
        }
        let refusal = allocator.refusal(&planned.request()); // still in the turn
        Ok(Outcome::Short { reachable_bytes, refusal })
    }
}

impl CachingAllocator {
    /// Creates the allocator of memory that the device of `beside` shares with the host: with the
    /// policies for a device, without moving pages, with its own statistics and limit.
    /// [`CachingAllocator::begin_sharing`] makes it known to `beside`.
    pub fn shared(beside: &Arc<Self>, config: AllocatorConfig) -> Result<Self> {
        let Source { backend, device, .. } = &beside.source;
        let (backend, device) = (Arc::clone(backend), *device);
        let total_bytes = backend.memory_info(device.index())?.total_bytes;
        let source = Source { backend, device, host: None, is_shared: true };
        let config = source.in_force(config);
        let state = AllocatorState::new(config, total_bytes, Purpose::Device, None);
        let shared = Self::of_source(source, state);
        shared.begin_sharing(beside);
        Ok(shared)
    }

    /// Makes `shared`, which was created beside this allocator, its sibling: it yields free memory
    /// before this allocator reports a shortage. Only the first call has an effect.
    pub fn begin_sharing(&self, shared: &Arc<Self>) {
        self.sibling.get_or_init(|| Arc::downgrade(shared));
    }

    /// Makes the sibling give back its free memory; false without a sibling. Also waits for the
    /// streams that use some of it, if it may suffice together with `reachable_bytes` here.
    pub(super) fn have_sibling_yield(
        &self,
        bytes: usize,
        reachable_bytes: usize,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<bool> {
        let Some(sibling) = self.sibling.get().and_then(Weak::upgrade) else { return Ok(false) };
        let count_kept = || {
            let counted = sibling.statistics();
            // Other threads may have allocated between the two reads.
            let (reserved, allocated) = (counted.reserved_bytes.all, counted.allocated_bytes.all);
            to_usize(reserved.current.saturating_sub(allocated.current))
        };
        let kept_bytes = count_kept();
        sibling.trim();
        if count_kept() > 0 && reachable_bytes.saturating_add(kept_bytes) >= bytes {
            sibling.empty_cache_unless(interrupt)?;
        }
        Ok(true)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "reclaim_tests.rs"]
mod tests;
