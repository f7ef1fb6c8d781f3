//! Rewinds a recording: undoes its events, the latest first, to the layout in which it began.
//!
//! Undoing a request frees and merges its block; undoing a free splits the block off again. Its
//! size is the request's, rounded, plus the rest that was too small to be split off. How large that
//! rest was shows at the next block behind, which may be split off only later.

use std::collections::BTreeMap;

use accelrt::allocator::AllocatorConfig;
use accelrt::allocator::snapshot::{
    BlockInfo, BlockState, PoolClass, SegmentInfo, Snapshot, TraceAction, TraceEntry,
};
use accelrt::internal::{TorchSizes, check_tiling};
use accelrt::size::to_usize;
use accelrt::{Error, MemoryError, Result};

/// Returns the layout, without a trace, before the first event of a trace recorded under `config`.
///
/// Fails when the trace does not lead to the snapshot's segments.
pub fn rewind(snapshot: &Snapshot, config: &AllocatorConfig) -> Result<Snapshot> {
    check_tiling(snapshot)?;
    let mut layout = Layout::of(snapshot);
    for entry in snapshot.trace.iter().rev() {
        match entry.action {
            TraceAction::Alloc => layout.undo_request(entry)?,
            TraceAction::FreeCompleted => layout.undo_free(entry, config)?,
            TraceAction::SegmentAlloc => layout.undo_segment(entry)?,
            TraceAction::SegmentFree => layout.undo_release(entry, config, false)?,
            TraceAction::SegmentUnmap => layout.undo_release(entry, config, true)?,
            TraceAction::SegmentMap => {
                return Err(contradiction(entry, "a recording without segments that grow"));
            }
            // The others change no block.
            _ => {}
        }
    }
    Ok(layout.into_snapshot())
}

fn contradiction(entry: &TraceEntry, expected: &'static str) -> Error {
    Error::Memory(MemoryError::InvalidSnapshot { address: entry.address, expected })
}

/// Segments by address, with their blocks by address.
struct Layout(BTreeMap<u64, (SegmentInfo, BTreeMap<u64, BlockInfo>)>);

impl Layout {
    fn of(snapshot: &Snapshot) -> Self {
        let blocks = |segment: &SegmentInfo| {
            segment.blocks.iter().map(|block| (block.address, *block)).collect()
        };
        let segments = snapshot.segments.iter();
        Self(segments.map(|info| (info.address, (info.clone(), blocks(info)))).collect())
    }

    fn segment(
        &mut self,
        entry: &TraceEntry,
    ) -> Result<(&SegmentInfo, &mut BTreeMap<u64, BlockInfo>)> {
        let found = self.0.range_mut(..=entry.address).next_back().map(|(_, segment)| segment);
        let end = |info: &SegmentInfo| info.address + info.total_bytes as u64;
        let inside = found.filter(|(info, _)| entry.address < end(info));
        let (info, blocks) = inside.ok_or_else(|| contradiction(entry, "a segment"))?;
        Ok((info, blocks))
    }

    fn undo_request(&mut self, entry: &TraceEntry) -> Result<()> {
        let (_, blocks) = self.segment(entry)?;
        let block = blocks.remove(&entry.address).filter(|block| block.state.is_active());
        let block = block.ok_or_else(|| contradiction(entry, "a block in use"))?;
        insert_free(blocks, block.address, block.bytes);
        Ok(())
    }

    fn undo_free(&mut self, entry: &TraceEntry, config: &AllocatorConfig) -> Result<()> {
        let sizes = TorchSizes::new(config);
        let (info, blocks) = self.segment(entry)?;
        let class = info.class;
        let (_, free) = blocks.range(..=entry.address).next_back().expect("blocks tile");
        let (begin, end) = (free.address, free.address + free.bytes as u64);
        let room_bytes = to_usize(end - entry.address);
        let is_granule = entry.address.is_multiple_of(TorchSizes::LEAST_BLOCK_BYTES as u64);
        let is_room = !free.state.is_active() && is_granule && entry.bytes <= room_bytes;
        let bytes = is_room.then(|| sizes.round(entry.bytes)).filter(|bytes| *bytes <= room_bytes);
        let Some(bytes) = bytes else { return Err(contradiction(entry, "free memory")) };
        blocks.remove(&begin);
        let before_bytes = to_usize(entry.address - begin);
        if before_bytes > 0 {
            let left = blocks.range_mut(..begin).next_back().map(|(_, left)| left);
            match left.filter(|left| left.state.is_active()) {
                Some(left) => {
                    let left_bytes = sizes.round(left.requested_bytes);
                    if sizes.splits(class, left_bytes + before_bytes, left_bytes) {
                        insert_free(blocks, begin, before_bytes);
                    } else {
                        left.bytes += before_bytes;
                    }
                }
                None => insert_free(blocks, begin, before_bytes),
            }
        }
        let is_split = sizes.splits(class, room_bytes, bytes);
        let bytes = if is_split { bytes } else { room_bytes };
        let (address, requested_bytes, state) = (entry.address, entry.bytes, BlockState::Allocated);
        blocks.insert(address, BlockInfo { address, bytes, requested_bytes, state });
        if bytes < room_bytes {
            insert_free(blocks, address + bytes as u64, room_bytes - bytes);
        }
        Ok(())
    }

    fn undo_segment(&mut self, entry: &TraceEntry) -> Result<()> {
        let is_free = |blocks: &BTreeMap<u64, BlockInfo>| {
            blocks.values().all(|block| !block.state.is_active())
        };
        let removed = self.0.remove(&entry.address);
        let is_right = removed
            .is_some_and(|(info, blocks)| info.total_bytes == entry.bytes && is_free(&blocks));
        if is_right { Ok(()) } else { Err(contradiction(entry, "a free segment")) }
    }

    /// Restores released memory as free; pages merge with the mapped ranges beside them.
    fn undo_release(
        &mut self,
        entry: &TraceEntry,
        config: &AllocatorConfig,
        is_expandable: bool,
    ) -> Result<()> {
        let expected = || contradiction(entry, "addresses without a segment");
        let begin = entry.address;
        let end = begin.checked_add(entry.bytes as u64).filter(|end| *end > begin);
        let end = end.ok_or_else(expected)?;
        let end_of = |info: &SegmentInfo| info.address + info.total_bytes as u64;
        let infos = || self.0.values().map(|(info, _)| info);
        if infos().any(|info| info.address < end && begin < end_of(info)) {
            return Err(expected());
        }
        let is_beside = |info: &&SegmentInfo| {
            let is_of_owner = (info.stream, info.pool) == (entry.stream, entry.pool);
            let touches = end_of(info) == begin || info.address == end;
            is_expandable && info.is_expandable && is_of_owner && touches
        };
        let beside: Vec<u64> = infos().filter(is_beside).map(|info| info.address).collect();
        let mut info = SegmentInfo {
            device_index: infos().next().map_or(0, |info| info.device_index),
            address: begin,
            total_bytes: entry.bytes,
            stream: entry.stream,
            class: class_of(entry.bytes, config, is_expandable),
            pool: entry.pool,
            is_expandable,
            ..SegmentInfo::default()
        };
        let mut blocks = BTreeMap::new();
        for address in beside {
            let (other, theirs) = self.0.remove(&address).expect("just seen");
            info.address = info.address.min(address);
            info.total_bytes += other.total_bytes;
            info.class = other.class;
            blocks.extend(theirs);
        }
        insert_free(&mut blocks, begin, entry.bytes);
        self.0.insert(info.address, (info, blocks));
        Ok(())
    }

    fn into_snapshot(self) -> Snapshot {
        let segments = self.0.into_values().map(|(mut info, blocks)| {
            info.blocks = blocks.into_values().collect();
            info.sum_up();
            info
        });
        Snapshot { segments: segments.collect(), trace: Vec::new() }
    }
}

/// Returns the class of a range without neighbours, by its size: a trace does not have it.
fn class_of(bytes: usize, config: &AllocatorConfig, is_expandable: bool) -> PoolClass {
    let sizes = TorchSizes::new(config);
    let is_large = if is_expandable {
        bytes.is_multiple_of(sizes.page_bytes(PoolClass::Large))
    } else {
        bytes > sizes.segment_bytes(1)
    };
    if is_large { PoolClass::Large } else { PoolClass::Small }
}

/// Inserts a free block, merged with its free neighbours.
fn insert_free(blocks: &mut BTreeMap<u64, BlockInfo>, address: u64, bytes: usize) {
    let (mut begin, mut end) = (address, address + bytes as u64);
    let beside = |block: Option<(&u64, &BlockInfo)>| {
        block.filter(|(_, block)| !block.state.is_active()).map(|(_, block)| *block)
    };
    if let Some(next) = beside(blocks.range(end..).next()) {
        end += next.bytes as u64;
        blocks.remove(&next.address);
    }
    if let Some(previous) = beside(blocks.range(..begin).next_back()) {
        begin = previous.address;
    }
    let bytes = to_usize(end - begin);
    let free = BlockInfo { address: begin, bytes, requested_bytes: 0, state: BlockState::Inactive };
    blocks.insert(begin, free);
}
