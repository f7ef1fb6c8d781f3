//! The state under an allocator's lock: the ledger, both engines, and the pending frees.

use std::collections::BTreeMap;

use crate::base::config::AllocatorConfig;
use crate::base::device::Device;
use crate::base::size::to_usize;
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::core::Native;
use crate::memory::allocator::ledger::{Ledger, Purpose};
use crate::memory::allocator::pending::{
    ALL, BlockingStream, Freed, LOOKS, Pending, UsePoint, WaitTarget,
};
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::thread_counters::BlockSize;
use crate::memory::allocator::torch::Torch;
use crate::memory::allocator::torch_blocks::{Block, BlockId, Owner, State};

/// The parts are described in the head of this file.
#[derive(Debug)]
pub(super) struct AllocatorState {
    pub(super) ledger: Ledger,
    pub(super) pending: Pending,
    pub(super) torch: Torch,
    pub(super) native: Native,
}

impl AllocatorState {
    /// `page_bytes` is the size of pages that are mapped one by one.
    pub(super) fn new(
        config: AllocatorConfig,
        total_bytes: usize,
        purpose: Purpose,
        page_bytes: Option<usize>,
    ) -> Self {
        Self {
            ledger: Ledger::new(config, total_bytes, purpose),
            pending: Pending::default(),
            torch: Torch::default(),
            native: Native::new(page_bytes, purpose == Purpose::Heap),
        }
    }

    /// True when threads may cache again after their caches were emptied.
    pub(super) fn may_open_caches(&self) -> bool {
        self.ledger.turn.is_none()
            && self.native.frees >= self.native.opens_from
            && self.ledger.has_thread_caches()
    }

    /// The number of departures; `None` while memory is on its way from or to the device.
    pub(super) fn departures_if_settled(&self) -> Option<u64> {
        let Ledger { limits, departures, .. } = &self.ledger;
        (limits.is_settled() && !self.native.is_mapping).then_some(*departures)
    }

    /// The most bytes that a request could get if no stream used free memory: free blocks may
    /// merge, or go back and come again.
    pub(super) fn reachable_bytes(&self, device_free_bytes: usize) -> usize {
        let statistics = &self.ledger.statistics;
        let native_bytes = self.native.in_use().allocated_bytes; // with what threads cache
        let used_bytes = statistics.allocated_bytes.all.current + native_bytes;
        let free_bytes = to_usize(statistics.reserved_bytes.all.current - used_bytes);
        self.ledger.left_bytes(device_free_bytes).saturating_add(free_bytes)
    }

    /// Frees a block. The free is ordered behind the uses on its own stream, and waits for the
    /// points on other streams. False when `handout` is not the block's: each handing out has its
    /// own number.
    #[inline(never)]
    pub(super) fn free_block(
        &mut self,
        id: BlockId,
        handout: u64,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let is_meant = |known: &Block| (known.state, known.handout) == (State::Allocated, handout);
        if !self.torch.blocks.get(id).is_some_and(is_meant) {
            return false;
        }
        self.complete_some_for(others.len());
        self.torch.end_allocation(&mut self.ledger, id, home);
        self.note_requested(Freed::Block(id));
        if !self.pending.wait_for(others, Freed::Block(id)) {
            self.note_completed(Freed::Block(id));
            self.torch.complete_free(&mut self.ledger, id);
        }
        true
    }

    /// As `free_block`, for a piece of engine `native`.
    #[inline(always)]
    pub(super) fn free_piece(
        &mut self,
        piece: BlockRef,
        counted: BlockSize,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        self.complete_some_for(others.len());
        self.native.free(&mut self.pending, piece, counted, home, others);
        true
    }

    /// Records that the program frees a block or piece.
    pub(super) fn note_requested(&mut self, freed: Freed) {
        if !self.ledger.recorder.is_idle() {
            let (place, requested_bytes) = self.place_of(freed);
            self.ledger.recorder.note_freed(&place, requested_bytes);
        }
    }

    /// Records that no stream uses a freed block or piece any more.
    fn note_completed(&mut self, freed: Freed) {
        if !self.ledger.recorder.is_idle() {
            let (place, requested_bytes) = self.place_of(freed);
            self.ledger.recorder.note_completed(&place, requested_bytes);
        }
    }

    /// Where a block or piece is, and its requested size, before its free is complete.
    fn place_of(&self, freed: Freed) -> (Place, usize) {
        match freed {
            Freed::Block(id) => {
                let Block { address, bytes, requested_bytes, .. } = self.torch.blocks[id];
                let Owner { stream, pool, .. } = self.torch.owner_of(id);
                (Place { address, bytes, stream, pool }, requested_bytes)
            }
            Freed::Native(piece) => {
                let requested_bytes = self.native.awaiting[&piece].requested_bytes();
                (self.native.place_of(piece), requested_bytes)
            }
        }
    }

    /// As [`Self::complete_some`], except under `deterministic`, where offsets must not depend on
    /// the progress of streams; see [`Self::complete_behind_synchronize`].
    pub(super) fn complete_some_if_free(&mut self, most: usize) {
        if !self.ledger.config.deterministic {
            self.complete_some(most);
        }
    }

    /// Called before a free that waits for several points: checks more streams, so that passed ones
    /// do not accumulate.
    fn complete_some_for(&mut self, points: usize) {
        if points > 1 {
            self.complete_some_if_free(LOOKS * (points - 1));
        }
    }

    /// Completes the frees of the next `most` streams whose points have all passed.
    pub(super) fn complete_some(&mut self, most: usize) {
        // Every search calls this.
        if !self.pending.is_empty() {
            self.complete_those(most, None);
        }
    }

    /// Under `deterministic` completes the frees that wait only for streams of a device that the
    /// host has synchronised with. Else does nothing.
    pub(super) fn complete_behind_synchronize(&mut self, device: Device) {
        if self.ledger.config.deterministic {
            self.complete_those(ALL, Some(device));
        }
    }

    fn complete_those(&mut self, most: usize, of: Option<Device>) {
        for freed in self.pending.take_passed(most, of) {
            self.note_completed(freed);
            match freed {
                Freed::Block(id) => self.torch.complete_free(&mut self.ledger, id),
                Freed::Native(piece) => self.native.complete_free(piece),
            }
        }
    }

    /// The streams that freed memory waits for. The caller drops the list without the lock.
    pub(super) fn holders(&self, wanted: WaitTarget) -> Vec<BlockingStream> {
        let mut held: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut note = |key: u64, ticket: u64, bytes: usize| {
            let (last, sum) = held.entry(key).or_default();
            *last = ticket.max(*last);
            *sum += bytes;
        };
        for (key, ticket, freed) in self.pending.waiting() {
            let bytes = match freed {
                Freed::Block(id) => self.torch.blocks[id].bytes,
                Freed::Native(piece) => self.native.awaiting[&piece].bytes(),
            };
            note(key, ticket, bytes);
        }
        self.native.note_busy(wanted, &mut note);
        self.torch.note_busy(&mut note);
        let holder = |(key, (ticket, bytes))| {
            let known = self.pending.known(key).or_else(|| self.torch.homes.known(key));
            let known = known.or_else(|| self.native.known_stream(key))?;
            BlockingStream::of(known, ticket, bytes)
        };
        held.into_iter().filter_map(holder).collect()
    }

    /// Asserts that the blocks and pieces that await their free are exactly those that [`Pending`]
    /// lists.
    pub(super) fn check_pending(&self) {
        self.pending.check();
        let blocks = self.torch.blocks.iter();
        let awaiting = blocks.filter(|(_, block)| block.state == State::AwaitingFree);
        let pieces = self.native.awaiting.keys().map(|piece| Freed::Native(*piece));
        let awaiting = awaiting.map(|(id, _)| Freed::Block(id)).chain(pieces);
        assert!(awaiting.eq(self.pending.awaiting()), "what awaits its free");
    }
}
