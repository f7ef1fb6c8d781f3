//! Requests and frees under the native policy, in which steps they are answered.

use std::sync::Arc;

use crate::base::error::Result;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::wait::Interrupt;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::books::{Books, Request};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::cell::Counted;
use crate::memory::allocator::native::core::{Awaiting, Extent};
use crate::memory::allocator::native::growth::Step;
use crate::memory::allocator::native::handle::Handle;
use crate::memory::allocator::native::own::Stay;
use crate::memory::allocator::native::piece::Piece;
use crate::memory::allocator::native::plan::{NativePlan, Sizes};
use crate::memory::allocator::native::search::Search;
use crate::memory::allocator::pending::LOOKS;
use crate::memory::allocator::pending::{Freed, UsePoint};
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState};
use crate::memory::allocator::turn::{Attempt, Wants};

impl CachingAllocator {
    /// A piece for a request of a byte at least, which this thread's cache did not serve. Waits and
    /// fails as [`CachingAllocator::allocate_unless`].
    pub(in crate::memory::allocator) fn allocate_native(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let Some(plan) = self.caches.sizes.plan(request) else {
            return Err(self.out_of_memory(request));
        };
        let (inside, kept) = self.caches.enter_and_take(request);
        if let Some(block) = kept {
            return Ok(block);
        }
        let mut step = None;
        let served = self.hand_out(inside, &plan, home, |books| {
            match books.native_step(&plan, home, Search::Bounded, false) {
                Step::Done(piece) => return Some(piece),
                more => step = Some(more),
            }
            None
        });
        if let Some(block) = served {
            return Ok(block);
        }
        match self.take_or_be_helped(&plan, home, step)? {
            Some(block) => Ok(block),
            None => self.reclaim_native(&plan, home, interrupt),
        }
    }

    /// A piece for a request that nothing is moved, mapped or waited for.
    pub(in crate::memory::allocator) fn take_native_ready(
        &self,
        request: &Request,
        home: &Arc<StreamCore>,
    ) -> Option<Allocated> {
        let plan = self.caches.sizes.plan(request)?;
        let (inside, kept) = self.caches.enter_and_take(request);
        if kept.is_some() {
            return kept;
        }
        self.hand_out(inside, &plan, Some(home), |books| {
            books.complete_some_if_free(LOOKS);
            books.take_ready(&plan, Some(home))
        })
    }

    /// A program has a piece now, and this thread's cache, if it is inside, a few more of its size
    /// if it is small: in one hold of the lock.
    #[inline]
    fn hand_out(
        &self,
        inside: Option<Stay<'_>>,
        plan: &NativePlan,
        home: Option<&Arc<StreamCore>>,
        find: impl FnOnce(&mut Books) -> Option<Piece>,
    ) -> Option<Allocated> {
        let caches = &self.caches;
        let mut books = self.books.lock();
        let piece = find(&mut books)?;
        let (block, counted) = books.begin_piece(piece, plan, home);
        caches.set_bound(&mut books);
        if let Some(mut inside) = inside {
            caches.stock(&mut inside, &mut books, plan);
            inside.kept.count_begin(counted);
            return Some(block);
        }
        drop(books); // what nobody's cache counts is reached without it
        caches.threads.lock().shared.begin(counted);
        Some(block)
    }

    /// As [`CachingAllocator::take_native`], or else a block of a private pool that helps out when
    /// memory is short, and keeps its blocks whole.
    fn take_or_be_helped(
        &self,
        plan: &NativePlan,
        home: Option<&Arc<StreamCore>>,
        step: Option<Step>,
    ) -> Result<Option<Allocated>> {
        if let Some(piece) = self.take_native(plan, home, step)? {
            return Ok(self.hand_out(self.caches.enter_prepared(), plan, home, |_| Some(piece)));
        }
        let mut books = self.books.lock();
        let whole = books.plan(&plan.request()).and_then(|plan| books.help_out(&plan));
        Ok(whole.map(|id| Allocated::of(id, &books)))
    }

    /// A piece or block for a request that neither free memory nor the device serves.
    fn reclaim_native(
        &self,
        plan: &NativePlan,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let request = plan.request();
        if self.books.lock().is_native_rejected(plan) {
            return Err(self.out_of_memory(&request));
        }
        {
            let statistics = &mut self.books.lock().statistics;
            statistics.num_sync_all_streams += 1;
            statistics.num_alloc_retries += 1;
        }
        let attempt = &mut |attempt| match attempt {
            Attempt::Another => self.take_or_be_helped(plan, home, None),
            Attempt::Last => {
                let piece = self.take_anywhere(plan, home, Search::Last)?;
                Ok(self.hand_out(self.caches.enter_prepared(), plan, home, |_| piece))
            }
        };
        let could_serve = &|books: &Books, left_bytes| books.could_serve_if_idle(plan, left_bytes);
        let bytes = request.bytes;
        self.take_in_turn(&mut Wants { request, bytes, attempt, could_serve }, interrupt)
    }

    /// Frees a piece behind its uses: into this thread's cache when its own stream alone used it.
    /// False when it is of another allocator.
    pub(in crate::memory::allocator) fn free_native(
        &self,
        block: &Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let (caches, bytes) = (&self.caches, block.bytes());
        let mark = block.handle().mark();
        let Some(piece) = mark.and_then(|mark| caches.live.piece(mark)) else { return false };
        let ended = mark.and_then(|mark| mark.end(bytes));
        let Some(requested_bytes) = ended else { return false };
        let counted = Counted { class: Sizes::class(bytes), bytes, requested_bytes };
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let may_keep = is_own && others.is_empty() && !block.is_unkept();
        let ticket = home.map_or(0, |home| home.ticket);
        if !caches.end_use(block, ticket, counted, may_keep) {
            self.free_piece(piece, counted, home, others);
        }
        true
    }

    fn free_piece(
        &self,
        piece: Piece,
        counted: Counted,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        let mut books = self.books.lock();
        books.free_piece(piece, counted, home, others);
        let is_closed = books.is_closed;
        let most_bytes = books.most_segment_bytes();
        drop(books); // the device may take it
        if is_closed {
            self.shrink_native(|_, _| true);
        } else if let Some(most_bytes) = most_bytes {
            self.shrink_segments_above(most_bytes);
        }
    }
}

impl Books {
    /// A program has a piece now.
    fn begin_piece(
        &mut self,
        piece: Piece,
        plan: &NativePlan,
        home: Option<&Arc<StreamCore>>,
    ) -> (Allocated, Counted) {
        let native = &mut self.native;
        let Extent { address, bytes, heap, kind, busy_until } = native.extent(piece);
        let class = Sizes::class(bytes);
        native.out.leave(class, bytes, 0);
        if class != kind.class() {
            native.lent.increase(class, bytes);
        }
        let (heap, stream) = (&native.heaps[heap], plan.owner.stream);
        let owner = heap.owner;
        let busy_until = if owner.stream == stream {
            heap.ticket_of(busy_until)
        } else {
            // What it waits for counts on another stream: here it is what this one has by now.
            home.filter(|_| heap.is_using(busy_until)).map_or(0, |home| home.pushed())
        };
        let requested_bytes = plan.requested_bytes;
        let mark = native.live.mark_of(piece);
        mark.begin(bytes, requested_bytes);
        let counted = Counted { class, bytes, requested_bytes };
        let is_of_its_size = kind == native.sizes.kind(bytes);
        let is_cached = plan.owner.pool == PoolId::DEFAULT && owner == plan.owner && is_of_its_size;
        let handle = Handle::of_mark(mark, native.live.tag());
        let block = Allocated::of_piece(handle, address, bytes, busy_until, stream);
        (if is_cached { block } else { block.unkept() }, counted)
    }

    /// Frees a piece behind its uses, as [`Books::free`] does with a block.
    fn free_piece(
        &mut self,
        piece: Piece,
        counted: Counted,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        self.complete_some_for(others.len());
        let part = piece.part();
        let heap = self.native.heap_of(part);
        let stream = self.native.heaps[heap].owner.stream;
        // A piece of another stream's heap is another stream's use there.
        let (own, foreign) = match home {
            Some(point) if point.stream.key() == stream => (Some(point), None),
            foreign => (None, foreign),
        };
        let heaps = &mut self.native.heaps;
        let busy_until = own.map_or(0, |point| heaps[heap].count_of(point.ticket));
        if let Some(UsePoint { stream, .. }) = own {
            heaps.note_stream(heap, stream);
        }
        let mut points = 0;
        for UsePoint { stream, ticket } in others.iter().chain(foreign) {
            points += u32::from(self.users.wait_for(stream, *ticket, Freed::Piece(piece)));
        }
        if points == 0 {
            return self.native.release(part, counted.bytes, busy_until);
        }
        self.native.awaiting_sums.leave(counted.class, counted.bytes, counted.requested_bytes);
        self.native.awaiting.insert(piece, Awaiting { points, counted, busy_until });
    }

    /// One of the points that a piece waits for was passed; true when it was the last.
    pub(in crate::memory::allocator) fn pass_piece(&mut self, piece: Piece) -> bool {
        let awaiting = self.native.awaiting.get_mut(&piece).expect("it awaits its free");
        awaiting.points -= 1;
        let is_last = awaiting.points == 0;
        if is_last {
            let Awaiting { counted, busy_until, .. } =
                self.native.awaiting.remove(&piece).expect("just seen");
            let sums = &mut self.native.awaiting_sums;
            sums.come_back(counted.class, counted.bytes, counted.requested_bytes);
            self.native.release(piece.part(), counted.bytes, busy_until);
        }
        is_last
    }

    /// True when a request is not even tried because of the limit; counts it.
    fn is_native_rejected(&mut self, plan: &NativePlan) -> bool {
        let is_rejected = self.config.reject_above_fraction && self.limits.is_above(plan.bytes);
        self.statistics.num_oom_rejections += u64::from(is_rejected);
        is_rejected
    }

    /// The piece that an address is in, if a program has it.
    pub(in crate::memory::allocator) fn piece_at(&self, address: u64) -> Option<BlockInfo> {
        let piece = self.native.piece_at(address)?;
        let Extent { address, bytes, .. } = self.native.extent(piece);
        let requested_bytes = self.native.live.mark(piece)?.requested(bytes)?;
        Some(BlockInfo { address, bytes, requested_bytes, state: BlockState::Allocated })
    }
}
