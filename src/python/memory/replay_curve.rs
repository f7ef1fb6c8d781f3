//! The course of a replay: the peaks of live and reserved bytes in each stretch of its events.

use std::collections::HashMap;

use crate::base::error::{Error, MemoryError, Result};
use crate::memory::allocator::replay::Operation;
use crate::memory::allocator::{Allocated, CachingAllocator, Request};

/// The peaks of equally long stretches of events; the last one may be shorter.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Course {
    /// The number of events up to the end of each stretch.
    pub(crate) events: Vec<usize>,
    /// The peak of requested bytes in use, in each.
    pub(crate) allocated_bytes: Vec<u64>,
    /// The peak of bytes reserved from the device, in each.
    pub(crate) reserved_bytes: Vec<u64>,
    /// The index of the event whose request ran out of memory.
    pub(crate) failed_at: Option<usize>,
}

/// Replays events on an allocator of which nothing is in use, up to the end or to a request that
/// runs out of memory, and frees what is in use then. There are at most `points` stretches.
///
/// Fails when the device fails otherwise. A free of a number that is not in use is skipped.
pub(crate) fn course(
    allocator: &CachingAllocator,
    operations: &[Operation],
    points: usize,
) -> Result<Course> {
    let stretch = operations.len().div_ceil(points.max(1)).max(1);
    let mut live: HashMap<u64, (Allocated, u64)> = HashMap::new();
    let (mut course, mut outcome) = (Course::default(), Ok(()));
    let (mut bytes_now, mut most_bytes, mut most_reserved) = (0, 0, 0);
    for (index, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::Allocate { id, bytes, stream } => {
                match allocator.allocate(Request::new(bytes, stream)) {
                    Ok(block) => {
                        bytes_now += bytes as u64;
                        live.insert(id, (block, bytes as u64));
                    }
                    Err(refusal) => {
                        outcome = Err(refusal);
                        course.failed_at = Some(index);
                    }
                }
            }
            Operation::Free { id } => {
                if let Some((block, bytes)) = live.remove(&id) {
                    bytes_now -= bytes;
                    free(allocator, block);
                }
            }
        }
        most_bytes = most_bytes.max(bytes_now);
        most_reserved = most_reserved.max(allocator.statistics().reserved_bytes.all.current);
        let is_last = index + 1 == operations.len() || course.failed_at.is_some();
        if (index + 1) % stretch == 0 || is_last {
            course.events.push(index + 1);
            course.allocated_bytes.push(std::mem::take(&mut most_bytes));
            course.reserved_bytes.push(std::mem::take(&mut most_reserved));
        }
        if course.failed_at.is_some() {
            break;
        }
    }
    for (block, _) in live.into_values() {
        free(allocator, block);
    }
    match outcome {
        Ok(()) | Err(Error::Memory(MemoryError::OutOfMemory { .. })) => Ok(course),
        Err(refusal) => Err(refusal),
    }
}

fn free(allocator: &CachingAllocator, block: Allocated) {
    allocator.free(block).expect("it was asked of this allocator");
}
