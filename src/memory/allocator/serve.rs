//! How the native heaps hand out blocks and take them back.

use crate::memory::allocator::allocated::{Allocated, Handle};
use crate::memory::allocator::block_ref::{BlockRef, BlockSelection, Part};
use crate::memory::allocator::core::{Awaiting, Extent, Native};
use crate::memory::allocator::ids::Kind;
use crate::memory::allocator::pending::{Freed, Pending, UsePoint};
use crate::memory::allocator::plan::{NativePlan, Sizes};
use crate::memory::allocator::request::PoolId;
use crate::memory::allocator::thread_counters::BlockSize;
impl Native {
    /// Marks a piece as handed out.
    #[inline(always)]
    pub(super) fn begin_piece(
        &mut self,
        taken: BlockSelection,
        plan: &NativePlan,
    ) -> (Allocated, BlockSize) {
        let BlockSelection { piece, is_as_planned } = taken;
        let Grant { address, bytes, kind, busy_until, may_keep } = if is_as_planned {
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
        let counted = BlockSize { class, bytes, requested_bytes };
        let handle = Handle::of_mark(mark, self.live.tag());
        let block = Allocated::of_piece(handle, address, bytes, busy_until, plan.owner.stream);
        (if may_keep { block } else { block.unkept() }, counted)
    }

    /// As [`Self::given`], for a piece of the request's own heap and arena.
    #[inline(always)]
    fn given_as_planned(&self, piece: BlockRef, plan: &NativePlan) -> Grant {
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
        let given = Grant { address, bytes: plan.bytes, kind: plan.kind, busy_until, may_keep };
        debug_assert_eq!(given, self.given(piece, plan));
        given
    }

    fn given(&self, piece: BlockRef, plan: &NativePlan) -> Grant {
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
        Grant { address, bytes, kind, busy_until, may_keep }
    }

    /// Frees a piece. Its uses by the heap's own stream are ordered before later tasks there; the
    /// free waits for those by other streams, including the home of the piece.
    #[inline(always)]
    pub(crate) fn free(
        &mut self,
        pending: &mut Pending,
        piece: BlockRef,
        counted: BlockSize,
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
        if !pending.wait_for(others.iter().chain(foreign), Freed::Native(piece)) {
            return self.release(piece.part(), counted.bytes, busy_until);
        }
        let BlockSize { class, bytes, requested_bytes } = counted;
        self.awaiting_sums.leave(class, [1, bytes, requested_bytes]);
        self.awaiting.insert(piece, Awaiting { counted, busy_until });
    }

    /// Frees a piece whose uses are over.
    pub(crate) fn complete_free(&mut self, piece: BlockRef) {
        let Awaiting { counted, busy_until } =
            self.awaiting.remove(&piece).expect("it awaits its free");
        let BlockSize { class, bytes, requested_bytes } = counted;
        self.awaiting_sums.come_back(class, [1, bytes, requested_bytes]);
        self.release(piece.part(), bytes, busy_until);
    }
}

/// What a request gets with its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    address: u64,
    bytes: usize,
    /// The arena.
    kind: Kind,
    /// The last task of the request's stream that uses the memory.
    busy_until: u64,
    /// True when a thread may keep the piece behind its free.
    may_keep: bool,
}
