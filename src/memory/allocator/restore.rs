//! Snapshot and restore: the state of an allocator as data, and back.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use crate::backend::contract::Address;
use crate::base::error::{DriverError, Error, MemoryError, Result};
use crate::base::fork;
use crate::base::size::round_up;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::expandable::map_pages;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::pending::ALL;
use crate::memory::allocator::policy::LEAST_BLOCK_BYTES;
use crate::memory::allocator::snapshot::{BlockInfo, SegmentInfo, Snapshot};
use crate::memory::allocator::source::Part;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::torch::Torch;
use crate::memory::allocator::torch_blocks::{Owner, Pages, Segment};

impl CachingAllocator {
    /// Returns the segments, without a trace. Empties thread caches first, and completes the frees
    /// that streams have passed.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.describe();
        snapshot.segments.iter_mut().for_each(SegmentInfo::join_free);
        snapshot
    }

    /// As [`Self::snapshot`], with free neighbours as they are counted: small blocks of a slab are
    /// free apart from what is beside the slab.
    pub(super) fn describe(&self) -> Snapshot {
        if fork::is_child() {
            return Snapshot::default();
        }
        self.caches.empty();
        self.poll_waited_for(ALL);
        let mut state = self.state.lock();
        state.complete_some_if_free(ALL);
        Snapshot { segments: self.describe_locked(&state), trace: Vec::new() }
    }

    pub(super) fn describe_locked(&self, state: &AllocatorState) -> Vec<SegmentInfo> {
        let device_index = self.source.device.index();
        let mut segments = state.torch.describe(device_index);
        segments.extend(state.native.describe(device_index));
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// Loads a snapshot's segments into an allocator without any, at the snapshot's addresses.
    /// Returns the active blocks by address, with those that awaited their free. Ignores the trace;
    /// private pools get no users.
    ///
    /// Fails, without an effect, on kinds with real memory, whose addresses no caller can choose,
    /// for a snapshot that contradicts itself, and on too small a device.
    ///
    /// # Panics
    /// When the allocator has segments.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<Vec<Allocated>> {
        if self.source.backend.has_host_addresses() {
            let kind = self.source.device.kind();
            return Err(Error::Driver(DriverError::Unsupported {
                kind,
                capability: "memory at chosen addresses",
            }));
        }
        check_tiling(snapshot)?;
        let drop_all = |taken: Vec<Memory>| {
            for memory in taken {
                self.drop_memory(memory);
            }
        };
        let mut taken = Vec::with_capacity(snapshot.segments.len());
        for segment in &snapshot.segments {
            match self.take_memory(segment) {
                Ok(memory) => taken.push(memory),
                Err(refusal) => {
                    drop_all(taken);
                    return Err(refusal);
                }
            }
        }
        let mut state = self.state.lock();
        if !state.torch.is_empty() || !state.native.describe(0).is_empty() {
            drop(state); // another thread may have added one meanwhile
            drop_all(taken);
            panic!("a snapshot is restored into an empty allocator");
        }
        let AllocatorState { torch, ledger, .. } = &mut *state;
        torch.has_chosen_addresses = true;
        let mut in_use = BTreeMap::new();
        for (segment, memory) in snapshot.segments.iter().zip(taken) {
            let blocks = torch.restore_segment(ledger, segment, memory).into_iter();
            in_use.extend(blocks.map(|block| (block.address(), block)));
        }
        Ok(in_use.into_values().collect())
    }

    /// Gives an address to the next segment of this size, unless the address is taken by then.
    #[doc(hidden)]
    pub fn announce_segment(&self, address: u64, bytes: usize) {
        self.state.lock().torch.announced.push((address, bytes));
    }

    /// Asks the device for addresses that no segment has, where some were chosen: what it gives
    /// that a segment has goes back once it gave others.
    pub(super) fn ask_apart(
        &self,
        ask: impl Fn() -> Result<(Address, usize)>,
        part: impl Fn(Address, usize) -> Part,
    ) -> Result<(Address, usize)> {
        if self.source.backend.has_host_addresses() {
            return ask(); // no snapshot is restored there
        }
        let mut aside = Vec::new();
        let given = loop {
            let given = ask();
            match &given {
                Ok((base, bytes)) if self.state.lock().torch.has_chosen(*base, *bytes) => {
                    aside.push(part(*base, *bytes));
                }
                _ => break given,
            }
        };
        for part in aside {
            self.source.give_back(part).unwrap_or_else(|panic| resume_unwind(panic));
        }
        given
    }

    fn take_memory(&self, segment: &SegmentInfo) -> Result<Memory> {
        let bytes = segment.total_bytes;
        let memory = self.source.virtual_memory().filter(|_| segment.is_expandable);
        let Some(memory) = memory else {
            let base = self.source.allocate(bytes, 1)?;
            return Ok(Memory { base, bytes, pages: None });
        };
        let page_bytes = self.state.lock().ledger.policy().page_bytes(segment.class);
        let granularity_bytes = memory.granularity_bytes();
        let is_fitting = |page_bytes: &usize| bytes.is_multiple_of(*page_bytes);
        let sizes = [round_up(page_bytes, granularity_bytes), Some(granularity_bytes)];
        let Some(page_bytes) = sizes.into_iter().flatten().find(is_fitting) else {
            return Err(contradiction(segment.address, "an expandable segment of whole pages"));
        };
        let base = memory.reserve(bytes)?;
        let mapped = map_pages(memory, base, page_bytes, bytes / page_bytes);
        if let Ok(Ok(handles)) = mapped {
            let mut pages = Pages::new(page_bytes);
            pages.put(0, handles);
            return Ok(Memory { base, bytes, pages: Some(pages) });
        }
        self.drop_memory(Memory { base, bytes, pages: Some(Pages::new(page_bytes)) });
        Err(mapped.map_or_else(|panic| resume_unwind(panic), Result::unwrap_err))
    }

    /// Gives back the memory of a failed restore. What the device refuses stays with it.
    fn drop_memory(&self, memory: Memory) {
        let Memory { base, bytes, pages } = memory;
        let outcome = match pages {
            None => self.source.give_back(Part::Segment(base, bytes)),
            Some(pages) => {
                let gone = self.source.give_back(Part::Pages(pages.handles().collect()));
                gone.and(self.source.give_back(Part::Addresses(base, bytes)))
            }
        };
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Alignment of the addresses that the allocator itself chooses.
const CHOSEN_ALIGN_BYTES: u64 = 2 << 20;

struct Memory {
    base: Address,
    bytes: usize,
    pages: Option<Pages>,
}

fn contradiction(address: u64, expected: &'static str) -> Error {
    Error::Memory(MemoryError::InvalidSnapshot { address, expected })
}

/// Checks that segments do not overlap, and that blocks tile them: in multiples of 512 bytes, with
/// free neighbours merged, and each block in use as large as its request.
pub fn check_tiling(snapshot: &Snapshot) -> Result<()> {
    let mut segments: Vec<&SegmentInfo> = snapshot.segments.iter().collect();
    segments.sort_by_key(|segment| segment.address);
    let mut end = 0;
    for segment in segments {
        if segment.address < end {
            return Err(contradiction(segment.address, "segments that do not overlap"));
        }
        end = check_blocks(segment)?;
    }
    Ok(())
}

/// Checks the blocks of a segment. Returns its end.
fn check_blocks(segment: &SegmentInfo) -> Result<u64> {
    let is_granule = |number: u64| number.is_multiple_of(LEAST_BLOCK_BYTES as u64);
    let (mut at, mut is_behind_free) = (segment.address, false);
    for block in &segment.blocks {
        let refused = |expected| Err(contradiction(block.address, expected));
        if block.address != at || block.bytes == 0 {
            return refused("blocks that tile their segment");
        }
        if !is_granule(block.address) || !is_granule(block.bytes as u64) {
            return refused("addresses and sizes that are multiples of 512");
        }
        let is_active = block.state.is_active();
        if is_active && block.requested_bytes > block.bytes {
            return refused("a block that is as large as its request");
        }
        if is_behind_free && !is_active {
            return refused("free neighbours that are one block");
        }
        let Some(next) = at.checked_add(block.bytes as u64) else {
            return refused("a block that ends");
        };
        (at, is_behind_free) = (next, !is_active);
    }
    let end = segment.address.checked_add(segment.total_bytes as u64);
    if segment.blocks.is_empty() || end != Some(at) {
        return Err(contradiction(segment.address, "blocks that tile their segment"));
    }
    Ok(at)
}

impl Torch {
    /// Describes each segment, or each contiguous mapped range of an expandable one.
    fn describe(&self, device_index: usize) -> Vec<SegmentInfo> {
        let describe = |(_, segment): (_, &Segment)| {
            let Owner { stream, class, pool } = segment.owner;
            let is_expandable = segment.is_expandable();
            let head = SegmentInfo {
                device_index,
                stream,
                class,
                pool,
                is_expandable,
                ..Default::default()
            };
            let blocks = self.blocks.chain(segment.first).map(|(_, block)| block);
            let mapped = blocks.filter(|block| segment.has_memory_at(block.address));
            SegmentInfo::parts(&head, &mapped.map(BlockInfo::from).collect::<Vec<_>>())
        };
        self.segments.iter().flat_map(describe).collect()
    }

    /// Returns the address of a new range: the one announced for its size, else the device's, else,
    /// where a segment has that already, one behind all segments.
    pub(super) fn address_for(&mut self, base: Address, bytes: usize) -> u64 {
        let place = self.announced.iter().position(|(_, announced)| *announced == bytes);
        let announced = place.map(|place| self.announced.remove(place).0);
        if let Some(address) = announced.filter(|address| !self.is_taken(*address, bytes)) {
            self.has_chosen_addresses = true;
            return address;
        }
        if !self.has_chosen_addresses || !self.is_taken(base.0, bytes) {
            return base.0;
        }
        let ends = self.segments.iter().map(|(_, segment)| segment.address + segment.bytes as u64);
        ends.max().unwrap_or(base.0).next_multiple_of(CHOSEN_ALIGN_BYTES)
    }

    /// True when a segment has some of these addresses, which were chosen for it.
    fn has_chosen(&self, begin: Address, bytes: usize) -> bool {
        self.has_chosen_addresses && self.is_taken(begin.0, bytes)
    }

    fn is_taken(&self, begin: u64, bytes: usize) -> bool {
        self.segments.iter().any(|(_, segment)| {
            let end = segment.address + segment.bytes as u64;
            segment.address < begin + bytes as u64 && begin < end
        })
    }

    /// Adds a segment with a snapshot's blocks. Returns those in use.
    fn restore_segment(
        &mut self,
        ledger: &mut Ledger,
        segment: &SegmentInfo,
        memory: Memory,
    ) -> Vec<Allocated> {
        let SegmentInfo { address, total_bytes, stream, class, pool, .. } = *segment;
        let owner = Owner { stream, class, pool };
        let is_plain = memory.pages.is_none();
        ledger.limits.take_anyway(total_bytes);
        if is_plain {
            ledger.note_segment(class, total_bytes, &Ok(()));
        } else {
            ledger.note_answer(class, total_bytes, total_bytes);
        }
        let Memory { base, pages, .. } = memory;
        let mut rest = self.add_segment(ledger, address, base, total_bytes, owner, pages);
        let mut in_use = Vec::new();
        for block in &segment.blocks {
            let id = if block.bytes < self.blocks[rest].bytes {
                self.split_head(rest, block.bytes)
            } else {
                rest
            };
            rest = self.blocks[id].next.unwrap_or(id);
            self.blocks[id].requested_bytes = block.requested_bytes;
            if block.state.is_active() {
                in_use.push(self.note_allocated(ledger, id));
            } else {
                self.put_in(id);
                if is_plain && self.blocks[id].is_split() {
                    ledger.statistics.change_inactive_split(class, 1, block.bytes.cast_signed());
                }
            }
        }
        in_use
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, mpsc};

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::base::device::{Device, DeviceKind};
    use crate::base::size::MIB;
    use crate::fault::{FaultBackend, Method};
    use crate::memory::allocator::Request;
    use crate::memory::allocator::snapshot::BlockState;
    use crate::null::{NullBackend, NullConfig};

    const GRANULE: usize = LEAST_BLOCK_BYTES;

    /// Segments that are tiled, also such that touch. Of each the granules between it and the one
    /// before, and its blocks: granules, whether in use, and the unrequested bytes.
    fn snapshots() -> impl Strategy<Value = Snapshot> {
        let spare = prop_oneof![Just(0), Just(1), 0..GRANULE];
        let blocks = prop::collection::vec((1_usize..4, any::<bool>(), spare), 1..5);
        prop::collection::vec((0_usize..3, blocks), 1..4).prop_map(|parts| {
            let mut at = 0;
            let segments = parts.into_iter().map(|(gap, blocks)| {
                at += (gap * GRANULE) as u64;
                let mut segment = SegmentInfo { address: at, ..Default::default() };
                for (granules, is_active, spare) in blocks {
                    let before = segment.blocks.last().map(|block: &BlockInfo| block.state);
                    let is_active = is_active || before == Some(BlockState::Inactive);
                    let state =
                        if is_active { BlockState::Allocated } else { BlockState::Inactive };
                    let bytes = granules * GRANULE;
                    let requested_bytes = bytes - spare;
                    segment.blocks.push(BlockInfo { address: at, bytes, requested_bytes, state });
                    at += bytes as u64;
                }
                segment.sum_up();
                segment
            });
            Snapshot { segments: segments.collect(), trace: Vec::new() }
        })
    }

    /// Changes a segment at one of its blocks. Returns the address that the error names and what is
    /// expected there; `None` where the change needs another block.
    type Damage = fn(&mut SegmentInfo, usize) -> Option<(u64, &'static str)>;

    const TILES: &str = "blocks that tile their segment";
    const GRANULES: &str = "addresses and sizes that are multiples of 512";

    const DAMAGES: [Damage; 9] = [
        |segment, number| {
            segment.blocks[number].address += GRANULE as u64;
            Some((segment.blocks[number].address, TILES))
        },
        |segment, number| {
            segment.blocks[number].bytes = 0;
            Some((segment.blocks[number].address, TILES))
        },
        |segment, number| {
            segment.blocks[number].bytes += GRANULE / 2;
            Some((segment.blocks[number].address, GRANULES))
        },
        |segment, number| {
            let block = &mut segment.blocks[number];
            block.requested_bytes = block.bytes + 1;
            let is_active = block.state.is_active();
            is_active.then_some((block.address, "a block that is as large as its request"))
        },
        |segment, number| {
            let block = segment.blocks[number];
            let first = BlockInfo { bytes: GRANULE, ..block };
            let address = block.address + GRANULE as u64;
            let second = BlockInfo { address, bytes: block.bytes - GRANULE, ..block };
            segment.blocks.splice(number..=number, [first, second]);
            let is_free = !block.state.is_active() && second.bytes > 0;
            is_free.then_some((address, "free neighbours that are one block"))
        },
        |segment, _| {
            segment.total_bytes += GRANULE;
            Some((segment.address, TILES))
        },
        |segment, _| {
            segment.total_bytes -= GRANULE;
            Some((segment.address, TILES))
        },
        |segment, number| {
            segment.blocks.remove(number);
            let behind = segment.blocks.get(number).map(|block| block.address);
            Some((behind.unwrap_or(segment.address), TILES))
        },
        |segment, _| {
            segment.blocks.clear();
            segment.total_bytes = 0;
            Some((segment.address, TILES))
        },
    ];

    fn torch_allocator() -> CachingAllocator {
        let null = NullBackend::new(NullConfig::default());
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        CachingAllocator::new(null, device, "policy:torch".parse().unwrap()).unwrap()
    }

    /// The address and the expectation of a restore's error, which must change nothing.
    fn refused(snapshot: &Snapshot) -> Option<(u64, &'static str)> {
        let allocator = torch_allocator();
        let Err(error) = allocator.restore(snapshot) else { return None };
        assert!(allocator.snapshot().segments.is_empty(), "{error}");
        match error {
            Error::Memory(MemoryError::InvalidSnapshot { address, expected }) => {
                Some((address, expected))
            }
            other => panic!("{other}"),
        }
    }

    proptest! {
        #[test]
        fn restore_loads_what_is_tiled(snapshot in snapshots()) {
            let allocator = torch_allocator();
            let blocks = allocator.restore(&snapshot).unwrap();
            let restored = allocator.snapshot();
            prop_assert_eq!(&restored.segments.len(), &snapshot.segments.len());
            let mut active = Vec::new();
            for (restored, recorded) in restored.segments.iter().zip(&snapshot.segments) {
                prop_assert_eq!(&restored.blocks, &recorded.blocks);
                let blocks = recorded.blocks.iter().filter(|block| block.state.is_active());
                active.extend(blocks.map(|block| block.address));
            }
            prop_assert_eq!(blocks.iter().map(Allocated::address).collect::<Vec<_>>(), active);
            for block in blocks {
                allocator.free(block).unwrap();
            }
        }

        #[test]
        fn restore_refuses_each_contradiction(
            snapshot in snapshots(),
            place in any::<Index>(),
            block in any::<Index>(),
        ) {
            let place = place.index(snapshot.segments.len());
            let block = block.index(snapshot.segments[place].blocks.len());
            for damage in DAMAGES {
                let mut damaged = snapshot.clone();
                let expected = damage(&mut damaged.segments[place], block);
                prop_assert!(expected.is_none() || refused(&damaged) == expected, "{damaged:?}");
            }
        }

        #[test]
        fn restore_refuses_overlaps(snapshot in snapshots(), behind in any::<Index>()) {
            let mut snapshot = snapshot;
            let moved = behind.index(snapshot.segments.len());
            let mut copy = snapshot.segments[moved].clone();
            let last = copy.blocks.last().unwrap();
            // The last granule of a segment is the first one of the copy.
            let by = last.end() - copy.address - GRANULE as u64;
            copy.address += by;
            copy.blocks.iter_mut().for_each(|block| block.address += by);
            snapshot.segments.truncate(moved + 1);
            let expected = (copy.address, "segments that do not overlap");
            snapshot.segments.insert(0, copy);
            prop_assert_eq!(refused(&snapshot), Some(expected));
        }
    }

    #[test]
    fn restore_refuses_end_of_addresses() {
        let address = u64::MAX - (GRANULE as u64 - 1);
        let (bytes, state) = (GRANULE, BlockState::Allocated);
        let block = BlockInfo { address, bytes, requested_bytes: bytes, state };
        let mut segment = SegmentInfo { address, blocks: vec![block], ..Default::default() };
        segment.sum_up();
        let snapshot = Snapshot { segments: vec![segment], trace: Vec::new() };
        assert_eq!(refused(&snapshot), Some((address, "a block that ends")));
    }

    #[test]
    fn a_restore_that_another_thread_was_faster_than_changes_nothing() {
        // Goal: no two segments share an address. Method: another request during the device's call
        // for a restored segment.
        let faults = FaultBackend::new(NullBackend::new(NullConfig::default()));
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let new = || {
            let backend = Arc::<FaultBackend>::clone(&faults);
            let settings = "policy:torch".parse().unwrap();
            Arc::new(CachingAllocator::new(backend, device, settings).unwrap())
        };
        let (recorded, restored) = (new(), new());
        let block = recorded.allocate(Request::new(20 * MIB, 0)).unwrap();
        let snapshot = recorded.snapshot();
        recorded.free(block).unwrap();
        recorded.empty_cache(); // the device returns its addresses again
        let (theirs, (tell, told)) = (Arc::clone(&restored), mpsc::channel());
        faults.plan_callback(Method::Allocate, 1, move || {
            tell.send(theirs.allocate(Request::new(20 * MIB, 0)).unwrap()).unwrap();
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| restored.restore(&snapshot)));
        assert!(outcome.is_err(), "it is not empty any more");
        restored.check_all();
        restored.free(told.recv().unwrap()).unwrap();
        restored.empty_cache();
        assert_eq!(restored.statistics().reserved_bytes.all.current, 0);
    }

    #[test]
    fn a_segment_has_its_announced_address_also_right_behind_another_one() {
        // Goal: a recording whose segments touch gets its addresses again. Method: two addresses
        // that the device would not choose.
        let null = NullBackend::new(NullConfig::default());
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let settings = "policy:torch".parse().unwrap();
        let allocator = CachingAllocator::new(null, device, settings).unwrap();
        let bytes = 20 * MIB;
        let addresses = [0, 1].map(|number| (1 << 50) + number * bytes as u64);
        let blocks = addresses.map(|address| {
            allocator.announce_segment(address, bytes);
            allocator.allocate(Request::new(bytes, 0)).unwrap()
        });
        assert_eq!(blocks.each_ref().map(Allocated::address), addresses);
        for block in blocks {
            allocator.free(block).unwrap();
        }
        allocator.check_all();
    }
}
