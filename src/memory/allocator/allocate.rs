//! Allocation: the path of a request, from the thread's cache to the device and to reclaim.
//!
//! A request looks into its thread's cache first, without a lock. A miss is planned by the policy
//! that serves its pool, and takes one [`Step`] after the other until it has memory. In this order:
//!
//! | step | policy native | policy torch |
//! |---|---|---|
//! | Search | the heap of the stream, then heaps of other streams | the free blocks of the pool |
//! | Flush | empties thread caches; then a search of all free memory | |
//! | Map, Reserve, Segment | moves idle pages; asks the device for pages, addresses, a segment | |
//! | Garbage, Grow | | old segments go back; the device gives a segment or pages |
//! | Anywhere | any heap that may serve the request | |
//! | Helpers | private pools that help out | the same |
//! | Oversize | | free blocks that are never split go back; then Grow |
//! | Reclaim | one thread at a time gives back, waits, calls reclaimers, fails | the same |
//!
//! A caller that must not wait gets the [`Unfinished`] request at the first step that may, and goes
//! on from there.

use std::sync::Arc;

use crate::base::error::{Error, MemoryError, Result};
use crate::base::fork;
use crate::base::sync::MutexGuard;
use crate::engine::log::record::MemoryAction;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::block_ref::BlockSelection;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::page_work::PageWork;
use crate::memory::allocator::pending::{ALL, LOOKS, LOOKS_BEFORE_GROWTH};
use crate::memory::allocator::plan::{NativePlan, Search};
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::segments::none_if_short;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::source::Part;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::thread_cache::{CacheGuard, LastUsed};
use crate::memory::allocator::torch::{Plan, Torch};

/// A request as the policy plans it that serves its pool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned<'a> {
    Native(NativePlan<'a>),
    Torch(Plan),
}

impl Planned<'_> {
    pub(super) fn request(&self) -> Request {
        match self {
            Self::Native(plan) => plan.request(),
            Self::Torch(plan) => plan.request(),
        }
    }

    /// The bytes that must be free for it.
    pub(super) fn least_bytes(&self) -> usize {
        match self {
            Self::Native(plan) => plan.requested_bytes,
            Self::Torch(plan) => plan.search_bytes,
        }
    }
}

/// The next step of a request; the head of this file has their order.
#[derive(Debug)]
pub(super) enum Step {
    /// Looks for free memory.
    Search(Search),
    /// Marks a piece that was found as handed out.
    Take(BlockSelection),
    /// Empties the thread caches and completes pending frees, before the device is asked.
    Flush,
    /// Waits for another thread that moves pages, or has the turn.
    AwaitPages(Search),
    /// Maps and moves pages to the block that was found.
    Map(PageWork),
    /// Reserves addresses for the arena.
    Reserve {
        bytes: usize,
        least_bytes: usize,
    },
    /// Takes a segment for the arena, the smallest one or a shared one, which the limit counts.
    Segment {
        bytes: usize,
        is_least: bool,
    },
    Garbage,
    Grow,
    Anywhere(Search),
    Helpers,
    Oversize,
    Reclaim,
    Done(Allocated),
}

/// A request of a caller that must not wait, before a step that may. Its plan has no home, because
/// the caller keeps the stream.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// `None` when no plan serves a request of this size.
    planned: Option<Planned<'static>>,
    step: Step,
}

impl CachingAllocator {
    /// Allocates memory. While memory is short, gives all free memory back and waits for streams
    /// that use some; then fails with `OutOfMemory`, after its observers were called. Fails with
    /// `InvalidSetting` for an alignment that is no power of two.
    #[inline(always)]
    pub fn allocate(&self, request: Request) -> Result<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        // Passed in parts: the fast path above stays in registers.
        let Request { bytes, stream, pool, align_bytes } = request;
        let block = self.allocate_uninterrupted(bytes, stream, pool, align_bytes)?;
        Ok(block)
    }

    /// As [`CachingAllocator::allocate`], with an interrupt of its waits. `home` is the requesting
    /// stream, unless that is only a number.
    #[inline]
    pub(crate) fn allocate_unless(
        &self,
        request: Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        self.allocate_missed(&request, home, interrupt)
    }

    /// As [`CachingAllocator::allocate_unless`], without waits and calls of the device. Returns the
    /// unfinished request where it needs one, for [`CachingAllocator::finish`].
    #[inline(always)]
    pub(crate) fn allocate_at_once(
        &self,
        request: Request,
        home: &Arc<StreamCore>,
    ) -> Result<Allocated, Box<Unfinished>> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Ok(block);
        }
        self.begin_missed(&request, home)
    }

    #[cold]
    #[inline(never)]
    fn allocate_uninterrupted(
        &self,
        bytes: usize,
        stream: u64,
        pool: PoolId,
        align_bytes: usize,
    ) -> Result<Allocated> {
        let request = Request { bytes, stream, pool, align_bytes };
        self.allocate_missed(&request, None, &mut Interrupt::default())
    }

    #[inline(always)]
    fn allocate_missed(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        fork::check()?;
        request.check()?;
        if request.bytes == 0 {
            return Ok(Allocated::default());
        }
        if !self.begin_noting() {
            return self.serve(request, home, interrupt);
        }
        let served = self.serve(request, home, interrupt);
        LastUsed::forget_under_tag();
        served
    }

    /// Serves a request of a byte or more that this thread's cache did not serve on its fast path.
    #[cold]
    #[inline(never)]
    fn serve(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let Some(planned) = self.plan(request, home) else {
            return Err(self.out_of_memory(request));
        };
        match self.begin(&planned, request) {
            Ok(block) => Ok(block),
            Err(step) => self.go_on(&planned, step, interrupt),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_missed(
        &self,
        request: &Request,
        home: &Arc<StreamCore>,
    ) -> Result<Allocated, Box<Unfinished>> {
        if request.bytes == 0 {
            return Ok(Allocated::default());
        }
        let is_noted = self.begin_noting();
        let planned = self.plan(request, Some(home));
        let begun = match &planned {
            Some(Planned::Torch(plan)) => self.search(plan).ok_or(Step::Garbage),
            Some(planned) => self.begin(planned, request),
            None => Err(Step::Reclaim),
        };
        if is_noted {
            LastUsed::forget_under_tag();
        }
        let planned = planned.map(Planned::without_home);
        begun.map_err(|step| Box::new(Unfinished { planned, step }))
    }

    /// Goes on with a request of [`CachingAllocator::allocate_at_once`], with its waits.
    pub(crate) fn finish(
        &self,
        unfinished: Unfinished,
        request: &Request,
        home: &Arc<StreamCore>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let Unfinished { planned, step } = unfinished;
        let Some(planned) = planned else { return Err(self.out_of_memory(request)) };
        let is_noted = self.begin_noting();
        let served = self.go_on(&planned.with_home(home), step, interrupt);
        if is_noted {
            LastUsed::forget_under_tag();
        }
        served
    }

    /// Plans a request; mostly without the lock. `None` when it is larger than any address range. A
    /// concurrent change of the policy applies to later requests.
    pub(super) fn plan<'a>(
        &self,
        request: &Request,
        home: Option<&'a Arc<StreamCore>>,
    ) -> Option<Planned<'a>> {
        if request.pool != PoolId::DEFAULT || !self.caches.is_on() {
            let ledger = &self.state.lock().ledger;
            if !ledger.serves_natively(request.pool) {
                return Plan::of(request, ledger).map(Planned::Torch);
            }
        }
        self.caches.sizes.plan(request, home).map(Planned::Native)
    }

    /// Takes the first step of a request, the only one of most misses: a look into the thread's
    /// cache where the fast path could not look, and a bounded search. Returns the next step when
    /// that finds nothing.
    #[inline(always)]
    fn begin(&self, planned: &Planned<'_>, request: &Request) -> Result<Allocated, Step> {
        let Planned::Native(plan) = planned else { return Err(Step::Search(Search::Bounded)) };
        let caches = &self.caches;
        let mut inside = caches.enter();
        if !inside.as_ref().is_some_and(|inside| caches.has_looked(inside)) {
            inside = inside.or_else(|| caches.enter_prepared());
            if let Some(mut block) = caches.take_inside(inside.as_mut(), request, plan) {
                self.note_cached(request, &mut block);
                return Ok(block);
            }
        }
        let mut state = self.lock_from(inside.as_mut());
        let mut step = state.native_step(plan, Search::Bounded);
        if matches!(step, Step::Flush) && caches.empty_locked(inside.as_mut(), &mut state) {
            step = state.native_step(plan, Search::Whole);
        }
        match step {
            Step::Take(taken) => Ok(self.begin_use(state, inside.as_mut(), plan, taken)),
            more => Err(more),
        }
    }

    /// Takes the steps of a request from `step` on, to the end.
    #[cold]
    #[inline(never)]
    fn go_on(
        &self,
        planned: &Planned<'_>,
        step: Step,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let served = self.take_steps(planned, step, Pass::First);
        match served.map_err(|error| self.report_oom(error))? {
            Some(block) => Ok(block),
            None => self.reclaim(planned, interrupt),
        }
    }

    /// Takes the steps of a request from `step` on. `None` where only [`Step::Reclaim`] is left:
    /// the device or the limit has too little. Other failures are errors.
    pub(super) fn take_steps(
        &self,
        planned: &Planned<'_>,
        mut step: Step,
        pass: Pass,
    ) -> Result<Option<Allocated>> {
        let mut planned = *planned;
        loop {
            step = match (step, &mut planned) {
                (Step::Done(block), _) => return Ok(Some(block)),
                (Step::Reclaim, _) => return Ok(None),
                (step, Planned::Native(plan)) => self.take_native_step(plan, step)?,
                (step, Planned::Torch(plan)) => self.take_torch_step(plan, &step, pass)?,
            };
        }
    }

    /// Takes a step of a request under policy native; returns the next one.
    fn take_native_step(&self, plan: &mut NativePlan<'_>, step: Step) -> Result<Step> {
        Ok(match step {
            Step::Search(search) => self.state.lock().native_step(plan, search),
            Step::Take(taken) => Step::Done(self.begin_use_of(plan, taken)),
            Step::Flush => {
                // A thread that stays inside of its cache keeps some blocks. The request gets them
                // before it fails.
                self.caches.empty_for_growth();
                self.poll_waited_for(LOOKS_BEFORE_GROWTH);
                Step::Search(Search::Whole)
            }
            Step::AwaitPages(search) => {
                self.wait_for_pages();
                Step::Search(search)
            }
            Step::Map(work) => {
                served_or(self.map_pages(plan, work)?, Step::Anywhere(Search::Whole))
            }
            Step::Reserve { bytes, least_bytes } => self.reserve_area(plan, bytes, least_bytes)?,
            Step::Segment { bytes, is_least } => self.take_segment(plan, bytes, is_least)?,
            Step::Anywhere(search) => served_or(self.take_anywhere(plan, search)?, Step::Helpers),
            _ => {
                let request = plan.request();
                let served = self.with_torch(|torch, ledger| {
                    torch.take_from_helpers(ledger, &Plan::of(&request, ledger)?)
                });
                served_or(served, Step::Reclaim)
            }
        })
    }

    /// Takes a step of a request under policy torch, in PyTorch's order; returns the next one.
    fn take_torch_step(&self, plan: &Plan, step: &Step, pass: Pass) -> Result<Step> {
        let is_first = pass == Pass::First;
        Ok(match step {
            Step::Search(_) => {
                let next = if is_first { Step::Garbage } else { Step::Grow };
                served_or(self.search(plan), next)
            }
            Step::Garbage => {
                if self.state.lock().ledger.chooses_among_free() {
                    self.poll_holders(); // what streams have passed may go back as well
                }
                self.give_back(self.with_torch(Torch::release_garbage));
                Step::Grow
            }
            Step::Grow => served_or(self.grow(plan)?, Step::Helpers),
            Step::Helpers => {
                let served = self.with_torch(|torch, ledger| torch.take_from_helpers(ledger, plan));
                served_or(served, if is_first { Step::Oversize } else { Step::Reclaim })
            }
            _ => {
                let (oversize, is_enough) =
                    self.with_torch(|torch, ledger| torch.release_oversize(ledger, plan));
                self.give_back(oversize);
                let served = if is_enough { self.grow(plan)? } else { None };
                served_or(served, Step::Reclaim)
            }
        })
    }

    /// The last step of a request: in turns, until it is served or fails.
    fn reclaim(&self, planned: &Planned<'_>, interrupt: &mut Interrupt<'_>) -> Result<Allocated> {
        if let Planned::Native(plan) = planned
            && self.state.lock().ledger.rejects(|limits| limits.is_above(plan.bytes))
        {
            return Err(self.out_of_memory(&planned.request()));
        }
        self.count_retry();
        self.take_in_turn(planned, interrupt)
    }

    /// Takes a free block, under policy torch.
    fn search(&self, plan: &Plan) -> Option<Allocated> {
        self.search_behind(plan, LOOKS).or_else(|| {
            let are_more = self.state.lock().pending.are_many_waited_for();
            if are_more { self.search_behind(plan, LOOKS_BEFORE_GROWTH) } else { None }
        })
    }

    /// As `search`, after up to `most_looks` streams were checked.
    fn search_behind(&self, plan: &Plan, most_looks: usize) -> Option<Allocated> {
        self.poll_waited_for(most_looks);
        let (block, victims) = {
            let mut state = self.state.lock();
            state.complete_some_if_free(most_looks);
            let AllocatorState { torch, ledger, .. } = &mut *state;
            let block = torch.find(ledger, plan).map(|id| torch.allocate_block(ledger, id, plan));
            (block, torch.release_beyond_cache(ledger))
        };
        self.unless_panicked(block, self.try_give_back(victims))
    }

    /// Reserves addresses for the arena of a request, to search it again.
    fn reserve_area(
        &self,
        plan: &NativePlan<'_>,
        bytes: usize,
        least_bytes: usize,
    ) -> Result<Step> {
        let range = self.reserve(bytes, least_bytes).or_else(|_| {
            // Vacant areas hold addresses and mappings of the kernel.
            self.shrink_native(|ledger, pool| !ledger.pools.is_reserved(pool));
            self.reserve(bytes, least_bytes)
        });
        match range {
            Ok((base, bytes)) => {
                self.state.lock().native.add_area_for(plan, base, bytes);
                Ok(Step::Search(Search::Whole))
            }
            Err(refusal) => {
                none_if_short(refusal).map(|_: Option<()>| Step::Anywhere(Search::Whole))
            }
        }
    }

    /// Takes a segment for the arena of a request, to search it again.
    fn take_segment(
        &self,
        plan: &mut NativePlan<'_>,
        bytes: usize,
        is_least: bool,
    ) -> Result<Step> {
        let ask = || Ok((self.ask_for_segment(bytes, plan.align_bytes)?, bytes));
        let given = self.ask_apart(ask, Part::Segment).map(|(base, _)| base);
        let AllocatorState { native, ledger, .. } = &mut *self.state.lock();
        ledger.note_segment(plan.kind.class(), bytes, &given);
        match given {
            Ok(base) => {
                let (address, owner) = (base.0, plan.owner);
                let place = Place { address, bytes, stream: owner.stream, pool: owner.pool };
                ledger.recorder.note_moved(MemoryAction::SegmentAllocated, &place);
                native.add_area_for(plan, base, bytes);
                Ok(Step::Search(Search::Whole))
            }
            Err(Error::Memory(MemoryError::OutOfMemory { .. })) if !is_least => {
                plan.wants_least = true;
                Ok(Step::Search(Search::Whole))
            }
            Err(refusal) => {
                none_if_short(refusal).map(|_: Option<()>| Step::Anywhere(Search::Whole))
            }
        }
    }

    /// Serves a request from any free memory that may serve it. `None` when none does.
    pub(super) fn take_anywhere(
        &self,
        plan: &NativePlan<'_>,
        search: Search,
    ) -> Result<Option<Allocated>> {
        let left_bytes = self.device_free_bytes();
        loop {
            let step = {
                let mut state = self.state.lock();
                state.complete_some_if_free(ALL);
                let AllocatorState { native, ledger, .. } = &mut *state;
                native.step_anywhere(ledger, plan, search, left_bytes)
            };
            match step {
                Step::Take(taken) => return Ok(Some(self.begin_use_of(plan, taken))),
                // A whole block, and no stock: memory is short.
                Step::Map(work) => return self.map_pages(&plan.whole(), work),
                Step::AwaitPages(_) => self.wait_for_pages(),
                _ => return Ok(None),
            }
        }
    }

    /// Takes the allocator's lock, and frees under it what this thread left until then.
    pub(super) fn lock_from(
        &self,
        inside: Option<&mut CacheGuard<'_>>,
    ) -> MutexGuard<'_, AllocatorState> {
        let mut state = self.state.lock();
        if let Some(inside) = inside {
            inside.end_leaving(|piece| state.native.release_left(piece));
        }
        state
    }

    /// Marks a piece as handed out and, in the same hold of the lock, stocks the thread cache
    /// `inside` with small blocks of its class.
    #[inline(always)]
    pub(super) fn begin_use(
        &self,
        mut state: MutexGuard<'_, AllocatorState>,
        inside: Option<&mut CacheGuard<'_>>,
        plan: &NativePlan<'_>,
        taken: BlockSelection,
    ) -> Allocated {
        let caches = &self.caches;
        let (mut block, counted) = state.native.begin_piece(taken, plan);
        state.ledger.recorder.note_block(&plan.request(), &mut block);
        caches.set_bound(&mut state.native);
        if let Some(inside) = inside {
            if plan.class.is_some() || inside.is_closed() {
                caches.stock(inside, &mut state, plan);
            }
            inside.bins.count_begin(counted);
            return block;
        }
        drop(state); // lock order: `threads` comes before the state
        caches.threads.lock().shared.begin(counted);
        block
    }

    fn begin_use_of(&self, plan: &NativePlan<'_>, taken: BlockSelection) -> Allocated {
        let mut inside = self.caches.enter_prepared();
        let state = self.lock_from(inside.as_mut());
        self.begin_use(state, inside.as_mut(), plan, taken)
    }

    /// Gives up a request that its caller does not finish, with what its next step has claimed.
    pub(crate) fn abandon(&self, unfinished: Unfinished) {
        let AllocatorState { native, ledger, .. } = &mut *self.state.lock();
        match unfinished.step {
            Step::Map(work) => native.abandon_page_work(ledger, work),
            Step::Segment { bytes, .. } => ledger.note_answer(PoolClass::default(), bytes, 0),
            _ => {}
        }
    }
}

fn served_or(served: Option<Allocated>, next: Step) -> Step {
    served.map_or(next, Step::Done)
}

/// Which time a request takes its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    First,
    /// Again in a turn, after free memory went back.
    InTurn,
}

impl<'a> Planned<'a> {
    fn without_home(self) -> Planned<'static> {
        match self {
            Self::Native(plan) => Planned::Native(plan.without_home()),
            Self::Torch(plan) => Planned::Torch(plan),
        }
    }

    fn with_home(self, home: &'a Arc<StreamCore>) -> Self {
        match self {
            Self::Native(plan) => Self::Native(NativePlan { home: Some(home), ..plan }),
            torch @ Self::Torch(_) => torch,
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "allocate_tests.rs"]
mod tests;
