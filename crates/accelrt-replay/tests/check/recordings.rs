//! Recordings: made from random programs, rewound to where they began, and reproduced.
//!
//! Goal: what `check` says of PyTorch's recordings it says rightly. Method: an allocator that is
//! warm already runs a random program, whose events and end are written down as PyTorch would; all
//! addresses and layouts must agree. Recordings with one decision changed stand in `snapshots.rs`.

use std::collections::BTreeSet;

use accelrt::allocator::snapshot::{SegmentInfo, Snapshot, TraceAction, TraceEntry};
use accelrt::allocator::{Allocated, PoolId, Request};
use accelrt_replay::{Accounting, Operation, Replay, check, replay, rewind};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Bench, KIB, MIB, torch};

struct Recorder {
    bench: Bench,
    numbers: Numbers,
    live: Vec<(Allocated, usize, u64)>,
    trace: Vec<TraceEntry>,
}

impl Recorder {
    fn step(&mut self) {
        if self.live.len() < 40 && self.numbers.below(2) == 0 {
            let unit = [1, KIB, 64 * KIB, MIB][self.numbers.below(4)];
            let bytes = unit * (1 + self.numbers.below(15));
            let stream = self.numbers.below(2) as u64;
            let block = self.bench.allocator.allocate(Request::new(bytes, stream)).unwrap();
            self.note(TraceAction::Alloc, (block.address(), bytes, stream));
            self.live.push((block, bytes, stream));
        } else if !self.live.is_empty() {
            let place = self.numbers.below(self.live.len());
            self.free(place);
        }
    }

    fn free(&mut self, place: usize) {
        let (block, bytes, stream) = self.live.swap_remove(place);
        let freed = (block.address(), bytes, stream);
        self.bench.allocator.free(block).unwrap();
        self.note(TraceAction::FreeRequested, freed);
        self.note(TraceAction::FreeCompleted, freed);
    }

    fn note(&mut self, action: TraceAction, (address, bytes, stream): (u64, usize, u64)) {
        let pool = PoolId::DEFAULT;
        self.trace.push(TraceEntry { action, address, bytes, stream, pool });
    }
}

/// A recording on a warm allocator that takes nothing from the device meanwhile, and where it
/// began.
fn recording(seed: u64) -> (Snapshot, Snapshot) {
    let (bench, numbers) = (Bench::new(""), Numbers::new(seed));
    let mut recorder = Recorder { bench, numbers, live: Vec::new(), trace: Vec::new() };
    loop {
        (0..300).for_each(|_| recorder.step());
        recorder.trace.clear();
        let start = recorder.bench.allocator.snapshot();
        (0..300).for_each(|_| recorder.step());
        let end = recorder.bench.allocator.snapshot();
        if start.segments.len() == end.segments.len() {
            return (start, Snapshot { trace: recorder.trace, ..end });
        }
    }
}

#[test]
fn what_was_recorded_is_reproduced_from_its_beginning() {
    let seed = seed();
    let recordings = (0..40).map(|run| recording(seed.wrapping_add(run)));
    // A recording does not tell how much more than its request a block had that was freed in it. In
    // a few that is not to be seen from the blocks beside it either.
    let known =
        recordings.filter(|(start, end)| blocks(&rewind(end, &torch()).unwrap()) == blocks(start));
    let mut count = 0;
    for (_, end) in known.take(20) {
        let agreement = check(&end, &torch()).unwrap();
        assert!(agreement.is_whole(), "{agreement:?}");
        assert_eq!(agreement.addresses_agreed, agreement.addresses);
        assert_eq!(agreement.layouts_agreed, end.segments.len());
        assert!(agreement.addresses > 0);
        count += 1;
    }
    assert_eq!(count, 20, "nearly all are known");
}

/// The blocks of a layout: address, size, and whether somebody has it.
fn blocks(snapshot: &Snapshot) -> Vec<(u64, usize, bool)> {
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.address, block.bytes, block.state.is_active())).collect()
}

#[test]
fn a_recording_is_rewound_to_the_same_blocks_in_use() {
    let (start, end) = recording(seed());
    let rewound = rewind(&end, &torch()).unwrap();
    let in_use = |snapshot: &Snapshot| -> Vec<u64> {
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state.is_active()).map(|block| block.address).collect()
    };
    assert_eq!(in_use(&rewound), in_use(&start));
}

/// What the device had at one time and not at another: whole segments, and ranges of whole pages.
fn ranges_but(present: &[SegmentInfo], later: &[SegmentInfo]) -> Vec<(u64, usize, u64)> {
    let pieces = |segments: &[SegmentInfo]| -> BTreeSet<(u64, usize, u64, bool)> {
        let of = |segment: &SegmentInfo| {
            let SegmentInfo { address, total_bytes, stream, is_expandable, .. } = *segment;
            let piece_bytes = if is_expandable { 2 * MIB } else { total_bytes };
            let pieces = (address..address + total_bytes as u64).step_by(piece_bytes);
            pieces.map(|at| (at, piece_bytes, stream, is_expandable)).collect::<Vec<_>>()
        };
        segments.iter().flat_map(of).collect()
    };
    let mut ranges: Vec<(u64, usize, u64)> = Vec::new();
    for &(at, piece_bytes, stream, is_page) in pieces(present).difference(&pieces(later)) {
        match ranges.last_mut().filter(|_| is_page) {
            Some((begin, bytes, of)) if *of == stream && *begin + *bytes as u64 == at => {
                *bytes += piece_bytes;
            }
            _ => ranges.push((at, piece_bytes, stream)),
        }
    }
    ranges
}

/// A recording in which the cache is emptied, of programs that need no more segments afterwards.
fn recording_with_an_emptied_cache(settings: &str, action: TraceAction, seed: u64) -> Snapshot {
    let (bench, numbers) = (Bench::new(settings), Numbers::new(seed));
    let mut recorder = Recorder { bench, numbers, live: Vec::new(), trace: Vec::new() };
    (0..300).for_each(|_| recorder.step());
    loop {
        while recorder.live.len() < 8 {
            recorder.step();
        }
        // The newest go first, so that there is something to give back, and something is left.
        for _ in 0..recorder.live.len() / 2 {
            recorder.free(recorder.live.len() - 1);
        }
        recorder.trace.clear();
        let start = recorder.bench.allocator.snapshot().segments;
        recorder.free(recorder.live.len() / 2);
        recorder.bench.empty_cache();
        let emptied = recorder.bench.allocator.snapshot().segments;
        for range in ranges_but(&start, &emptied) {
            recorder.note(action, range);
        }
        let before = recorder.trace.len();
        (0..12).for_each(|_| recorder.step());
        let end = recorder.bench.allocator.snapshot();
        let is_more = recorder.trace[before..].iter().any(|it| it.action == TraceAction::Alloc);
        if !ranges_but(&start, &emptied).is_empty()
            && is_more
            && ranges_but(&end.segments, &emptied).is_empty()
        {
            return Snapshot { trace: recorder.trace, ..end };
        }
        (0..100).for_each(|_| recorder.step());
    }
}

#[test]
fn memory_that_goes_back_while_it_is_recorded_is_followed() {
    // Method: the device is one of numbers, whose segments and pages are found by comparing what it
    // had. Where pages go back a request may choose by the addresses behind a block that have no
    // page, and these no recording tells, so that some differ; none agrees where nothing goes back.
    let seed = seed();
    let cases = [
        ("", TraceAction::SegmentFree, 25),
        ("expandable_segments:True", TraceAction::SegmentUnmap, 10),
    ];
    for (settings, action, least) in cases {
        let config = format!("policy:torch,{settings}").parse().unwrap();
        let mut agreed = 0;
        for run in 0..30 {
            let end = recording_with_an_emptied_cache(settings, action, seed.wrapping_add(run));
            let gone = end.trace.iter().filter(|entry| entry.action == action).count();
            let agreement = check(&end, &config).unwrap();
            assert!(gone > 0 && agreement.addresses > 0, "{settings}");
            agreed += usize::from(agreement.is_whole());
        }
        assert!(agreed >= least, "{settings}: {agreed} of 30");
    }
}

#[test]
fn a_segment_that_is_said_to_go_back_while_it_is_in_use_is_told() {
    let (_, mut end) = recording(13);
    let segment = end.segments.iter().find(|segment| segment.active_bytes > 0).unwrap().clone();
    let (address, bytes, stream) = (segment.address, segment.total_bytes, segment.stream);
    let pool = PoolId::DEFAULT;
    let entry = |action, bytes| TraceEntry { action, address, bytes, stream, pool };
    end.trace.push(entry(TraceAction::SegmentFree, bytes));
    let error = check(&end, &torch()).unwrap_err();
    assert!(error.to_string().contains("addresses without a segment"), "{error}");
    // The segment is gone at the end, and a part of it was in use when it went.
    end.segments.retain(|segment| segment.address != address);
    end.trace.clear();
    end.trace.push(entry(TraceAction::Alloc, 512));
    end.trace.push(entry(TraceAction::SegmentFree, bytes));
    assert!(check(&end, &torch()).is_err(), "what was in use is nowhere at the end");
}

#[test]
fn one_address_that_differs_is_told() {
    let (_, mut end) = recording(7);
    let place = end.trace.iter().position(|entry| entry.action == TraceAction::Alloc).unwrap();
    let wrong = end.trace[place].address;
    // The block's whole life is elsewhere: the same recording, with one decision changed.
    end.segments.iter_mut().for_each(|segment| segment.stream += 10);
    let agreement = check(&end, &torch()).unwrap();
    assert!(!agreement.is_whole());
    assert_eq!(agreement.addresses_agreed, 0, "no request finds a block of its stream");
    assert!(agreement.first_difference.unwrap().contains(&format!("{wrong:#x}")));
}

#[test]
fn a_recording_that_contradicts_itself_is_refused() {
    let (_, end) = recording(9);
    let entry = |action| {
        let pool = PoolId::DEFAULT;
        TraceEntry { action, address: 4096, bytes: 512, stream: 0, pool }
    };
    for action in [TraceAction::Alloc, TraceAction::FreeCompleted, TraceAction::SegmentMap] {
        let mut broken = end.clone();
        broken.trace.push(entry(action));
        let error = check(&broken, &torch()).unwrap_err();
        assert!(error.to_string().contains("0x1000"), "{error}");
    }
    let mut gap = end;
    gap.trace.clear();
    gap.segments[0].blocks[0].bytes += 512;
    let error = check(&gap, &torch()).unwrap_err();
    assert!(error.to_string().contains("tile"), "{error}");
}

#[test]
fn a_restored_allocator_goes_on_where_the_snapshot_was_taken() {
    let (_, end) = recording(11);
    let bench = Bench::new("");
    let in_use = bench.allocator.restore(&end).unwrap();
    bench.allocator.check_all();
    assert_eq!(bench.allocator.snapshot().segments, end.segments);
    for block in in_use {
        bench.free(block);
    }
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

#[test]
fn a_snapshot_that_is_larger_than_the_device_is_not_loaded() {
    let (_, end) = recording(13);
    let bench = Bench::of_capacity("", 8 * MIB);
    bench.allocator.restore(&end).unwrap_err();
    assert!(bench.allocator.snapshot().segments.is_empty());
}

fn accounting(capacity_bytes: usize) -> Accounting {
    let config = torch();
    Accounting { config, capacity_bytes, granularity_bytes: 2 * MIB }
}

#[test]
fn a_replay_tells_peaks_and_page_operations() {
    let allocate = |id, bytes| Operation::Allocate { id, bytes, stream: 0 };
    let events = [
        allocate(1, 12 * MIB),
        Operation::Free { id: 1 },
        allocate(1, 3 * MIB),
        allocate(2, 30 * MIB),
        Operation::Free { id: 2 },
    ];
    let allocator = accounting(1024 * MIB).allocator().unwrap();
    let figures = replay(&allocator, &events).unwrap();
    assert_eq!((figures.events, figures.failed_at), (5, None));
    assert_eq!((figures.peak_live_bytes, figures.peak_reserved_bytes), (33 * MIB, 42 * MIB));
    assert_eq!(figures.page_operations, 21);
    let again = replay(&allocator, &events).unwrap();
    assert_eq!(again.page_operations, 0, "everything was there already");
}

#[test]
fn a_replay_lacks_what_a_reset_forgets_meanwhile() {
    // Goal: a reset by others is no reason to fail. Method: one that forgets more than is counted
    // from then on.
    let take = |id| [Operation::Allocate { id, bytes: 30 * MIB, stream: 0 }];
    let allocator = accounting(1024 * MIB).allocator().unwrap();
    replay(&allocator, &take(0)).unwrap();
    let mut second = Replay::new(&allocator);
    allocator.reset_accumulated_statistics();
    second.run(&take(1)).unwrap();
    assert_eq!(second.finish().page_operations, 0);
}

#[test]
fn a_replay_tells_which_request_failed() {
    let events = [
        Operation::Allocate { id: 1, bytes: 12 * MIB, stream: 0 },
        Operation::Allocate { id: 2, bytes: 12 * MIB, stream: 0 },
        Operation::Free { id: 1 },
    ];
    let figures = replay(&accounting(20 * MIB).allocator().unwrap(), &events).unwrap();
    assert_eq!((figures.failed_at, figures.events), (Some(1), 1));
    assert_eq!(figures.peak_live_bytes, 12 * MIB);
}

#[test]
fn events_that_contradict_themselves_are_refused() {
    let allocator = accounting(20 * MIB).allocator().unwrap();
    let twice = [Operation::Allocate { id: 3, bytes: 1, stream: 0 }; 2];
    let error = replay(&allocator, &twice).unwrap_err().to_string();
    assert!(error.contains("Event 1 names block 3"), "{error}");
    let error = replay(&allocator, &[Operation::Free { id: 3 }]).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}
