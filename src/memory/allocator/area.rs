//! Areas: ranges of addresses that blocks tile, and the search for the block at an address.

use std::ops::{Range, RangeInclusive};

use crate::backend::contract::Address;
use crate::base::size::to_usize;
use crate::base::table::Table;
use crate::memory::allocator::block::{Block, Blocks};
use crate::memory::allocator::ids::{AreaId, AreaKey, BlockId, HeapId, Kind};
use crate::memory::allocator::pages::Pages;
#[derive(Debug)]
pub(super) struct Area {
    pub(super) base: Address,
    pub(super) bytes: usize,
    pub(super) unit_bytes: usize,
    /// Exponents of two. A segment counts as one page.
    unit_shift: u32,
    page_shift: u32,
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    /// The block at the lowest address.
    pub(super) first: BlockId,
    /// `None` for a segment, which is always mapped.
    pub(super) pages: Option<Pages>,
    /// For each stretch of addresses the last block that was cut off there; it may be removed by
    /// now, and the one that it joined is not noted.
    begins: Vec<Option<BlockId>>,
}

/// The bytes of one stretch.
const STRETCH_BYTES: usize = 1 << 21;
/// The room of the first stretches.
const FIRST_STRETCHES: usize = 64;

impl Area {
    pub(super) fn new(range: AreaRange, heap: HeapId, kind: Kind, first: BlockId) -> Self {
        let AreaRange { base, bytes, unit_bytes, page_bytes } = range;
        let pages = page_bytes.map(Pages::new);
        let mut begins = Vec::with_capacity(FIRST_STRETCHES);
        begins.push(Some(first));
        let unit_shift = unit_bytes.ilog2();
        let page_shift = page_bytes.map_or(usize::BITS - 1, usize::ilog2);
        debug_assert_eq!(unit_bytes, 1 << unit_shift, "a power of two");
        Self { base, bytes, unit_bytes, unit_shift, page_shift, heap, kind, first, pages, begins }
    }

    pub(super) fn address_of(&self, block: &Block) -> u64 {
        self.base.0 + ((block.offset as usize) << self.unit_shift) as u64
    }

    pub(super) fn bytes_of(&self, units: u32) -> usize {
        (units as usize) << self.unit_shift
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        address >= self.base.0 && address - self.base.0 < self.bytes as u64
    }

    /// Returns the pages that a block touches.
    pub(super) fn pages_of(&self, offset: u32, units: u32) -> Range<usize> {
        let begin_bytes = self.bytes_of(offset);
        let last_byte = begin_bytes + self.bytes_of(units) - 1;
        begin_bytes >> self.page_shift..(last_byte >> self.page_shift) + 1
    }

    /// Returns the first and the last aligned offset in a free range where `units` fit.
    #[inline]
    pub(super) fn offsets(
        &self,
        free: &Range<u32>,
        units: u32,
        align_bytes: usize,
    ) -> Option<RangeInclusive<u32>> {
        let last = free.end.checked_sub(units).filter(|last| *last >= free.start)?;
        // The base decides for all units alike.
        if self.base.0 & (align_bytes.min(self.unit_bytes) as u64 - 1) != 0 {
            return None;
        }
        if align_bytes <= self.unit_bytes {
            return Some(free.start..=last);
        }
        let align_bytes = align_bytes as u64; // a power of two
        let address = |offset: u32| self.base.0 + self.bytes_of(offset) as u64;
        let last = address(last) & !(align_bytes - 1);
        let first = address(free.start).checked_next_multiple_of(align_bytes)?;
        let offset = |address: u64| u32::try_from((address - self.base.0) >> self.unit_shift).ok();
        if first <= last { Some(offset(first)?..=offset(last)?) } else { None }
    }

    fn stretch_of(&self, offset: u32) -> usize {
        self.bytes_of(offset) / STRETCH_BYTES
    }

    #[inline(always)]
    pub(super) fn note_begin(&mut self, id: BlockId, offset: u32) {
        let stretch = self.stretch_of(offset);
        match self.begins.get_mut(stretch) {
            Some(begin) => *begin = Some(id),
            None => self.note_first_begin(id, stretch),
        }
    }

    #[cold]
    fn note_first_begin(&mut self, id: BlockId, stretch: usize) {
        self.begins.resize(stretch + 1, None);
        self.begins[stretch] = Some(id);
    }

    /// Returns the block at an address of this area.
    pub(super) fn block_at(&self, address: u64, blocks: &Blocks) -> BlockId {
        let offset = to_usize(address - self.base.0) >> self.unit_shift;
        let stretch = ((offset << self.unit_shift) / STRETCH_BYTES).min(self.begins.len() - 1);
        // `begins` may name removed blocks, whose places may be reused, also by other areas.
        let area = blocks[self.first].area;
        let is_before = |id: &BlockId| {
            let block = &blocks[*id];
            block.units > 0 && block.area == area && block.offset as usize <= offset
        };
        let mut begins = self.begins[..=stretch].iter().rev().flatten();
        let begin = begins.find(|id| is_before(id)).unwrap_or(&self.first);
        let found = blocks.chain(*begin).find(|(_, block)| block.end() as usize > offset);
        found.expect("blocks tile their area").0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AreaRange {
    pub(super) base: Address,
    pub(super) bytes: usize,
    pub(super) unit_bytes: usize,
    /// `None` for a segment.
    pub(super) page_bytes: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Areas {
    table: Table<Area, AreaKey>,
    /// By base address.
    by_address: std::collections::BTreeMap<u64, AreaId>,
}

impl Areas {
    pub(super) fn next_id(&self) -> AreaId {
        AreaId::of(self.table.next_id())
    }

    pub(super) fn insert(&mut self, area: Area) -> AreaId {
        let address = area.base.0;
        let id = AreaId::of(self.table.insert(area));
        self.by_address.insert(address, id);
        id
    }

    pub(super) fn remove(&mut self, id: AreaId) -> Area {
        let area = self.table.remove(id.id());
        self.by_address.remove(&area.base.0);
        area
    }

    pub(super) fn get(&self, id: AreaId) -> Option<&Area> {
        self.table.get(id.id())
    }

    pub(super) fn containing(&self, address: u64) -> Option<AreaId> {
        let (_, id) = self.by_address.range(..=address).next_back()?;
        self[*id].contains(address).then_some(*id)
    }

    /// Returns the areas in order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (AreaId, &Area)> {
        self.by_address.values().map(|id| (*id, &self[*id]))
    }
}

impl std::ops::Index<AreaId> for Areas {
    type Output = Area;

    fn index(&self, id: AreaId) -> &Area {
        &self.table[id.id()]
    }
}

impl std::ops::IndexMut<AreaId> for Areas {
    fn index_mut(&mut self, id: AreaId) -> &mut Area {
        &mut self.table[id.id()]
    }
}
