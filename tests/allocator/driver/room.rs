//! What free memory can hold, read from a snapshot: the other side of law 8.

use accelrt::allocator::PoolId;
use accelrt::allocator::snapshot::{BlockState, PoolClass, SegmentInfo};

use super::{KIB, MIB};

/// The largest slab: what is free in one serves small requests alone.
const MOST_SLAB_BYTES: usize = 256 * KIB;
/// The largest block of one.
const MOST_SMALL_BYTES: usize = 32 * KIB;
/// Pages that move, and the multiple of segments.
const PAGE_BYTES: usize = 2 * MIB;

/// Where a request may come from.
pub(crate) struct Sources<'a> {
    pub(crate) stream: u64,
    /// The pools whose free blocks may serve it.
    pub(crate) serving: &'a [PoolId],
    /// The pools with users: pages of others may move anywhere.
    pub(crate) owned: &'a [PoolId],
    /// What the device and the limit have left.
    pub(crate) left_bytes: usize,
}

impl Sources<'_> {
    /// At least so large a request policy `native` has to serve, of any stream, when nothing is
    /// used by a stream any more.
    pub(crate) fn native_room_bytes(&self, segments: &[SegmentInfo]) -> usize {
        let of_pool = segments.iter().filter(|segment| self.serving.contains(&segment.pool));
        let pieces = of_pool.flat_map(free_outside_slabs).map(|(_, bytes)| bytes);
        let largest = pieces.max().unwrap_or(0);
        let pages_of = |pool: &PoolId| {
            let movable = segments.iter().filter(|segment| {
                let is_shared = segment.pool == *pool || !self.owned.contains(&segment.pool);
                segment.is_expandable && is_shared
            });
            movable.flat_map(free_outside_slabs).map(whole_pages).sum::<usize>()
        };
        // What helps out puts its own pages together.
        let movable = self.serving.iter().map(pages_of).max().unwrap_or(0);
        largest.max((movable + self.left_bytes / PAGE_BYTES) * PAGE_BYTES)
    }

    /// Specification 2.4: a request fails when no free block of its stream, pool and class is large
    /// enough, everything that is free and whole went back, and the device or the limit has not
    /// enough for its segment.
    pub(crate) fn assert_torch_refuses(&self, segments: &[SegmentInfo], bytes: usize) {
        let (class, segment_bytes) = match bytes.next_multiple_of(512) {
            ..=MIB => (PoolClass::Small, 2 * MIB),
            rounded if rounded < 10 * MIB => (PoolClass::Large, 20 * MIB),
            rounded => (PoolClass::Large, rounded.next_multiple_of(2 * MIB)),
        };
        assert!(self.left_bytes < segment_bytes, "a segment is left for {bytes}");
        for segment in segments {
            let is_searched = segment.stream == self.stream
                && segment.class == class
                && self.serving.contains(&segment.pool);
            for (address, free_bytes) in free_blocks(segment) {
                let is_enough = is_searched && free_bytes >= bytes;
                assert!(!is_enough, "{free_bytes} free bytes at {address:#x} hold {bytes}");
                let is_whole = free_bytes == segment.total_bytes;
                assert!(!is_whole || self.owned.contains(&segment.pool), "{segment:?} is kept");
            }
        }
    }
}

fn free_blocks(segment: &SegmentInfo) -> impl Iterator<Item = (u64, usize)> {
    let is_free = |state| state == BlockState::Inactive;
    let free = segment.blocks.iter().filter(move |block| is_free(block.state));
    free.map(|block| (block.address, block.bytes))
}

/// Free memory without what may be of slabs beside it: small blocks of those stand next to it.
fn free_outside_slabs(segment: &SegmentInfo) -> impl Iterator<Item = (u64, usize)> {
    let blocks = &segment.blocks;
    let slab_bytes = |place: Option<usize>| match place.and_then(|place| blocks.get(place)) {
        Some(block) if block.bytes <= MOST_SMALL_BYTES => MOST_SLAB_BYTES,
        _ => 0,
    };
    let is_free = |place: &usize| blocks[*place].state == BlockState::Inactive;
    (0..blocks.len()).filter(is_free).filter_map(move |place| {
        let (before, behind) = (slab_bytes(place.checked_sub(1)), slab_bytes(Some(place + 1)));
        let bytes = blocks[place].bytes.checked_sub(before + behind)?;
        (bytes > MOST_SLAB_BYTES).then_some((blocks[place].address + before as u64, bytes))
    })
}

fn whole_pages((address, bytes): (u64, usize)) -> usize {
    let page_bytes = PAGE_BYTES as u64;
    let first = address.div_ceil(page_bytes);
    let end = (address + bytes as u64) / page_bytes;
    usize::try_from(end.saturating_sub(first)).unwrap()
}
