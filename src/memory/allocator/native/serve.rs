//! The steps of requests and frees under the native policy.

use std::sync::Arc;

use crate::base::error::Result;
#[cfg(not(loom))]
use crate::base::size::to_usize;
use crate::engine::log::context::AllocationContext;
use crate::engine::log::record::MemoryAction;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::allocated::{Allocated, Handle};
use crate::memory::allocator::caching::CachingAllocator;
#[cfg(not(loom))]
use crate::memory::allocator::native::addresses::{Addresses, Owner};
use crate::memory::allocator::native::cell::Counted;
use crate::memory::allocator::native::core::{Awaiting, Extent, Native};
use crate::memory::allocator::native::growth::Step;
use crate::memory::allocator::native::ids::Kind;
use crate::memory::allocator::native::marks::Mark;
use crate::memory::allocator::native::piece::{Part, Piece, Taken};
use crate::memory::allocator::native::plan::{NativePlan, Search, Sizes};
use crate::memory::allocator::native::thread_cache::CacheGuard;
use crate::memory::allocator::pending::{Freed, LOOKS, Pending, UsePoint};
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::torch::Plan;
use crate::memory::allocator::turn::{Attempt, Wants};
impl CachingAllocator {
    /// Serves a request of a byte or more that this thread's cache did not serve on its fast path.
    /// Waits and fails as [`CachingAllocator::allocate_unless`].
    pub(crate) fn allocate_native(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let Some(plan) = self.caches.sizes.plan(request, home) else {
            return Err(self.out_of_memory(request));
        };
        let caches = &self.caches;
        let mut inside = caches.enter();
        if !inside.as_ref().is_some_and(|inside| caches.has_looked(inside)) {
            inside = inside.or_else(|| caches.enter_prepared());
            if let Some(mut block) = caches.take_inside(inside.as_mut(), request, &plan) {
                self.note_cached(request, &mut block);
                return Ok(block);
            }
        }
        let mut step = None;
        let served = self.allocate_piece(inside.as_mut(), &plan, |state, inside| {
            let mut next = state.native_step(&plan, Search::Bounded);
            if matches!(next, Step::ReachCaches) && caches.empty_locked(inside, state) {
                next = state.native_step(&plan, Search::Whole);
            }
            match next {
                Step::Done(taken) => return Some(taken),
                more => step = Some(more),
            }
            None
        });
        if let Some(block) = served {
            return Ok(block);
        }
        drop(inside); // what follows may wait
        match self.take_or_be_helped(&plan, step)? {
            Some(block) => Ok(block),
            None => self.reclaim_native(&plan, interrupt),
        }
    }

    /// Serves a request from this thread's cache or its own heap, without moving or mapping pages
    /// and without waiting. `None` when neither has a piece.
    pub(crate) fn take_native_ready(
        &self,
        request: &Request,
        home: &Arc<StreamCore>,
    ) -> Option<Allocated> {
        let plan = self.caches.sizes.plan(request, Some(home))?;
        let mut inside = self.caches.enter_prepared();
        if let Some(mut block) = self.caches.take_inside(inside.as_mut(), request, &plan) {
            self.note_cached(request, &mut block);
            return Some(block);
        }
        self.allocate_piece(inside.as_mut(), &plan, |state, _| {
            state.complete_some_if_free(LOOKS);
            state.native.take_ready(&plan).map(Taken::as_planned)
        })
    }

    /// Hands out the piece that `find` returns and, in the same hold of the lock, stocks the thread
    /// cache `inside` with small blocks of its class.
    #[inline]
    pub(super) fn allocate_piece(
        &self,
        mut inside: Option<&mut CacheGuard<'_>>,
        plan: &NativePlan,
        find: impl FnOnce(&mut AllocatorState, Option<&mut CacheGuard<'_>>) -> Option<Taken>,
    ) -> Option<Allocated> {
        let caches = &self.caches;
        let mut state = self.state.lock();
        if let Some(inside) = &mut inside {
            inside.end_leaving(|piece| state.native.release_left(piece));
        }
        let taken = find(&mut state, inside.as_deref_mut())?;
        let (mut block, counted) = state.native.begin_piece(taken, plan);
        state.ledger.recorder.note_block(&plan.request(), &mut block);
        caches.set_bound(&mut state.native);
        if let Some(inside) = inside {
            if plan.class.is_some() || inside.is_closed() {
                caches.stock(inside, &mut state, plan);
            }
            inside.bins.count_begin(counted);
            return Some(block);
        }
        drop(state); // lock order: `threads` comes before the state
        caches.threads.lock().shared.begin(counted);
        Some(block)
    }

    /// Hands out a piece that was taken.
    pub(super) fn serve_piece(&self, plan: &NativePlan, taken: Taken) -> Option<Allocated> {
        let mut inside = self.caches.enter_prepared();
        self.allocate_piece(inside.as_mut(), plan, |_, _| Some(taken))
    }

    /// Takes a piece as [`CachingAllocator::take_native`], or else a whole block from a private
    /// pool that helps out.
    fn take_or_be_helped(
        &self,
        plan: &NativePlan,
        step: Option<Step>,
    ) -> Result<Option<Allocated>> {
        if let Some(block) = self.take_native(plan, step)? {
            return Ok(Some(block));
        }
        Ok(self.with_torch(|torch, ledger| {
            torch.take_from_helpers(ledger, &Plan::of(&plan.request(), ledger)?)
        }))
    }

    /// Serves a request in a turn, when neither free memory nor the device serves it.
    #[cold]
    #[inline(never)]
    fn reclaim_native(
        &self,
        plan: &NativePlan,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let request = plan.request();
        if self.state.lock().ledger.rejects(|limits| limits.is_above(plan.bytes)) {
            return Err(self.out_of_memory(&request));
        }
        self.count_retry();
        let attempt = &mut |attempt| match attempt {
            Attempt::Another => self.take_or_be_helped(plan, None),
            Attempt::Last => self.take_anywhere(plan, Search::Last),
        };
        let could_serve = &|state: &AllocatorState, left_bytes| {
            !state.torch.is_empty()
                || state.native.could_serve_if_idle(&state.ledger, plan, left_bytes)
        };
        let bytes = request.bytes;
        self.take_in_turn(&mut Wants { request, bytes, attempt, could_serve }, interrupt)
    }

    /// Frees a piece: into this thread's cache, if only its own stream used it. False when the
    /// piece is another allocator's, or not in use.
    pub(crate) fn free_native(
        &self,
        block: &Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
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
        let counted = Counted { class: Sizes::class(bytes), bytes, requested_bytes };
        let ticket = home.map_or(0, |home| home.ticket);
        caches.end_use(block, ticket, counted, may_keep)
            || self.free_locked(|state| state.free_piece(piece, counted, home, others))
    }

    /// As [`Self::free_native`], of a piece that this thread may keep. In one stay in its cache, or
    /// one hold of the lock, the piece is no longer in use and its free is recorded: before another
    /// thread can get the memory.
    #[cold]
    fn free_noted(
        &self,
        piece: Piece,
        mark: Mark,
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
        let counted = Counted { class: Sizes::class(bytes), bytes, requested_bytes };
        let ticket = home.map_or(0, |home| home.ticket);
        self.caches.end_use_inside(inside, &block.to_keep(), ticket, counted, true)
            || self.free_locked(|state| state.free_piece(piece, counted, home, &[]))
    }

    /// As [`Self::free_noted`], of a piece that goes to its heap, or waits for streams.
    #[cold]
    fn free_noted_behind(
        &self,
        piece: Piece,
        mark: Mark,
        block: &Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let bytes = block.bytes();
        let Some(requested_bytes) = mark.requested(bytes) else { return false };
        let counted = Counted { class: Sizes::class(bytes), bytes, requested_bytes };
        self.caches.end_use(block, 0, counted, false); // counts the end
        self.free_locked(|state| {
            mark.end(bytes);
            let place = Place { stream: block.stream(), ..state.native.place_of(piece) };
            state.ledger.recorder.note_freed(&place, requested_bytes);
            state.free_piece(piece, counted, home, others);
            if !state.native.awaiting.contains_key(&piece) {
                state.ledger.recorder.note_completed(&place, requested_bytes);
            }
            true
        })
    }
}

impl Native {
    /// Marks a piece as handed out.
    #[inline(always)]
    fn begin_piece(&mut self, taken: Taken, plan: &NativePlan) -> (Allocated, Counted) {
        let Taken { piece, is_as_planned } = taken;
        let Given { address, bytes, kind, busy_until, may_keep } = if is_as_planned {
            self.given_as_planned(piece, plan)
        } else {
            self.given(piece, plan)
        };
        let class = Sizes::class(bytes);
        self.out.leave(class, [1, bytes]);
        if class != kind.class() {
            self.lent.of_mut(class).increase(bytes as u64);
        }
        let requested_bytes = plan.requested_bytes;
        let mark = self.live.mark_of(piece);
        mark.begin(bytes, requested_bytes);
        let counted = Counted { class, bytes, requested_bytes };
        let handle = Handle::of_mark(mark, self.live.tag());
        let block = Allocated::of_piece(handle, address, bytes, busy_until, plan.owner.stream);
        (if may_keep { block } else { block.unkept() }, counted)
    }

    /// As [`Self::given`], for a piece of the request's own heap and arena.
    #[inline(always)]
    fn given_as_planned(&self, piece: Piece, plan: &NativePlan) -> Given {
        let (address, busy_until) = match piece.part() {
            Part::Block(id) => {
                let block = &self.blocks[id];
                (self.areas[block.area].address_of(block), block.busy_until())
            }
            Part::Small(slab, slot) => {
                let slab = &self.slabs[slab];
                (slab.address_of(slot), slab.busy_until)
            }
        };
        let busy_until = match busy_until {
            0 => 0,
            count => self.heaps[self.heap_of(piece.part())].ticket_of(count),
        };
        let may_keep = plan.owner.pool == PoolId::DEFAULT && plan.is_of_its_size(&self.sizes);
        let given = Given { address, bytes: plan.bytes, kind: plan.kind, busy_until, may_keep };
        debug_assert_eq!(given, self.given(piece, plan));
        given
    }

    fn given(&self, piece: Piece, plan: &NativePlan) -> Given {
        let Extent { address, bytes, heap, kind, busy_until } = self.extent(piece);
        let (heap, stream) = (&self.heaps[heap], plan.owner.stream);
        let owner = heap.owner;
        let busy_until = if owner.stream == stream {
            heap.ticket_of(busy_until)
        } else {
            // The last use is another stream's task: this stream's tasks so far stand for it.
            plan.home.filter(|_| heap.is_using(busy_until)).map_or(0, |home| home.pushed())
        };
        let is_of_its_size = kind == self.sizes.kind(bytes);
        let may_keep = plan.owner.pool == PoolId::DEFAULT && owner == plan.owner && is_of_its_size;
        Given { address, bytes, kind, busy_until, may_keep }
    }

    /// Frees a piece. Its uses by the heap's own stream are ordered before later tasks there; the
    /// free waits for those by other streams, including the home of the piece.
    #[inline(always)]
    pub(crate) fn free(
        &mut self,
        pending: &mut Pending,
        piece: Piece,
        counted: Counted,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        if home.is_none() && others.is_empty() {
            return self.release(piece.part(), counted.bytes, 0);
        }
        let heap = self.heap_of(piece.part());
        let stream = self.heaps[heap].owner.stream;
        let (own, foreign) = match home {
            Some(point) if point.stream.key() == stream => (Some(point), None),
            foreign => (None, foreign),
        };
        let busy_until = own.map_or(0, |point| self.heaps[heap].count_of(point.ticket));
        if let Some(UsePoint { stream, .. }) = own {
            self.heaps.note_stream(heap, stream);
        }
        if !pending.wait_for(others.iter().chain(foreign), Freed::Piece(piece)) {
            return self.release(piece.part(), counted.bytes, busy_until);
        }
        let Counted { class, bytes, requested_bytes } = counted;
        self.awaiting_sums.leave(class, [1, bytes, requested_bytes]);
        self.awaiting.insert(piece, Awaiting { counted, busy_until });
    }

    /// Frees a piece whose uses are over.
    pub(crate) fn complete_free(&mut self, piece: Piece) {
        let Awaiting { counted, busy_until } =
            self.awaiting.remove(&piece).expect("it awaits its free");
        let Counted { class, bytes, requested_bytes } = counted;
        self.awaiting_sums.come_back(class, [1, bytes, requested_bytes]);
        self.release(piece.part(), bytes, busy_until);
    }
}

/// What a request gets with its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    address: u64,
    bytes: usize,
    /// The arena.
    kind: Kind,
    /// The last task of the request's stream that uses the memory.
    busy_until: u64,
    /// True when a thread may keep the piece behind its free.
    may_keep: bool,
}

/// The host heap, whose pieces are found by their addresses alone, as `malloc`'s are.
#[cfg(not(loom))]
impl CachingAllocator {
    /// Allocates at least `bytes` bytes, aligned to 64. `None` when memory is short.
    #[inline]
    pub fn give(&self, bytes: usize) -> Option<usize> {
        let block = self.allocate(Request::new(bytes.max(1), 0)).ok()?;
        let address = to_usize(block.address());
        if let Some(Mark::Block(_)) = block.handle().mark() {
            self.addresses().begin(address);
        }
        Some(address)
    }

    /// Frees a piece from [`Self::give`]. A repeated free has no effect, nor has a concurrent one
    /// of a larger piece; after the memory was handed out again it ends the new use. False when no
    /// piece in use begins at the address, `None` when this allocator has no memory there.
    #[inline]
    pub fn free_at(&self, address: usize) -> Option<bool> {
        let Some(owner) = self.addresses().at(address) else {
            return self.has_memory_at(address).then_some(false);
        };
        let Some((piece, bytes)) = owner.piece(address) else { return Some(false) };
        let is_first = match owner {
            Owner::Slab { .. } => true,
            Owner::Large { id, pages } => self.addresses().end(address, id, pages),
            Owner::Spare { .. } => false,
        };
        let Some(mark) = self.caches.live.mark(piece).filter(|_| is_first) else {
            return Some(false);
        };
        let handle = Handle::of_mark(mark, self.caches.live.tag());
        let freed = self.free(Allocated::of_piece(handle, address as u64, bytes, 0, 0));
        Some(freed.is_ok())
    }

    /// Returns the size of the piece that begins at an address; `None` when none does.
    pub fn usable_bytes_at(&self, address: usize) -> Option<usize> {
        Some(self.addresses().at(address)?.piece(address)?.1)
    }

    #[cold]
    fn has_memory_at(&self, address: usize) -> bool {
        self.state.lock().native.has_memory_at(address as u64)
    }

    fn addresses(&self) -> &Addresses {
        self.caches.addresses.as_ref().expect("a heap's allocator")
    }
}
