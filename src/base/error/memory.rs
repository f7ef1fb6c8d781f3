//! Errors of memory: exhausted capacity, released buffers, invalid ranges.

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
        message(
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

/// The size from which on PyTorch's message says `more than 1EB` in place of the size.
const EXBIBYTE: usize = 1 << 60;

/// Formats the message. Leaves out a capacity of 0 and a missing cache state: both are unknown.
pub(super) fn message(
    device: Device,
    requested_bytes: usize,
    (free_bytes, total_bytes): (usize, usize),
    cache: Option<&Shortage>,
) -> String {
    let kind = device.kind().name().to_uppercase();
    let requested = match requested_bytes {
        ..EXBIBYTE => display_bytes(requested_bytes),
        _ => "more than 1EB memory".to_owned(),
    };
    let is_pinned = cache.is_some_and(|cache| cache.is_pinned);
    let pinned = if is_pinned { ", pinned on the host" } else { "" };
    let whose = if is_pinned { "The host".to_owned() } else { device.to_string() };
    let segment = cache.and_then(|cache| cache.segment_bytes).map(|bytes| {
        let bytes = display_bytes(bytes);
        format!(", which takes a segment of {bytes}")
    });
    let segment = segment.unwrap_or_default();
    let mut text = format!("{kind} out of memory. Tried to allocate {requested}{pinned}{segment}.");
    if total_bytes > 0 {
        let [free, total] = [free_bytes, total_bytes].map(display_bytes);
        let capacity = format!(" {whose} has a total capacity of {total} of which {free} is free.");
        text.push_str(&capacity);
    }
    if let Some(cache) = cache {
        text.push(' ');
        text.push_str(&cache.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::MIB;

    #[test]
    fn a_message_begins_as_pytorchs_and_omits_unknown_numbers() {
        let device = Device::cpu(1);
        let known = message(device, 3 * MIB, (MIB, 2 * MIB), None);
        let capacity = "cpu:1 has a total capacity of 2.00 MiB of which 1.00 MiB is free.";
        assert_eq!(known, format!("CPU out of memory. Tried to allocate 3.00 MiB. {capacity}"));
        let unknown = message(device, EXBIBYTE, (0, 0), None);
        assert_eq!(unknown, "CPU out of memory. Tried to allocate more than 1EB memory.");
        let largest = message(device, EXBIBYTE - 1, (0, 0), None);
        assert_eq!(largest, "CPU out of memory. Tried to allocate 1073741823.99 GiB.");
    }

    #[test]
    fn a_larger_segment_is_named_in_the_message() {
        let cache =
            Shortage { is_pinned: true, segment_bytes: Some(8 * MIB), ..Shortage::default() };
        let text = message(Device::cpu(0), 1000, (0, 0), Some(&cache));
        let expected =
            "Tried to allocate 1000 B, pinned on the host, which takes a segment of 8.00 MiB. The ";
        assert!(text.contains(expected), "{text}");
    }
}
