//! Requests as engine `native` plans them: rounded, with an arena, a size class and needs.

use std::sync::Arc;

use crate::base::size::MIB;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::heap::Owner;
use crate::memory::allocator::ids::{BlockId, HeapId, Kind};
use crate::memory::allocator::pages::Grid;
use crate::memory::allocator::policy::MOST_SMALL_BYTES as MOST_SMALL_POOL_BYTES;
use crate::memory::allocator::request::Request;
use crate::memory::allocator::slab::{Granularity, MOST_SMALL_BYTES, SizeClass};
use crate::memory::allocator::snapshot::PoolClass;
/// The granule of segments on devices without pages.
const SEGMENT_GRANULE_BYTES: usize = 2 * MIB;
/// The largest alignment in pages: the page table covers the pages between two blocks, so blocks
/// far apart would take too much host memory.
const MOST_ALIGN_PAGES: usize = 1 << 20;
/// The largest size and alignment that the middle arena serves first, which counts both in 32 bits.
/// Larger ones get whole pages, except as a fallback.
const MOST_MIDDLE_BYTES: usize = 1 << 38;
/// From this number of pages on, a piece has most of them for itself.
const MANY_PAGES: usize = 8;
/// The largest request that shares a segment with others, on devices without pages.
const MOST_SHARED_SEGMENT_BYTES: usize = 8 * SEGMENT_GRANULE_BYTES;

/// The sizes that requests of one device are rounded to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The size of the device's pages; without pages the granule of segments.
    pub(super) page_bytes: usize,
    pub(super) has_pages: bool,
    pub(super) granularity: Granularity,
    most_middle_bytes: usize,
    /// By [`Kind`].
    grids: [Grid; 2],
}

impl Sizes {
    /// `page_bytes` is the size of pages that are mapped one by one.
    pub(super) fn new(page_bytes: Option<usize>, granularity: Granularity) -> Self {
        let unit_bytes = granularity.block_bytes;
        let has_pages = page_bytes.is_some();
        // Smaller pages are mapped several at a time, because blocks are whole units.
        let page_bytes = page_bytes.unwrap_or(SEGMENT_GRANULE_BYTES).max(unit_bytes);
        assert!(page_bytes.is_power_of_two(), "pages of {page_bytes} bytes");
        let most_middle_bytes =
            if has_pages { MOST_MIDDLE_BYTES } else { MOST_SHARED_SEGMENT_BYTES };
        let grid = |unit_bytes| Grid::new(has_pages.then_some(page_bytes / unit_bytes));
        let grids = [grid(unit_bytes), grid(page_bytes)];
        Self { page_bytes, has_pages, granularity, most_middle_bytes, grids }
    }

    pub(super) fn unit_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::Middle => self.granularity.block_bytes,
            Kind::Large => self.page_bytes,
        }
    }

    /// The alignment that every unit of an arena has. Segments begin where the device has them.
    pub(super) fn unit_align_bytes(&self, kind: Kind) -> usize {
        if self.has_pages { self.unit_bytes(kind) } else { self.granularity.block_bytes }
    }

    /// The page grid of an arena.
    #[inline]
    pub(super) fn grid(&self, kind: Kind) -> Grid {
        self.grids[kind as usize]
    }

    /// Rounds a request without alignment; 0 for no bytes and on overflow.
    #[inline(always)]
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        let last = bytes.wrapping_sub(1);
        let Granularity { small_bytes, block_bytes } = self.granularity;
        // Sizes are multiples of a power of two. Comparisons find most of them faster than the
        // highest bit, which is slow on some processors.
        let mask = if last < self.granularity.even_steps_bytes() {
            small_bytes - 1
        } else if last < MOST_SMALL_BYTES {
            SizeClass::step_mask(last.ilog2())
        } else if last < self.most_middle_bytes {
            block_bytes - 1
        } else {
            self.page_bytes - 1
        };
        (last | mask).wrapping_add(1)
    }

    /// The pool that a piece of a size counts for, wherever it is: PyTorch's limit.
    #[inline(always)]
    pub(super) fn class(bytes: usize) -> PoolClass {
        if bytes > MOST_SMALL_POOL_BYTES { PoolClass::Large } else { PoolClass::Small }
    }

    /// The arena that serves a rounded size first. Whole pages waste nothing where blocks share
    /// none; all other sizes would, by up to a page each, so they share those at their ends.
    #[inline]
    pub(super) fn kind(&self, bytes: usize) -> Kind {
        let is_whole = bytes > self.page_bytes && bytes & (self.page_bytes - 1) == 0;
        let is_alone = self.has_pages && is_whole || bytes > self.most_middle_bytes;
        if is_alone { Kind::Large } else { Kind::Middle }
    }

    /// True for a piece of many pages, of which it shares those at its ends at most.
    #[inline]
    pub(super) fn has_many_pages(&self, bytes: usize) -> bool {
        self.has_pages && bytes / MANY_PAGES >= self.page_bytes
    }

    /// Plans a request of at least one byte. `None` when it is larger than any address range.
    #[inline(always)]
    pub(super) fn plan<'a>(
        &self,
        request: &Request,
        home: Option<&'a Arc<StreamCore>>,
    ) -> Option<NativePlan<'a>> {
        let Request { bytes: requested_bytes, stream, pool, align_bytes } = *request;
        debug_assert!(request.check().is_ok(), "checked before: {request:?}");
        let Granularity { small_bytes, block_bytes } = self.granularity;
        let (is_plain, wants_least) = (align_bytes <= small_bytes, false);
        let (owner, align_bytes) = (Owner { stream, pool }, align_bytes.max(block_bytes));
        let plan = |bytes, kind, class| NativePlan {
            home,
            wants_least,
            requested_bytes,
            bytes,
            align_bytes,
            owner,
            kind,
            class,
        };
        if !is_plain || requested_bytes > self.most_middle_bytes {
            let (bytes, kind) = self.far(requested_bytes, align_bytes)?;
            return Some(plan(bytes, kind, None));
        }
        if requested_bytes <= MOST_SMALL_BYTES {
            let class = SizeClass::of(requested_bytes, self.granularity);
            return Some(plan(class.bytes(), Kind::Middle, Some(class)));
        }
        // Whole units of its arena, and fewer than 2^32.
        let bytes = ((requested_bytes - 1) | (block_bytes - 1)) + 1;
        Some(plan(bytes, self.kind(bytes), None))
    }

    /// The size and the arena of a piece that is larger, or aligned to more, than most.
    #[cold]
    #[inline(never)]
    fn far(&self, requested_bytes: usize, align_bytes: usize) -> Option<(usize, Kind)> {
        let rounded_to =
            |bytes: usize, unit_bytes: usize| ((bytes - 1) | (unit_bytes - 1)).checked_add(1);
        let bytes = rounded_to(requested_bytes, self.granularity.block_bytes)?;
        // Sizes and offsets are counted in 32 bits, so larger alignments get whole pages.
        let is_far = align_bytes > MOST_MIDDLE_BYTES;
        let kind = if is_far { Kind::Large } else { self.kind(bytes) };
        let unit_bytes = self.unit_bytes(kind); // a power of two, as the alignment
        let bytes = rounded_to(bytes, unit_bytes)?;
        let most_units = bytes.checked_add(align_bytes)? >> unit_bytes.trailing_zeros();
        let is_possible =
            most_units < u32::MAX as usize / 4 && align_bytes / MOST_ALIGN_PAGES <= self.page_bytes;
        is_possible.then_some((bytes, kind))
    }
}

/// A planned request.
#[derive(Clone, Copy, Debug)]
pub(super) struct NativePlan<'a> {
    /// The requesting stream, unless it is only a number.
    pub(super) home: Option<&'a Arc<StreamCore>>,
    /// True after the device refused a shared segment: the smallest one will do.
    pub(super) wants_least: bool,
    pub(super) requested_bytes: usize,
    /// The size of the piece.
    pub(super) bytes: usize,
    pub(super) align_bytes: usize,
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    /// The size class of a request that a slab serves. For these the device is asked before another
    /// stream's heap: a slab serves many requests, and threads cache only pieces of their own
    /// stream's heap.
    pub(super) class: Option<SizeClass>,
}

impl NativePlan<'_> {
    /// True when requests of its size have its arena whatever their alignment.
    #[inline(always)]
    pub(super) fn is_of_its_size(&self, sizes: &Sizes) -> bool {
        let is_plain = self.class.is_none() && self.align_bytes <= MOST_MIDDLE_BYTES;
        is_plain || self.kind == sizes.kind(self.bytes)
    }

    /// The block to take from a heap: for the request, or for a new slab.
    pub(super) fn want_of(&self, heap: HeapId) -> BlockRequest {
        let Self { kind, align_bytes, .. } = *self;
        BlockRequest { heap, kind, bytes: self.block_bytes(), align_bytes }
    }

    pub(super) fn request(&self) -> Request {
        let Self { requested_bytes: bytes, align_bytes, owner: Owner { stream, pool }, .. } = *self;
        Request { bytes, stream, pool, align_bytes }
    }

    /// The size of the block for the request, or of its slab.
    pub(super) fn block_bytes(&self) -> usize {
        self.class.map_or(self.bytes, SizeClass::slab_bytes)
    }

    /// The same plan for a caller that keeps the stream.
    pub(super) fn without_home(self) -> NativePlan<'static> {
        let Self { wants_least, requested_bytes, bytes, align_bytes, owner, kind, class, .. } =
            self;
        let home = None;
        NativePlan { home, wants_least, requested_bytes, bytes, align_bytes, owner, kind, class }
    }

    /// The same plan with a block instead of a slab.
    pub(super) fn whole(&self) -> Self {
        Self { class: None, ..*self }
    }

    /// A block for the request in a given arena; `None` when it has too many units.
    pub(super) fn want_in(&self, heap: HeapId, kind: Kind, sizes: &Sizes) -> Option<BlockRequest> {
        let unit_bytes = sizes.unit_bytes(kind);
        let least_bytes = if kind == self.kind { self.bytes } else { self.requested_bytes };
        let bytes = least_bytes.next_multiple_of(unit_bytes);
        let is_possible = bytes >> unit_bytes.trailing_zeros() < u32::MAX as usize / 4;
        is_possible.then_some(BlockRequest { heap, kind, bytes, align_bytes: self.align_bytes })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::size::{GIB, KIB};
    use crate::numbers::Numbers;
    use crate::seed::seed;

    /// Goal: pieces that do not count are those that share few of their pages. Method: sizes around
    /// the border.
    #[test]
    fn a_piece_of_eight_pages_has_most_of_them_for_itself() {
        let page_bytes = 2 * MIB;
        let sizes = Sizes::new(Some(page_bytes), Granularity::DEVICE);
        let has_many = |bytes| sizes.has_many_pages(bytes);
        let around = [7 * page_bytes, 8 * page_bytes - 1, 8 * page_bytes, 9 * page_bytes];
        assert_eq!(around.map(has_many), [false, false, true, true]);
        assert!(!Sizes::new(None, Granularity::DEVICE).has_many_pages(GIB), "there are none");
    }

    /// Goal: what a thread keeps is found by the size that a heap hands out. Method: sizes around
    /// every border, and random ones.
    #[test]
    fn a_request_is_rounded_to_the_size_that_it_gets() {
        let mut numbers = Numbers::new(seed());
        let pages = [None, Some(64 * KIB), Some(2 * MIB), Some(32 * MIB)];
        let devices = pages.map(|page_bytes| (page_bytes, Granularity::DEVICE));
        for (page_bytes, granularity) in devices.into_iter().chain([(None, Granularity::HEAP)]) {
            let sizes = Sizes::new(page_bytes, granularity);
            let borders = (0..40).map(|power| 1 << power).chain([sizes.most_middle_bytes]);
            let near = borders.flat_map(|border: usize| (border.max(2) - 1)..=(border + 1));
            let mut one = || {
                let most_bytes = GIB >> numbers.below(30);
                1 + numbers.below(most_bytes)
            };
            let random = (0..10_000).map(|_| one());
            for bytes in near.chain(random) {
                let plan = sizes.plan(&Request::new(bytes, 0), None).expect("there are such sizes");
                assert_eq!(sizes.rounded(bytes), plan.bytes, "{bytes} of pages {page_bytes:?}");
            }
            assert_eq!(sizes.rounded(0), 0);
            assert_eq!(sizes.rounded(usize::MAX), 0);
        }
    }
}

/// How much free memory a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A bounded number of blocks: some of the list for the request's size, which may be smaller
    /// than the request, and some larger ones. Other memory may serve the request too.
    Bounded,
    /// Every free block, before the device is asked for more.
    Whole,
    /// As `Whole`, but also moves pages and takes other streams' memory under `deterministic`.
    Last,
}

impl Search {
    /// Returns how many blocks to look at in the list for the request's size, and in later lists.
    pub(super) fn looks(self) -> [usize; 2] {
        if self == Self::Bounded { [4, 6] } else { [usize::MAX; 2] }
    }

    /// Returns how many heaps of other streams to look at, of those that got free memory last.
    pub(super) fn heaps(self) -> usize {
        if self == Self::Bounded { 4 } else { usize::MAX }
    }
}

/// A block that a request needs of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRequest {
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    pub(super) bytes: usize,
    pub(super) align_bytes: usize,
}

/// A place for a block in free units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The block at the beginning of the place.
    pub(super) id: BlockId,
    pub(super) offset: u32,
    pub(super) units: u32,
    pub(super) cost: Cost,
}

/// The cost of a place: less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// The missing pages, and the idle ones that could move elsewhere unless those are no cost.
    pub(super) pages: u32,
    /// The unmapped pages.
    pub(super) missing: u32,
}
