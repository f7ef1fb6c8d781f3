//! Checks whether an allocator takes the recorded decisions: every address, and the last segments.

use std::collections::{BTreeSet, HashMap};

use accelrt::allocator::snapshot::{BlockInfo, SegmentInfo, Snapshot, TraceAction, TraceEntry};
use accelrt::allocator::{
    Allocated, AllocatorConfig, CachingAllocator, PoolId, PoolOptions, Request,
};
use accelrt::size::{GIB, MIB};
use accelrt::{Error, MemoryError, Result};

use crate::replay::{Accounting, free};
use crate::rewind::rewind;

/// Capacity of the device for checks, because a recording has none.
const CAPACITY_BYTES: usize = 1024 * GIB;

/// The part of a recording that was reproduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreement {
    /// Requests that got the recorded address.
    pub addresses_agreed: usize,
    /// Requests in the recording.
    pub addresses: usize,
    /// Segments whose blocks at the end are the recorded ones.
    pub layouts_agreed: usize,
    /// Segments at the end of the recording.
    pub layouts: usize,
    /// The first difference.
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

/// Rewinds a recording, restores the layout in which it began, replays its trace by the decisions
/// of `config`, and compares every address and the last segments. New segments get the recorded
/// addresses, which are the device's choice. Releases happen where the recording has them, because
/// it does not say what caused them; the memory has to be free then.
///
/// Fails when the recording contradicts itself.
pub fn check(snapshot: &Snapshot, config: &AllocatorConfig) -> Result<Agreement> {
    let (config, granularity_bytes) = (config.clone(), 2 * MIB);
    let start = rewind(snapshot, &config)?;
    let accounting = Accounting { config, capacity_bytes: CAPACITY_BYTES, granularity_bytes };
    let allocator = accounting.allocator()?;
    let restored = allocator.restore(&start)?;
    let pools: BTreeSet<PoolId> = snapshot.trace.iter().map(|entry| entry.pool).collect();
    for pool in pools.into_iter().filter(|pool| *pool != PoolId::DEFAULT) {
        allocator.retain_pool(pool, PoolOptions::default());
    }
    let live = restored.into_iter().map(|block| (block.address(), block)).collect();
    let mut replay = Replay { allocator, live, agreement: Agreement::default() };
    for (index, entry) in snapshot.trace.iter().enumerate() {
        replay.step(index, entry)?;
    }
    let Replay { allocator, live, mut agreement } = replay;
    compare_layouts(&snapshot.segments, &allocator.snapshot().segments, &mut agreement);
    if agreement.addresses == 0 {
        agreement.note(|| "no request was recorded".to_owned());
    }
    allocator.check_all();
    for block in live.into_values() {
        free(&allocator, block);
    }
    Ok(agreement)
}

struct Replay {
    allocator: CachingAllocator,
    /// The blocks in use, by the recorded addresses.
    live: HashMap<u64, Allocated>,
    agreement: Agreement,
}

impl Replay {
    fn step(&mut self, index: usize, entry: &TraceEntry) -> Result<()> {
        let TraceEntry { action, address, bytes, stream, pool } = *entry;
        match action {
            TraceAction::SegmentAlloc => self.allocator.announce_segment(address, bytes),
            TraceAction::Alloc => {
                let request = Request::new(bytes, stream).from_pool(pool);
                let block = self.allocator.allocate(request)?;
                let found = block.address();
                self.agreement.addresses += 1;
                self.agreement.addresses_agreed += usize::from(found == address);
                if found != address {
                    self.agreement.note(|| {
                        format!(
                            "event {index}: {bytes} bytes at {found:#x} instead of {address:#x}"
                        )
                    });
                }
                self.live.insert(address, block);
            }
            TraceAction::FreeCompleted => {
                let expected = "a block in use";
                let freed = self.live.remove(&address);
                let freed = freed
                    .ok_or(Error::Memory(MemoryError::InvalidSnapshot { address, expected }))?;
                free(&self.allocator, freed);
            }
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
                let went_back = self.allocator.release_recorded(address, bytes);
                if !went_back {
                    self.agreement.note(|| {
                        format!("event {index}: {bytes} bytes at {address:#x} did not go back")
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }
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

/// True when both segments have the same range, owner and blocks, and the same blocks are in use.
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
