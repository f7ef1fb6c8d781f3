//! Events of a history, played as memory that changes hands.

use std::collections::BTreeMap;

use accelrt::allocator::snapshot::{BlockState, SegmentInfo, TraceAction};

use super::MemoryEvent;

/// What the events of one device leave, from its first use on.
#[derive(Debug, Default)]
pub(super) struct PlayedEvents {
    /// The memory from the device, begin and end.
    mapped: BTreeMap<u64, u64>,
    /// The blocks by address: their end, and whether their free was requested.
    blocks: BTreeMap<u64, (u64, bool)>,
}

impl PlayedEvents {
    /// Plays events, and panics where one contradicts those before.
    pub(super) fn of(events: &[MemoryEvent], hint: &str) -> Self {
        let mut played = Self::default();
        for event in events {
            played.play(event, hint);
        }
        played
    }

    fn play(&mut self, MemoryEvent { event, block_bytes, .. }: &MemoryEvent, hint: &str) {
        let Self { mapped, blocks } = self;
        let (begin, end) = (event.address, event.address + *block_bytes as u64);
        match event.action {
            TraceAction::SegmentAlloc | TraceAction::SegmentMap => {
                let before = mapped.range(..end).next_back();
                assert!(before.is_none_or(|(_, its)| *its <= begin), "{hint}: twice {event:?}");
                mapped.insert(begin, end);
            }
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => unmap(mapped, begin, end),
            TraceAction::Alloc => {
                let before = blocks.range(..end).next_back();
                let is_vacant = before.is_none_or(|(_, (its, _))| *its <= begin);
                assert!(is_vacant, "{hint}: {event:?} over {before:x?}");
                assert!(covers(mapped, begin, end), "{hint}: no memory for {event:?}");
                blocks.insert(begin, (end, false));
            }
            TraceAction::FreeRequested => {
                let known = blocks.get_mut(&begin).unwrap_or_else(|| panic!("{hint}: {event:?}"));
                assert_eq!(*known, (end, false), "{hint}: {event:?}");
                known.1 = true;
            }
            TraceAction::FreeCompleted => {
                assert_eq!(blocks.remove(&begin), Some((end, true)), "{hint}: {event:?}");
            }
            _ => {} // no memory changes
        }
    }

    /// Panics unless the segments of a snapshot have exactly the blocks and the memory left.
    pub(super) fn check_ends_in(&self, segments: &[SegmentInfo], hint: &str) {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let active = blocks.filter(|block| block.state.is_active());
        let expected: Vec<_> = active
            .map(|block| {
                let end = block.address + block.bytes as u64;
                (block.address, (end, block.state == BlockState::AwaitingFree))
            })
            .collect();
        let left: Vec<_> = self.blocks.iter().map(|(begin, block)| (*begin, *block)).collect();
        assert_eq!(left, expected, "{hint}: the blocks in use");
        let reserved: u64 = self.mapped.iter().map(|(begin, end)| end - begin).sum();
        let sum: usize = segments.iter().map(|segment| segment.total_bytes).sum();
        assert_eq!(reserved, sum as u64, "{hint}: the memory from the device");
        for SegmentInfo { address, total_bytes, .. } in segments {
            let end = address + *total_bytes as u64;
            assert!(covers(&self.mapped, *address, end), "{hint}: segment at {address:#x}");
        }
    }
}

fn covers(mapped: &BTreeMap<u64, u64>, mut begin: u64, end: u64) -> bool {
    while begin < end {
        match mapped.range(..=begin).next_back() {
            Some((_, its_end)) if *its_end > begin => begin = *its_end,
            _ => return false,
        }
    }
    true
}

fn unmap(mapped: &mut BTreeMap<u64, u64>, begin: u64, end: u64) {
    assert!(covers(mapped, begin, end), "{begin:#x}..{end:#x} is there");
    let inside: Vec<_> = mapped.range(..end).rev().take_while(|(_, its)| **its > begin).collect();
    let inside: Vec<(u64, u64)> = inside.into_iter().map(|(a, b)| (*a, *b)).collect();
    for (its_begin, its_end) in inside {
        mapped.remove(&its_begin);
        if its_begin < begin {
            mapped.insert(its_begin, begin);
        }
        if end < its_end {
            mapped.insert(end, its_end);
        }
    }
}
