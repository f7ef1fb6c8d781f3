//! What allocators hold and did: snapshots of memory, and histories.
#![expect(unsafe_code, reason = "exports functions by name, and writes arrays of the caller")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::UNIX_EPOCH;

use accelrt::PoolId;
use accelrt::allocator::snapshot::{BlockInfo, BlockState, PoolClass, SegmentInfo, TraceAction};
use accelrt::internal::fork;
use accelrt_observe::memory_history::{MemoryEvent, MemoryHistory};

use crate::arguments::{Growing, place, write_all};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::runtime::{kind_of, runtime};
use crate::status::{Outcome, Status, guard};

// Snapshots: the segments and blocks of a kind's devices at one moment.

/// The segments and blocks of devices. A handle is a number in a pointer's clothes.
pub struct CSnapshot {
    _private: [u8; 0],
}

static SNAPSHOTS: Slots<Taken> = Slots::new(4, "snapshot", None);

struct Taken {
    segments: Vec<CSegment>,
    blocks: Vec<CBlock>,
}

/// A range of memory that was taken from a device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CSegment {
    /// The size of this struct in bytes.
    pub size: usize,
    /// The device.
    pub device: CDevice,
    /// The first address.
    pub address: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes of blocks that are handed out.
    pub allocated_bytes: u64,
    /// Bytes of these, and of blocks that were freed and are still used by streams.
    pub active_bytes: u64,
    /// The number of the stream that it serves.
    pub stream: u64,
    /// The number of its private pool; 0 for none.
    pub pool: u64,
    /// Where its blocks begin in the array of all blocks.
    pub first_block: u64,
    /// How many blocks it has.
    pub block_count: u64,
    /// 1 for a segment of large requests.
    pub is_large: i32,
    /// 1 when its pages are mapped one by one.
    pub is_expandable: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CSegment {
    const FIRST_VERSION_BYTES: usize = 88;
}

/// A block is free.
pub const BLOCK_INACTIVE: i32 = 0;
/// A block is handed out.
pub const BLOCK_ALLOCATED: i32 = 1;
/// A block was freed, and streams still use it.
pub const BLOCK_AWAITING_FREE: i32 = 2;

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CBlock {
    /// The size of this struct in bytes.
    pub size: usize,
    /// The first address.
    pub address: u64,
    /// The bytes.
    pub bytes: u64,
    /// The bytes that were asked for.
    pub requested_bytes: u64,
    /// `ACCELRT_BLOCK_ALLOCATED`, `ACCELRT_BLOCK_AWAITING_FREE` or `ACCELRT_BLOCK_INACTIVE`.
    pub state: i32,
    /// 0.
    pub reserved: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CBlock {
    const FIRST_VERSION_BYTES: usize = 40;
}

impl Taken {
    fn of(kind: i32) -> Outcome<Self> {
        let mut taken = Self { segments: Vec::new(), blocks: Vec::new() };
        for segment in runtime()?.memory_segments(kind_of(kind)?)? {
            let PoolId(_, pool) = segment.pool;
            let SegmentInfo { device_index, address, total_bytes, allocated_bytes, .. } = segment;
            let index = i32::try_from(device_index).unwrap_or(i32::MAX);
            taken.segments.push(CSegment {
                size: size_of::<CSegment>(),
                device: CDevice { kind: kind_of(kind)?.type_code().into(), index },
                address,
                total_bytes: total_bytes as u64,
                allocated_bytes: allocated_bytes as u64,
                active_bytes: segment.active_bytes as u64,
                stream: segment.stream,
                pool,
                first_block: taken.blocks.len() as u64,
                block_count: segment.blocks.len() as u64,
                is_large: (segment.class == PoolClass::Large).into(),
                is_expandable: segment.is_expandable.into(),
            });
            taken.blocks.extend(segment.blocks.iter().map(CBlock::of));
        }
        Ok(taken)
    }
}

impl CBlock {
    fn of(block: &BlockInfo) -> Self {
        let state = match block.state {
            BlockState::Inactive => BLOCK_INACTIVE,
            BlockState::Allocated => BLOCK_ALLOCATED,
            BlockState::AwaitingFree => BLOCK_AWAITING_FREE,
            state => unreachable!("{state:?} has no constant in C"),
        };
        let (bytes, requested_bytes) = (block.bytes as u64, block.requested_bytes as u64);
        let size = size_of::<Self>();
        Self { size, address: block.address, bytes, requested_bytes, state, reserved: 0 }
    }
}

/// Takes a snapshot of what the allocators of a kind's devices have, without shared and pinned
/// memory. Initialises no device and waits for none.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_snapshot_take(
    kind: i32,
    snapshot: Option<&mut MaybeUninit<*mut CSnapshot>>,
) -> Status {
    guard(|| {
        let to = place(snapshot, "snapshot")?;
        to.write(to_pointer(SNAPSHOTS.insert(Taken::of(kind)?)?));
        Ok(())
    })
}

/// Makes the handle stale.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_snapshot_destroy(snapshot: *mut CSnapshot) -> Status {
    guard(|| SNAPSHOTS.remove(of_pointer(snapshot)).map(drop))
}

/// Writes at most `capacity` segments, by address, into an array whose elements have `each_bytes`
/// bytes, `sizeof(accelrt_segment)`. `count`, unless it is NULL, gets the number of all.
///
/// # Safety
/// `segments` has `capacity` elements of `each_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_snapshot_get_segments(
    snapshot: *mut CSnapshot,
    segments: *mut CSegment,
    each_bytes: usize,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let known = &SNAPSHOTS.get(of_pointer(snapshot))?.segments;
        let fitting = &known[..capacity.min(known.len())];
        // SAFETY: the caller passes as many elements.
        unsafe { write_all(fitting, segments, each_bytes, "segments") }?;
        if let Some(to) = count {
            to.write(known.len());
        }
        Ok(())
    })
}

/// Writes at most `capacity` blocks of all segments, in their order, into an array whose elements
/// have `each_bytes` bytes, `sizeof(accelrt_block)`. `count`, unless it is NULL, gets the number of
/// all.
///
/// # Safety
/// `blocks` has `capacity` elements of `each_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_snapshot_get_blocks(
    snapshot: *mut CSnapshot,
    blocks: *mut CBlock,
    each_bytes: usize,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let known = &SNAPSHOTS.get(of_pointer(snapshot))?.blocks;
        let fitting = &known[..capacity.min(known.len())];
        // SAFETY: the caller passes as many elements.
        unsafe { write_all(fitting, blocks, each_bytes, "blocks") }?;
        if let Some(to) = count {
            to.write(known.len());
        }
        Ok(())
    })
}

// Histories of memory: what the allocators of all devices did, the newest of it.

/// A history of memory. A handle is a number in a pointer's clothes.
pub struct CHistory {
    _private: [u8; 0],
}

static HISTORIES: Slots<MemoryHistory> = Slots::new(5, "history", None);

/// The room for a name in a struct, with its zero.
pub(super) const NAME_BYTES: usize = 64;

/// A block was handed out.
pub const MEMORY_ALLOC: i32 = 0;
/// The program freed a block.
pub const MEMORY_FREE_REQUESTED: i32 = 1;
/// All streams have passed their uses of a freed block.
pub const MEMORY_FREE_COMPLETED: i32 = 2;
/// A segment was taken from the device.
pub const MEMORY_SEGMENT_ALLOC: i32 = 3;
/// A segment was given back.
pub const MEMORY_SEGMENT_FREE: i32 = 4;
/// Pages were mapped.
pub const MEMORY_SEGMENT_MAP: i32 = 5;
/// Pages were unmapped.
pub const MEMORY_SEGMENT_UNMAP: i32 = 6;
/// A snapshot was taken.
pub const MEMORY_SNAPSHOT: i32 = 7;
/// A request failed; the address is the number of bytes that the device had free.
pub const MEMORY_OUT_OF_MEMORY: i32 = 8;

/// What an allocator did.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMemoryEvent {
    /// The size of this struct in bytes.
    pub size: usize,
    /// One of `ACCELRT_MEMORY_ALLOC` to `ACCELRT_MEMORY_OUT_OF_MEMORY`.
    pub action: i32,
    /// 1 for a request for which the device was asked.
    pub is_miss: i32,
    /// The address of the block or the segment.
    pub address: u64,
    /// The bytes that were asked for; of a segment all of it.
    pub bytes: u64,
    /// The bytes of the block.
    pub block_bytes: u64,
    /// The number of the stream.
    pub stream: u64,
    /// The number of the private pool; 0 for none.
    pub pool: u64,
    /// When it was, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The tag of the memory, which ends with a zero and may be cut; empty for none.
    pub tag: [c_char; 64],
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CMemoryEvent {
    const FIRST_VERSION_BYTES: usize = 128;
}

impl CMemoryEvent {
    fn of(MemoryEvent { event, block_bytes, is_miss, tag, time, .. }: &MemoryEvent) -> Self {
        let action = match event.action {
            TraceAction::Alloc => MEMORY_ALLOC,
            TraceAction::FreeRequested => MEMORY_FREE_REQUESTED,
            TraceAction::FreeCompleted => MEMORY_FREE_COMPLETED,
            TraceAction::SegmentAlloc => MEMORY_SEGMENT_ALLOC,
            TraceAction::SegmentFree => MEMORY_SEGMENT_FREE,
            TraceAction::SegmentMap => MEMORY_SEGMENT_MAP,
            TraceAction::SegmentUnmap => MEMORY_SEGMENT_UNMAP,
            TraceAction::Snapshot => MEMORY_SNAPSHOT,
            TraceAction::OutOfMemory => MEMORY_OUT_OF_MEMORY,
            action => unreachable!("{action:?} has no constant in C"),
        };
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let PoolId(_, pool) = event.pool;
        Self {
            size: size_of::<Self>(),
            action,
            is_miss: (*is_miss).into(),
            address: event.address,
            bytes: event.bytes as u64,
            block_bytes: *block_bytes as u64,
            stream: event.stream,
            pool,
            time_ns: i64::try_from(since).unwrap_or(i64::MAX),
            tag: name(tag),
        }
    }
}

/// A text as a field, cut between two letters where it is too long.
pub(super) fn name(text: &str) -> [c_char; NAME_BYTES] {
    let mut count = text.len().min(NAME_BYTES - 1);
    while !text.is_char_boundary(count) {
        count -= 1;
    }
    let mut field = [0; NAME_BYTES];
    for (to, from) in field.iter_mut().zip(&text.as_bytes()[..count]) {
        *to = from.cast_signed();
    }
    field
}

/// Starts a history of what the allocators of all devices do, which keeps the newest `most_events`
/// events of all of them together, 64 bytes each, and at least one. Requests and frees take longer
/// while one is there.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_history_start(
    most_events: usize,
    history: Option<&mut MaybeUninit<*mut CHistory>>,
) -> Status {
    guard(|| {
        let to = place(history, "history")?;
        fork::check()?;
        let started = MemoryHistory::start(runtime()?, most_events);
        to.write(to_pointer(HISTORIES.insert(started)?));
        Ok(())
    })
}

/// Ends the history, and makes the handle stale.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_history_destroy(history: *mut CHistory) -> Status {
    guard(|| HISTORIES.remove(of_pointer(history)).map(drop))
}

/// Forgets the events so far.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_history_clear(history: *mut CHistory) -> Status {
    guard(|| {
        fork::check()?;
        HISTORIES.get(of_pointer(history))?.clear();
        Ok(())
    })
}

/// Writes at most `capacity` of the events of a device, oldest first, into an array whose elements
/// have `each_bytes` bytes, `sizeof(accelrt_memory_event)`; they stay in the history. `count`,
/// unless it is NULL, gets the number of all, and `dropped_count` that of the events of all devices
/// that newer ones have replaced.
///
/// # Safety
/// `events` has `capacity` elements of `each_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_history_get_events(
    history: *mut CHistory,
    device: CDevice,
    events: *mut CMemoryEvent,
    each_bytes: usize,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
    dropped_count: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        fork::check()?;
        let history = HISTORIES.get(of_pointer(history))?;
        let known = history.events(device.device()?);
        let fitting: Vec<_> = known.iter().take(capacity).map(CMemoryEvent::of).collect();
        // SAFETY: the caller passes as many elements.
        unsafe { write_all(&fitting, events, each_bytes, "events") }?;
        if let Some(to) = count {
            to.write(known.len());
        }
        if let Some(to) = dropped_count {
            to.write(history.num_dropped_events());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: the field is a text of C that ends, and has as many whole letters as fit. Method:
        /// texts of letters of one to four bytes, of which many are as long as the field.
        #[test]
        fn name_ends_in_its_field(
            letters in proptest::collection::vec(0..4_usize, 0..80)
        ) {
            let texts = ["a", "\u{e9}", "\u{20ac}", "\u{1f600}"];
            let text: String = letters.into_iter().map(|letter| texts[letter]).collect();
            let field = name(&text);
            let end = field.iter().position(|byte| *byte == 0);
            prop_assert!(end.is_some(), "{:?} has no end", text);
            let end = end.expect("just seen");
            let bytes: Vec<u8> = field[..end].iter().map(|byte| byte.cast_unsigned()).collect();
            let shown = std::str::from_utf8(&bytes);
            prop_assert!(shown.is_ok_and(|shown| text.starts_with(shown)), "{:?}", shown);
            let next = text[end..].chars().next().map_or(0, char::len_utf8);
            prop_assert!(next == 0 || end + next > NAME_BYTES - 1, "{:?}", shown);
        }
    }
}
