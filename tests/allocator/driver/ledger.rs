//! Who has which bytes, and who had them and may still use them: the model of a program's memory.

use std::collections::BTreeMap;
use std::ops::Range;

use accelrt::allocator::PoolId;
use accelrt::allocator::snapshot::{BlockState, SegmentInfo};
use accelrt::{Buffer, Event, Stream};

/// A buffer in use.
#[derive(Debug)]
pub(crate) struct Live {
    /// A view of it, which may begin anywhere inside.
    pub(crate) view: Buffer,
    pub(crate) block: Range<u64>,
    pub(crate) requested_bytes: usize,
    pub(crate) pool: PoolId,
    pub(crate) home: Stream,
    /// Recorded in front of its uses on other streams.
    pub(crate) uses: Vec<Event>,
    /// What every byte of it is.
    pub(crate) mark: u8,
}

/// Memory that was freed while its tasks were queued.
#[derive(Debug)]
pub(crate) struct Freed {
    block: Range<u64>,
    home: Stream,
    /// Recorded on its home stream in front of the free.
    last: Event,
    uses: Vec<Event>,
}

impl Freed {
    /// What `live` becomes when it is freed next.
    pub(crate) fn of(live: &Live) -> Self {
        let last = live.home.record_event().unwrap();
        let (home, uses) = (live.home.clone(), live.uses.clone());
        Self { block: live.block.clone(), home, last, uses }
    }

    /// True when what is enqueued on a stream next is behind everything that used this memory.
    fn is_behind(&self, stream: &Stream) -> bool {
        let is_behind = |event: &Event| event.is_done() || stream.is_ordered_after(event);
        self.uses.iter().all(is_behind) && (self.home == *stream || is_behind(&self.last))
    }
}

/// The model. Buffers of no bytes are not in it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By their first bytes.
    pub(crate) live: BTreeMap<u64, Live>,
    freed: Vec<Freed>,
}

impl Ledger {
    /// Notes a block that was handed out: nobody has any of it, and who had it is not in the way.
    pub(crate) fn take(&mut self, live: Live) {
        let block = &live.block;
        assert!(!self.is_taken(block), "{block:x?} is somebody's");
        for freed in self.freed.iter().filter(|freed| overlap(&freed.block, block)) {
            assert!(freed.is_behind(&live.home), "{block:x?} is still used: {freed:?}");
        }
        self.live.insert(block.start, live);
    }

    /// Takes out what is to be freed, the `place`-th of all.
    pub(crate) fn give_back(&mut self, place: usize) -> Option<Live> {
        let address = *self.live.keys().nth(place)?;
        let live = self.live.remove(&address)?;
        self.freed.push(Freed::of(&live));
        Some(live)
    }

    fn is_taken(&self, block: &Range<u64>) -> bool {
        let before = self.live.range(..block.end).next_back();
        before.is_some_and(|(_, live)| overlap(&live.block, block))
    }

    /// A snapshot that is older than this call has what is still used, and nobody took it.
    pub(crate) fn compare(&mut self, segments: &[SegmentInfo]) {
        for live in self.live.values().filter(|live| live.pool != PoolId::DEFAULT) {
            let segment = holding(segments, &live.block);
            assert_eq!(segment.map(|segment| segment.pool), Some(live.pool), "{live:?}");
        }
        let mut freed = std::mem::take(&mut self.freed);
        freed.retain(|freed| {
            let is_used = !freed.uses.iter().all(Event::is_done);
            let is_used_at_home = !freed.last.is_done();
            if is_used || is_used_at_home {
                let segment = holding(segments, &freed.block);
                assert!(segment.is_some(), "{freed:?} went back to the device");
            }
            if is_used && !self.is_taken(&freed.block) {
                let state = state(segments, &freed.block);
                assert_eq!(state, Some(BlockState::AwaitingFree), "{freed:?}");
            }
            is_used || is_used_at_home
        });
        self.freed = freed;
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn holding<'a>(segments: &'a [SegmentInfo], block: &Range<u64>) -> Option<&'a SegmentInfo> {
    segments.iter().find(|segment| {
        segment.address <= block.start && block.end <= segment.address + segment.total_bytes as u64
    })
}

/// The state of exactly this block.
fn state(segments: &[SegmentInfo], block: &Range<u64>) -> Option<BlockState> {
    let blocks = &holding(segments, block)?.blocks;
    let is_it = |info: &&accelrt::allocator::snapshot::BlockInfo| {
        info.address == block.start && info.address + info.bytes as u64 == block.end
    };
    blocks.iter().find(is_it).map(|info| info.state)
}
