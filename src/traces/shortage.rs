//! The request that a recording ended with when memory ran out.

use crate::memory::allocator::snapshot::{Snapshot, TraceAction, TraceEntry};

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
/// use accelrt::traces::failed_request;
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
mod tests {
    use super::*;
    use crate::memory::allocator::PoolId;
    use crate::memory::allocator::snapshot::{PoolClass, SegmentInfo};

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
