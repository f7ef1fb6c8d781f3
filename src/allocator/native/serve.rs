//! Requests and frees under the native policy, in which steps they are answered.

use crate::allocator::books::{Books, Request};
use crate::allocator::caching::{Allocated, CachingAllocator};
use crate::allocator::native::core::{Awaiting, Extent, NativePlan};
use crate::allocator::native::piece::Piece;
use crate::allocator::pending::{Freed, UsePoint};
use crate::allocator::pool::PoolId;
use crate::error::Result;
use crate::stream::wait::Interrupt;

impl CachingAllocator {
    /// A piece for a request of a byte at least. Waits and fails as
    /// [`CachingAllocator::allocate_unless`].
    pub(in crate::allocator) fn allocate_native(
        &self,
        request: &Request,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let plan = self.books.lock().native.plan(request);
        let Some(plan) = plan else { return Err(self.out_of_memory(request.bytes, None)) };
        let mut told = None;
        self.poll_waited_for();
        let piece = match self.take_native(&plan, &mut told)? {
            Some(piece) => piece,
            None => self.reclaim_native(&plan, told, interrupt)?,
        };
        Ok(self.books.lock().begin_piece(piece, &plan))
    }

    /// A piece for a request that neither free memory nor the device serves.
    fn reclaim_native(
        &self,
        plan: &NativePlan,
        mut told: Option<usize>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Piece> {
        let requested_bytes = plan.requested_bytes;
        if self.books.lock().is_native_rejected(plan) {
            return Err(self.out_of_memory(requested_bytes, told));
        }
        if let Some(piece) = self.books.lock().native_help_out(plan) {
            return Ok(piece);
        }
        self.trim();
        self.books.lock().statistics.num_alloc_retries += 1;
        let told = &mut told;
        if let Some(piece) = self.take_native(plan, told)? {
            return Ok(piece);
        }
        let attempt = &mut |told: &mut Option<usize>| self.take_native(plan, told);
        if let Some(piece) = self.wait_and_take(plan.bytes, told, interrupt, attempt)? {
            return Ok(piece);
        }
        Err(self.out_of_memory(requested_bytes, *told))
    }
}

impl Books {
    /// A program has a piece now.
    fn begin_piece(&mut self, piece: Piece, plan: &NativePlan) -> Allocated {
        let Extent { address, bytes, busy_until } = self.native.extent(piece);
        self.native.live.begin(piece, bytes, plan.requested_bytes);
        let class = self.native.home_of(piece).1.class();
        self.statistics.begin_use(class, bytes, plan.requested_bytes);
        Allocated::of_piece(piece, address, bytes, busy_until)
    }

    /// Frees a piece behind its uses, as [`Books::free`] does with a block. False when it was freed
    /// before.
    pub(in crate::allocator) fn free_piece(
        &mut self,
        piece: Piece,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) -> bool {
        let bytes = self.native.extent(piece).bytes;
        let Some(requested_bytes) = self.native.live.end(piece, bytes) else { return false };
        let class = self.native.home_of(piece).1.class();
        self.statistics.end_allocation(class, bytes);
        let stream = self.native.stream_of(piece);
        // A piece of another stream's heap is another stream's use there.
        let (own, foreign) = match home {
            Some(point) if point.stream.key() == stream => (Some(point), None),
            foreign => (None, foreign),
        };
        let busy_until = own.map_or(0, |point| point.ticket);
        if let Some(UsePoint { stream, ticket }) = own {
            self.users.note(stream, *ticket);
        }
        let mut points = 0;
        for UsePoint { stream, ticket } in others.iter().chain(foreign) {
            points += u32::from(self.users.wait_for(stream, *ticket, Freed::Piece(piece)));
        }
        let awaiting = Awaiting { points, bytes, requested_bytes, busy_until };
        if points == 0 {
            self.complete_piece(piece, &awaiting);
        } else {
            self.native.awaiting.insert(piece, awaiting);
        }
        true
    }

    /// No other stream uses a piece any more.
    fn complete_piece(&mut self, piece: Piece, freed: &Awaiting) {
        let class = self.native.home_of(piece).1.class();
        self.native.release(piece, freed.busy_until);
        self.statistics.end_use(class, freed.bytes, freed.requested_bytes);
    }

    /// One of the points that a piece waits for was passed; true when it was the last.
    pub(in crate::allocator) fn pass_piece(&mut self, piece: Piece) -> bool {
        let awaiting = self.native.awaiting.get_mut(&piece).expect("it awaits its free");
        awaiting.points -= 1;
        let is_last = awaiting.points == 0;
        if is_last {
            let freed = self.native.awaiting.remove(&piece).expect("just seen");
            self.complete_piece(piece, &freed);
        }
        is_last
    }

    /// True when a request is not even tried because of the limit; counts it.
    fn is_native_rejected(&mut self, plan: &NativePlan) -> bool {
        let is_rejected = self.config.reject_above_fraction && self.limits.is_above(plan.bytes);
        self.statistics.num_oom_rejections += u64::from(is_rejected);
        is_rejected
    }

    /// A free piece of a private pool that helps out when memory is short.
    fn native_help_out(&mut self, plan: &NativePlan) -> Option<Piece> {
        if plan.owner.pool != PoolId::DEFAULT {
            return None;
        }
        let helpers = self.pools.iter().filter(|(_, pool)| pool.options.use_on_oom);
        let helpers: Vec<PoolId> = helpers.map(|(id, _)| id).collect();
        helpers.into_iter().find_map(|pool| self.take_ready(&plan.in_pool(pool)))
    }

    /// The piece that an address is in, if a program has it.
    pub(in crate::allocator) fn piece_at(&self, address: u64) -> Option<Allocated> {
        let piece = self.native.piece_at(address)?;
        let Extent { address, bytes, busy_until } = self.native.extent(piece);
        self.native.live.requested(piece, bytes)?;
        Some(Allocated::of_piece(piece, address, bytes, busy_until))
    }
}
