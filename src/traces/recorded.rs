//! The requests of a snapshot's trace, as events to replay from an empty allocator.

use std::collections::{HashMap, HashSet};

use crate::memory::allocator::replay::Operation;
use crate::memory::allocator::snapshot::{BlockInfo, SegmentInfo, Snapshot, TraceAction};

/// An event before ids and streams are numbered.
struct Event {
    is_allocation: bool,
    key: usize,
    bytes: usize,
    stream: u64,
}

/// Returns the requests and frees of a trace, behind requests for blocks that were live before it:
/// first those live at the end, by segment, then those freed in the trace, the last freed first.
///
/// A free counts where it completed. Ids and streams are numbered from 0, in order of appearance.
#[must_use]
pub fn operations(snapshot: &Snapshot) -> Vec<Operation> {
    let mut live: HashMap<u64, usize> = HashMap::new();
    let (mut freed_only, mut events) = (Vec::new(), Vec::new());
    for (key, entry) in snapshot.trace.iter().enumerate() {
        let (bytes, stream) = (entry.bytes, entry.stream);
        match entry.action {
            TraceAction::Alloc => {
                live.insert(entry.address, key);
                events.push(Event { is_allocation: true, key, bytes, stream });
            }
            TraceAction::FreeCompleted => {
                let key = live.remove(&entry.address).unwrap_or_else(|| {
                    freed_only.push(Event { is_allocation: true, key, bytes, stream });
                    key
                });
                events.push(Event { is_allocation: false, key, bytes, stream });
            }
            _ => {}
        }
    }
    let traced = live.into_keys().collect();
    let at_end = untraced(&snapshot.segments, &traced);
    let first_key = snapshot.trace.len();
    let at_end = at_end.enumerate().map(|(index, (segment, block))| Event {
        is_allocation: true,
        key: first_key + index,
        bytes: block.requested_bytes,
        stream: segment.stream,
    });
    numbered(at_end.chain(freed_only.into_iter().rev()).chain(events))
}

fn untraced<'a>(
    segments: &'a [SegmentInfo],
    traced: &HashSet<u64>,
) -> impl Iterator<Item = (&'a SegmentInfo, &'a BlockInfo)> {
    let blocks =
        segments.iter().flat_map(|segment| segment.blocks.iter().map(move |b| (segment, b)));
    blocks.filter(|(_, block)| block.state.is_active() && !traced.contains(&block.address))
}

fn numbered(events: impl Iterator<Item = Event>) -> Vec<Operation> {
    let (mut ids, mut streams) = (HashMap::new(), HashMap::new());
    let mut number = |event: Event| {
        let (id_count, stream_count) = (ids.len() as u64, streams.len() as u64);
        let id = *ids.entry(event.key).or_insert(id_count);
        let stream = *streams.entry(event.stream).or_insert(stream_count);
        if event.is_allocation {
            Operation::Allocate { id, bytes: event.bytes, stream }
        } else {
            Operation::Free { id }
        }
    };
    events.map(&mut number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::PoolId;
    use crate::memory::allocator::snapshot::{BlockState, PoolClass, TraceEntry};

    fn segment(stream: u64, blocks: &[(u64, usize, BlockState)]) -> SegmentInfo {
        let blocks = blocks.iter().map(|&(address, requested_bytes, state)| BlockInfo {
            address,
            bytes: 512,
            requested_bytes,
            state,
        });
        SegmentInfo {
            device_index: 0,
            address: 0,
            total_bytes: 2 << 20,
            allocated_bytes: 0,
            active_bytes: 0,
            requested_bytes: 0,
            stream,
            class: PoolClass::Small,
            pool: PoolId::DEFAULT,
            is_expandable: false,
            blocks: blocks.collect(),
        }
    }

    fn entry(action: TraceAction, address: u64, bytes: usize, stream: u64) -> TraceEntry {
        TraceEntry { action, address, bytes, stream, pool: PoolId::DEFAULT }
    }

    #[test]
    fn what_was_live_before_stands_in_front_and_a_free_counts_where_it_completed() {
        use TraceAction::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc};
        let snapshot = Snapshot {
            segments: vec![segment(
                7,
                &[
                    (0x100, 10, BlockState::Allocated),
                    (0x200, 99, BlockState::Inactive),
                    (0x300, 30, BlockState::AwaitingFree),
                    (0x600, 60, BlockState::Allocated), // handed out inside of the trace
                ],
            )],
            trace: vec![
                entry(Alloc, 0x400, 40, 7),
                entry(FreeCompleted, 0x500, 50, 9),
                entry(SegmentAlloc, 0x700, 2 << 20, 7),
                entry(FreeRequested, 0x400, 40, 7),
                entry(FreeCompleted, 0x800, 80, 7),
                entry(Alloc, 0x600, 60, 7),
                entry(FreeCompleted, 0x400, 40, 7),
            ],
        };
        let allocate = |id, bytes, stream| Operation::Allocate { id, bytes, stream };
        let expected = [
            allocate(0, 10, 0),
            allocate(1, 30, 0),
            allocate(2, 80, 0),
            allocate(3, 50, 1),
            allocate(4, 40, 0),
            Operation::Free { id: 3 },
            Operation::Free { id: 2 },
            allocate(5, 60, 0),
            Operation::Free { id: 4 },
        ];
        assert_eq!(operations(&snapshot), expected);
    }

    #[test]
    fn an_address_that_is_handed_out_twice_has_two_lives() {
        let snapshot = Snapshot {
            segments: Vec::new(),
            trace: vec![
                entry(TraceAction::Alloc, 0x100, 1, 0),
                entry(TraceAction::FreeCompleted, 0x100, 1, 0),
                entry(TraceAction::Alloc, 0x100, 2, 0),
            ],
        };
        let expected = [
            Operation::Allocate { id: 0, bytes: 1, stream: 0 },
            Operation::Free { id: 0 },
            Operation::Allocate { id: 1, bytes: 2, stream: 0 },
        ];
        assert_eq!(operations(&snapshot), expected);
    }
}
