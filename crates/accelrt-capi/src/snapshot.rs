//! Snapshots: the segments and blocks of a kind's devices at one moment.
#![expect(unsafe_code, reason = "exports functions by name, and writes arrays of the caller")]

use std::mem::MaybeUninit;

use accelrt::PoolId;
use accelrt::allocator::snapshot::{BlockInfo, BlockState, PoolClass, SegmentInfo};

use crate::arguments::{Growing, place, write_all};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::last_error::guard;
use crate::runtime::{kind_of, runtime};
use crate::status::{Outcome, Status};

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
