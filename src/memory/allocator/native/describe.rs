//! The memory of the native policy, as segments and blocks of a snapshot.

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{BlockId, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::heap::Owner;
use crate::memory::allocator::native::piece::Piece;
use crate::memory::allocator::native::slab::SlabId;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};

impl Native {
    /// Returns each contiguous mapped range of an area as a segment. Slabs appear as small blocks.
    pub(crate) fn describe(&self, device_index: usize) -> Vec<SegmentInfo> {
        let describe = |(_, area): (_, &Area)| {
            let Owner { stream, pool } = self.heaps[area.heap].owner;
            let head = SegmentInfo {
                device_index,
                stream,
                class: area.kind.class(),
                pool,
                is_expandable: area.pages.is_some(),
                ..SegmentInfo::default()
            };
            SegmentInfo::parts(&head, &self.mapped_parts(area))
        };
        self.areas.iter().flat_map(describe).collect()
    }

    /// Returns the mapped blocks of an area, in order of address.
    fn mapped_parts(&self, area: &Area) -> Vec<BlockInfo> {
        let mut parts = Vec::new();
        for (id, block) in self.blocks.chain(area.first) {
            match (block.state, block.slab()) {
                (State::Bare, _) => {}
                (State::Free, _) => {
                    let (address, bytes) = (area.address_of(block), area.bytes_of(block.units));
                    parts.push(BlockInfo { address, ..inactive(bytes) });
                }
                (_, Some(slab)) => self.push_slab(slab, area.bytes_of(block.units), &mut parts),
                _ => parts.push(self.describe_piece(Piece::block(id))),
            }
        }
        parts
    }

    /// Adds a slab's small blocks, adjacent free ones as one.
    fn push_slab(&self, id: SlabId, bytes: usize, parts: &mut Vec<BlockInfo>) {
        let (slab, first) = (&self.slabs[id], parts.len());
        for slot in 0..slab.blocks() {
            if slab.free >> slot & 1 == 0 {
                let slot = u8::try_from(slot).expect("below 64");
                parts.push(self.describe_piece(Piece::small(id, slot)));
                continue;
            }
            let address = slab.address + u64::from(slot) * slab.class.bytes() as u64;
            push_joined(BlockInfo { address, ..inactive(slab.class.bytes()) }, first, parts);
        }
        let used_bytes = slab.class.slab_bytes();
        if used_bytes < bytes {
            let address = slab.address + used_bytes as u64;
            push_joined(BlockInfo { address, ..inactive(bytes - used_bytes) }, first, parts);
        }
    }

    /// Describes a piece in use, pending free or cached. A cached piece is inactive.
    fn describe_piece(&self, piece: Piece) -> BlockInfo {
        let extent = self.extent(piece);
        let (address, bytes) = (extent.address, extent.bytes);
        if let Some(freed) = self.awaiting.get(&piece) {
            let state = BlockState::AwaitingFree;
            let requested_bytes = freed.counted.requested_bytes;
            return BlockInfo { address, bytes, requested_bytes, state };
        }
        match self.live.mark(piece).and_then(|mark| mark.requested(bytes)) {
            Some(requested_bytes) => {
                BlockInfo { address, bytes, requested_bytes, state: BlockState::Allocated }
            }
            None => BlockInfo { address, ..inactive(bytes) },
        }
    }

    /// Describes the piece in use at an address.
    pub(crate) fn describe_at(&self, address: u64) -> Option<BlockInfo> {
        let info = self.describe_piece(self.piece_at(address)?);
        (info.state == BlockState::Allocated).then_some(info)
    }

    /// Returns the block at an address, in use or not.
    pub(super) fn block_of(&self, address: u64) -> Option<BlockId> {
        let area = &self.areas[self.areas.containing(address)?];
        Some(area.block_at(address, &self.blocks))
    }
}

fn inactive(bytes: usize) -> BlockInfo {
    BlockInfo { address: 0, bytes, requested_bytes: 0, state: BlockState::Inactive }
}

/// Adds an inactive part; extends the last one from `first` on if that is inactive and adjacent.
fn push_joined(part: BlockInfo, first: usize, parts: &mut Vec<BlockInfo>) {
    match parts[first..].last_mut() {
        Some(last) if last.state == BlockState::Inactive && last.end() == part.address => {
            last.bytes += part.bytes;
        }
        _ => parts.push(part),
    }
}
