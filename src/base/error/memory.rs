//! Memory: exhausted capacity, released buffers, invalid ranges.

use super::out_of_memory;
use crate::base::device::Device;
use crate::base::shortage::Shortage;
use crate::base::size::display_bytes;

/// A refused request for memory, use of a buffer, or description of memory.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The device, or its limit, has too little free memory.
    #[error(
        "{}",
        out_of_memory::message(
            *device, *requested_bytes, (*free_bytes, *total_bytes), cache.as_deref()
        )
    )]
    OutOfMemory {
        /// The device of the request.
        device: Device,
        /// The requested size.
        requested_bytes: usize,
        /// The device's free bytes.
        free_bytes: usize,
        /// The device's capacity; 0 when unknown, such as that of pinned memory before a refusal.
        total_bytes: usize,
        /// The allocator's state, if there is one, read under one lock with `free_bytes`.
        cache: Option<Box<Shortage>>,
    },
    /// A snapshot of memory that contradicts itself.
    #[error("The snapshot is not valid at {address:#x}: expected were {expected}")]
    InvalidSnapshot {
        /// The address of the contradiction.
        address: u64,
        /// The entry that a snapshot has there.
        expected: &'static str,
    },
    /// Recorded requests and frees that contradict themselves.
    #[error("Event {index} names block {id}: expected was {expected}")]
    InvalidEvents {
        /// The event's index, from 0.
        index: usize,
        /// The block's number.
        id: u64,
        /// The block that it should have named.
        expected: &'static str,
    },
    /// A use of a buffer whose memory was freed by a release.
    #[error("Buffer of {} at {address:#x} on {device} was released", display_bytes(*bytes))]
    Released {
        /// The device of the memory.
        device: Device,
        /// The buffer's address.
        address: u64,
        /// Its size.
        bytes: usize,
    },
    /// A release of a buffer whose memory is exported.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be released: {exports} exports of its \
         memory exist",
        display_bytes(*bytes)
    )]
    Exported {
        /// The device of the memory.
        device: Device,
        /// The buffer's address.
        address: u64,
        /// Its size.
        bytes: usize,
        /// The number of exports.
        exports: usize,
    },
    /// A range that is not inside a buffer.
    #[error("Range {start}..{end} is not inside a buffer of {bytes} bytes")]
    RangeOutside {
        /// First byte asked for.
        start: usize,
        /// The end of the range.
        end: usize,
        /// The buffer's size.
        bytes: usize,
    },
    /// A copy between two ranges of different sizes.
    #[error("Cannot copy {source_bytes} bytes into {target_bytes}: the sizes must be equal")]
    CopySizeMismatch {
        /// Size of the target range.
        target_bytes: usize,
        /// Size of the source range.
        source_bytes: usize,
    },
    /// A copy between two ranges of one allocation that have bytes in common.
    #[error(
        "Cannot copy {bytes} bytes from offset {source_offset} to offset {target_offset} of one \
         allocation: the ranges overlap"
    )]
    CopyOverlap {
        /// Offset of the target range in the allocation.
        target_offset: usize,
        /// Offset of the source range.
        source_offset: usize,
        /// The size of each range.
        bytes: usize,
    },
    /// Work on a buffer was given to a stream whose device is not the buffer's.
    #[error("A stream of {stream} cannot work on a buffer of {buffer}: it runs on another device")]
    DeviceMismatch {
        /// The buffer's device.
        buffer: Device,
        /// The stream's device.
        stream: Device,
    },
}
