//! The numbers of an out-of-memory error: the state of the allocator that refused the request.

use std::fmt;

use crate::base::size::display_bytes;

/// The state of an allocator when a request failed. Displayed as sentences of the error's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Bytes of allocated blocks.
    pub allocated_bytes: usize,
    /// Bytes of allocated blocks, and of freed blocks that streams still use.
    pub active_bytes: usize,
    /// Bytes taken from the device.
    pub reserved_bytes: usize,
    /// The limit on the bytes taken from the device, if one is set.
    pub limit_bytes: Option<usize>,
    /// The size of the segment that the request would take from the device. `Some` if the segment
    /// exceeds the request by more than a page: only segments of policy `torch` and of pinned
    /// memory have minimum sizes.
    pub segment_bytes: Option<usize>,
    /// The largest request on the same stream that would succeed. Policy `native` counts free
    /// memory and the remaining capacity of the device and the limit. Policy `torch` counts the
    /// largest free block of the request's stream, pool and size class, and of the pools that the
    /// request may fall back to.
    pub largest_free_bytes: usize,
    /// True when `largest_free_bytes` includes the remaining capacity of the device and the limit.
    pub is_growth_counted: bool,
    /// True when the device has enough memory, and only the limit prevents the request.
    pub is_only_limited: bool,
    /// True for pinned host memory, where each block comes from a single segment.
    pub is_pinned: bool,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (active, allocated) = (self.active_bytes, self.allocated_bytes);
        let (reserved, live) = (display_bytes(self.reserved_bytes), display_bytes(allocated));
        write!(f, "The allocator has reserved {reserved}: {live} are allocated")?;
        if active > allocated {
            let awaiting = display_bytes(active - allocated);
            write!(f, ", {awaiting} are freed but still used by streams")?;
        }
        let free = display_bytes(self.reserved_bytes.saturating_sub(active));
        let largest = display_bytes(self.largest_free_bytes);
        let and_left = if self.is_growth_counted { "with what is left to take " } else { "" };
        write!(
            f,
            ", {free} are free, {and_left}at most {largest} in one piece for such a request."
        )?;
        if let Some(limit_bytes) = self.limit_bytes {
            write!(f, " The limit is {}", display_bytes(limit_bytes))?;
            let advice = ", and alone in the way: a higher memory fraction would help";
            write!(f, "{}.", if self.is_only_limited { advice } else { "" })?;
        }
        Ok(())
    }
}
