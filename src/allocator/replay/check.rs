//! Whether an allocator takes the decisions that were recorded: every address, every last segment.

use std::collections::HashMap;

use crate::allocator::books::Request;
use crate::allocator::caching::Allocated;
use crate::allocator::config::AllocatorConfig;
use crate::allocator::replay::engine::Accounting;
use crate::allocator::replay::rewind::rewind;
use crate::allocator::snapshot::{BlockInfo, SegmentInfo, Snapshot, TraceAction, TraceEntry};
use crate::error::{Error, Result};
use crate::size::{GIB, MIB};

/// Capacity of the device that recordings are checked on: theirs is not recorded.
const CAPACITY_BYTES: usize = 1024 * GIB;

/// How much of a recording was reproduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Requests that got the recorded address.
    pub addresses_agreed: usize,
    /// Requests.
    pub addresses: usize,
    /// Segments that have the recorded blocks at the end.
    pub layouts_agreed: usize,
    /// Segments at the end of the recording.
    pub layouts: usize,
    /// What differed first.
    pub first_difference: Option<String>,
}

impl Agreement {
    /// True when everything was reproduced.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.first_difference.is_none()
    }

    fn note(&mut self, difference: impl FnOnce() -> String) {
        self.first_difference.get_or_insert_with(difference);
    }
}

/// Rewinds a recording, loads the layout that it began with, replays its trace by the decisions of
/// `config` and compares every address and the segments at the end.
///
/// Fails when the recording contradicts itself.
pub fn check(snapshot: &Snapshot, config: &AllocatorConfig) -> Result<Agreement> {
    let (config, granularity_bytes) = (config.clone(), 2 * MIB);
    let start = rewind(snapshot, &config)?;
    let accounting = Accounting { config, capacity_bytes: CAPACITY_BYTES, granularity_bytes };
    let allocator = accounting.allocator()?;
    let restored = allocator.restore(&start)?;
    let mut live: HashMap<u64, Allocated> =
        restored.into_iter().map(|block| (block.address(), block)).collect();
    let mut agreement = Agreement::default();
    for (index, entry) in snapshot.trace.iter().enumerate() {
        let TraceEntry { action, address, bytes, stream } = *entry;
        if action == TraceAction::Alloc {
            let block = allocator.allocate(Request::new(bytes, stream))?;
            agreement.addresses += 1;
            if block.address() == address {
                agreement.addresses_agreed += 1;
            } else {
                let found = block.address();
                agreement.note(|| {
                    format!("event {index}: {bytes} bytes at {found:#x} instead of {address:#x}")
                });
            }
            live.insert(address, block);
        } else if action == TraceAction::FreeCompleted {
            let freed = live.remove(&address);
            let expected = "a block in use";
            allocator.free(freed.ok_or(Error::InvalidSnapshot { address, expected })?);
        }
    }
    let found = allocator.snapshot();
    compare_layouts(&snapshot.segments, &found.segments, &mut agreement);
    allocator.check_all();
    for block in live.into_values() {
        allocator.free(block);
    }
    Ok(agreement)
}

fn compare_layouts(recorded: &[SegmentInfo], found: &[SegmentInfo], agreement: &mut Agreement) {
    let found: HashMap<u64, &SegmentInfo> =
        found.iter().map(|segment| (segment.address, segment)).collect();
    agreement.layouts = recorded.len();
    for segment in recorded {
        if found.get(&segment.address).is_some_and(|found| is_same_layout(segment, found)) {
            agreement.layouts_agreed += 1;
        } else {
            let address = segment.address;
            agreement.note(|| format!("the segment at {address:#x} has other blocks"));
        }
    }
    if found.len() > recorded.len() {
        let (found, recorded) = (found.len(), recorded.len());
        agreement.note(|| format!("{found} segments instead of {recorded}"));
    }
}

/// The same range for the same requests, cut into the same blocks, in use or not.
fn is_same_layout(a: &SegmentInfo, b: &SegmentInfo) -> bool {
    let is_same_segment = (a.total_bytes, a.stream, a.class, a.pool, a.is_expandable)
        == (b.total_bytes, b.stream, b.class, b.pool, b.is_expandable);
    let is_same_block = |(a, b): (&BlockInfo, &BlockInfo)| {
        (a.address, a.bytes, a.state.is_active()) == (b.address, b.bytes, b.state.is_active())
    };
    is_same_segment
        && a.blocks.len() == b.blocks.len()
        && a.blocks.iter().zip(&b.blocks).all(is_same_block)
}
