//! The trace of a snapshot as events, and the request that it ended with.

use std::collections::{HashMap, HashSet};

use accelrt::allocator::snapshot::{BlockInfo, SegmentInfo, Snapshot, TraceAction, TraceEntry};

use crate::events::Operation;

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

/// The last request of a recording, which ran out of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The size of the request.
    pub bytes: usize,
    /// What the allocator could have had: what it had reserved then, and what the device had free.
    pub capacity_bytes: usize,
    /// The recording with the request as if it had been served.
    pub served: Snapshot,
}

/// Returns the request that ran out of memory and behind which none was served, if there is one.
///
/// ```
/// use accelrt::allocator::PoolId;
/// use accelrt::allocator::snapshot::{Snapshot, TraceAction, TraceEntry};
/// use accelrt_replay::failed_request;
///
/// let entry = TraceEntry {
///     action: TraceAction::OutOfMemory,
///     address: 1 << 20, // what the device had free
///     bytes: 8 << 20,
///     stream: 0,
///     pool: PoolId::DEFAULT,
/// };
/// let snapshot = Snapshot { segments: Vec::new(), trace: vec![entry] };
/// let failed = failed_request(&snapshot).expect("it is the last entry");
/// assert_eq!((failed.bytes, failed.capacity_bytes), (8 << 20, 1 << 20));
/// ```
#[must_use]
pub fn failed_request(snapshot: &Snapshot) -> Option<FailedRequest> {
    let last = |wanted: TraceAction| {
        snapshot.trace.iter().rposition(|entry: &TraceEntry| entry.action == wanted)
    };
    let place = last(TraceAction::OutOfMemory)?;
    if last(TraceAction::Alloc).is_some_and(|served| served > place) {
        return None;
    }
    let failed = snapshot.trace[place];
    let mut served = snapshot.clone();
    // No block is at the end of the addresses.
    served.trace[place] = TraceEntry { action: TraceAction::Alloc, address: u64::MAX, ..failed };
    let capacity_bytes = reserved_at(snapshot, place).saturating_add(failed.address);
    let capacity_bytes = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
    Some(FailedRequest { bytes: failed.bytes, capacity_bytes, served })
}

/// The bytes of the segments at an entry: those at the end, without what came or went behind it.
fn reserved_at(snapshot: &Snapshot, place: usize) -> u64 {
    let at_end = snapshot.segments.iter().map(|segment| segment.total_bytes as u64);
    let at_end = at_end.fold(0, u64::saturating_add);
    snapshot.trace[place..].iter().fold(at_end, |reserved, entry| match entry.action {
        TraceAction::SegmentAlloc | TraceAction::SegmentMap => {
            reserved.saturating_sub(entry.bytes as u64)
        }
        TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
            reserved.saturating_add(entry.bytes as u64)
        }
        _ => reserved,
    })
}

#[cfg(test)]
mod recorded_tests {
    use accelrt::PoolId;
    use accelrt::allocator::snapshot::{BlockState, PoolClass, TraceEntry};

    use super::*;

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

#[cfg(test)]
mod shortage_tests {
    use accelrt::PoolId;
    use accelrt::allocator::snapshot::{PoolClass, SegmentInfo};

    use super::*;

    #[test]
    fn what_could_be_had_is_what_was_reserved_at_the_error_and_what_was_free() {
        let segment = SegmentInfo {
            device_index: 0,
            address: 0,
            total_bytes: 100,
            allocated_bytes: 0,
            active_bytes: 0,
            requested_bytes: 0,
            stream: 0,
            class: PoolClass::Large,
            pool: PoolId::DEFAULT,
            is_expandable: false,
            blocks: Vec::new(),
        };
        let entry = |action, bytes| TraceEntry {
            action,
            address: 1000,
            bytes,
            stream: 0,
            pool: PoolId::DEFAULT,
        };
        let trace = vec![
            entry(TraceAction::SegmentAlloc, 7),
            entry(TraceAction::OutOfMemory, 5000),
            entry(TraceAction::SegmentAlloc, 10),
            entry(TraceAction::SegmentMap, 20),
            entry(TraceAction::SegmentFree, 3),
            entry(TraceAction::SegmentUnmap, 4),
        ];
        let failed = failed_request(&Snapshot { segments: vec![segment], trace }).unwrap();
        assert_eq!(failed.capacity_bytes, 100 - 10 - 20 + 3 + 4 + 1000);
    }
}
