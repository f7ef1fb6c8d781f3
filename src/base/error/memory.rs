//! Errors of memory: exhausted capacity, released buffers, invalid ranges.

use super::out_of_memory;
use crate::base::device::Device;
use crate::base::shortage::Shortage;
use crate::base::size::display_bytes;

/// A refused request for memory, an invalid use of a buffer, or an invalid snapshot.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum MemoryError {
    /// The device has too little free memory, or the request would exceed the memory limit.
    #[error(
        "{}",
        out_of_memory::message(
            *device, *requested_bytes, (*free_bytes, *total_bytes), cache.as_deref()
        )
    )]
    OutOfMemory {
        device: Device,
        requested_bytes: usize,
        free_bytes: usize,
        /// The device's capacity; 0 when unknown, as for pinned memory before a first refusal.
        total_bytes: usize,
        /// The state of the allocator at the refusal; `None` for a request without an allocator.
        cache: Option<Box<Shortage>>,
    },
    /// A snapshot of memory that contradicts itself.
    #[error("The snapshot is not valid at {address:#x}: expected {expected}")]
    InvalidSnapshot {
        address: u64,
        /// What a valid snapshot would have at this address, in words for the message, such as "a
        /// block in use".
        expected: &'static str,
    },
    /// Recorded requests and frees that contradict each other.
    #[error("Event {index} names block {id}: expected {expected}")]
    InvalidEvents {
        /// The event's index, from 0.
        index: usize,
        id: u64,
        /// What a valid event would name, in words for the message: a number in use, or one not in
        /// use.
        expected: &'static str,
    },
    /// A use of a buffer after a release freed its memory.
    #[error("Buffer of {} at {address:#x} on {device} was released", display_bytes(*bytes))]
    Released { device: Device, address: u64, bytes: usize },
    /// A release of a buffer whose memory is exported.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be released: {exports} exports of its \
         memory exist",
        display_bytes(*bytes)
    )]
    Exported { device: Device, address: u64, bytes: usize, exports: usize },
    /// A task that would have the bytes of exported memory as slices.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be a task's slice: {exports} exports of \
         its memory exist, whose accesses have no order",
        display_bytes(*bytes)
    )]
    SliceOfExported { device: Device, address: u64, bytes: usize, exports: usize },
    /// A range that is not inside a buffer.
    #[error("Range {start}..{end} is not inside a buffer of {bytes} bytes")]
    RangeOutside { start: usize, end: usize, bytes: usize },
    /// A copy between two ranges of different sizes.
    #[error("Cannot copy {source_bytes} bytes into {target_bytes}: the sizes must be equal")]
    CopySizeMismatch { target_bytes: usize, source_bytes: usize },
    /// A copy between two ranges of one allocation that have bytes in common.
    #[error(
        "Cannot copy {bytes} bytes from offset {source_offset} to offset {target_offset} of one \
         allocation: the ranges overlap"
    )]
    CopyOverlap {
        /// Offset of the target range in the allocation.
        target_offset: usize,
        /// Offset of the source range in the same allocation.
        source_offset: usize,
        bytes: usize,
    },
    /// A buffer that holds no whole number of aligned elements of a type.
    #[error(
        "Buffer of {bytes} bytes at {address:#x} is no slice of {element}: that takes a multiple \
         of {element_bytes} bytes at a multiple of {align_bytes}"
    )]
    NotElements {
        address: u64,
        bytes: usize,
        element: &'static str,
        element_bytes: usize,
        align_bytes: usize,
    },
    /// Two views for one task that have bytes in common, of which the task writes one.
    #[error(
        "The views of {} bytes at {:#x} and of {} bytes at {:#x} overlap, and the task would write \
         one of them",
        first.1, first.0, second.1, second.0
    )]
    ViewOverlap {
        /// Address and bytes of a view.
        first: (u64, usize),
        /// Address and bytes of the other view.
        second: (u64, usize),
    },
    /// A task for a stream whose device does not reach the buffer's memory.
    #[error("A stream of {stream} cannot work on a buffer of {buffer}: it runs on another device")]
    DeviceMismatch { buffer: Device, stream: Device },
}
