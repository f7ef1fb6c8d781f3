//! Frees: into the thread's cache, to the heap, or behind the last use by other streams.
//!
//! A block that only its own stream has used goes into the thread's cache, without a lock. Other
//! blocks go to their heap under the lock, or wait there for points of other streams (`pending`).

use crate::base::fork;
use crate::base::sync::MutexGuard;
use crate::engine::log::context::AllocationContext;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::allocated::{Allocated, ForeignBlock, HandleState};
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::live_table::LiveEntry;
use crate::memory::allocator::pending::UsePoint;
use crate::memory::allocator::plan::Sizes;
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::PoolId;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::thread_cache::LastUsed;
use crate::memory::allocator::thread_counters::BlockSize;

impl CachingAllocator {
    /// Frees a block that no task uses any more, not even on its own stream. A block of another
    /// allocator is returned unchanged.
    #[inline(always)]
    pub fn free(&self, block: Allocated) -> Result<(), ForeignBlock> {
        if self.caches.keep(LastUsed::get(), &block, 0) {
            return Ok(());
        }
        self.free_shared(block, None, &[])
    }

    /// Frees a block of this allocator behind its uses: on its own stream up to a task, and on
    /// other streams.
    #[inline]
    pub(crate) fn free_behind(
        &self,
        block: Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        let last_used = LastUsed::get();
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let ticket = home.map_or(0, |home| home.ticket);
        if !is_own || !others.is_empty() || !self.caches.keep(last_used, &block, ticket) {
            self.free_shared(block, home, others).expect("it is kept with its allocator");
        }
    }

    #[cold]
    #[inline(never)]
    fn free_shared(
        &self,
        block: Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> Result<(), ForeignBlock> {
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let ticket = home.map_or(0, |home| home.ticket);
        if is_own && others.is_empty() && self.caches.leave(LastUsed::get(), &block, ticket) {
            return Ok(());
        }
        if fork::is_child() {
            return Ok(()); // the parent has it
        }
        let is_freed = match block.held() {
            HandleState::Nothing => true,
            HandleState::Native => self.free_native(&block, home, others),
            HandleState::Block(id) => {
                let mut state = self.state.lock();
                let is_freed = state.free_block(id, block.handout(), home, others);
                self.end_free(state, is_freed)
            }
        };
        LastUsed::forget_under_tag();
        if is_freed { Ok(()) } else { Err(ForeignBlock { block, device: self.device() }) }
    }

    /// Ends a free: memory that is not cached goes back. Returns whether it was a free.
    #[inline(always)]
    fn end_free(&self, state: MutexGuard<'_, AllocatorState>, is_freed: bool) -> bool {
        if is_freed && (state.ledger.is_closed || state.ledger.is_host()) {
            self.give_back_uncached(state);
        }
        is_freed // device memory is cached without a bound
    }

    #[inline(never)]
    fn give_back_uncached(&self, mut state: MutexGuard<'_, AllocatorState>) {
        let AllocatorState { torch, ledger, .. } = &mut *state;
        let victims = torch.release_beyond_cache(ledger);
        let (is_closed, most_bytes) = (ledger.is_closed, ledger.most_segment_bytes());
        drop(state);
        self.give_back(victims);
        if is_closed {
            self.shrink_native(|_, _| true);
        } else if let Some(most_bytes) = most_bytes {
            self.shrink_segments_above(most_bytes);
        }
    }

    /// Frees a piece: into this thread's cache, if only its own stream used it. False when the
    /// piece is another allocator's, or not in use.
    fn free_native(&self, block: &Allocated, home: Option<&UsePoint>, others: &[UsePoint]) -> bool {
        let (caches, bytes) = (&self.caches, block.bytes());
        let Some(mark) = block.handle().mark() else { return false };
        let Some(piece) = caches.live.piece(mark) else { return false };
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let may_keep = is_own && others.is_empty() && !block.is_unkept();
        if block.is_noted() || self.is_recorded() {
            return if may_keep {
                self.free_noted(piece, mark, block, home)
            } else {
                self.free_noted_behind(piece, mark, block, home, others)
            };
        }
        let Some(requested_bytes) = mark.end(bytes) else { return false };
        let counted = BlockSize { class: Sizes::class(bytes), bytes, requested_bytes };
        let ticket = home.map_or(0, |home| home.ticket);
        caches.end_use(block, ticket, counted, may_keep)
            || self.free_to_heap(piece, counted, home, others)
    }

    #[inline(always)]
    fn free_to_heap(
        &self,
        piece: BlockRef,
        counted: BlockSize,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let mut state = self.state.lock();
        let is_freed = state.free_piece(piece, counted, home, others);
        self.end_free(state, is_freed)
    }

    /// As [`Self::free_native`], of a piece that this thread may keep. In one stay in its cache, or
    /// one hold of the lock, the piece is no longer in use and its free is recorded: before another
    /// thread can get the memory.
    #[cold]
    fn free_noted(
        &self,
        piece: BlockRef,
        mark: LiveEntry,
        block: &Allocated,
        home: Option<&UsePoint>,
    ) -> bool {
        let (bytes, stream) = (block.bytes(), block.stream());
        let inside = self.caches.enter_prepared();
        let recorded = self.recorded().filter(|_| inside.is_some() && !block.is_noted());
        let requested_bytes = if let Some(recorded) = recorded {
            let Some(requested_bytes) = mark.end(bytes) else { return false };
            let place = Place { address: block.address(), bytes, stream, pool: PoolId::DEFAULT };
            let context = AllocationContext::current().of_stack();
            recorded.tell(MemoryAction::Freed, &place, requested_bytes, context);
            requested_bytes
        } else {
            let AllocatorState { native, ledger, .. } = &mut *self.state.lock();
            let Some(requested_bytes) = mark.end(bytes) else { return false };
            let place = Place { stream, ..native.place_of(piece) };
            ledger.recorder.note_freed_at_once(&place, requested_bytes);
            requested_bytes
        };
        let counted = BlockSize { class: Sizes::class(bytes), bytes, requested_bytes };
        let ticket = home.map_or(0, |home| home.ticket);
        self.caches.end_use_inside(inside, &block.to_keep(), ticket, counted, true)
            || self.free_to_heap(piece, counted, home, &[])
    }

    /// As [`Self::free_noted`], of a piece that goes to its heap, or waits for streams.
    #[cold]
    fn free_noted_behind(
        &self,
        piece: BlockRef,
        mark: LiveEntry,
        block: &Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let bytes = block.bytes();
        let Some(requested_bytes) = mark.requested(bytes) else { return false };
        let counted = BlockSize { class: Sizes::class(bytes), bytes, requested_bytes };
        self.caches.end_use(block, 0, counted, false); // counts the end
        let mut state = self.state.lock();
        mark.end(bytes);
        let place = Place { stream: block.stream(), ..state.native.place_of(piece) };
        state.ledger.recorder.note_freed(&place, requested_bytes);
        let is_freed = state.free_piece(piece, counted, home, others);
        if !state.native.awaiting.contains_key(&piece) {
            state.ledger.recorder.note_completed(&place, requested_bytes);
        }
        self.end_free(state, is_freed)
    }
}
