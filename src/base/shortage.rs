//! The numbers of an out-of-memory error: the state of the allocator that refused the request.

use std::fmt;
use std::sync::Arc;

use crate::base::size::display_bytes;

/// The state of an allocator when a request failed. Displayed as sentences of the error's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The size of the segment that the request would take from the device; of an expandable
    /// segment, the bytes of its pages. `Some` if this exceeds the request by more than a page:
    /// only segments of policy `torch` and of pinned memory have minimum sizes.
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
    /// The bytes that would have to be free besides for the request: besides the largest free
    /// block, or what the device and the limit leave; where segments grow, besides both.
    pub lacking_bytes: usize,
    /// The tags whose blocks in use have the most bytes, the largest first.
    pub largest_tags: Vec<MemoryUser>,
    /// Where programs asked for the most bytes that are in use, the largest first. A history that
    /// records stacks knows it.
    #[doc(hidden)]
    pub largest_stacks: Vec<MemoryUser>,
}

/// The blocks in use that were asked for with one tag, or from one place of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUser {
    /// The tag; empty for none, and for a place.
    pub tag: Arc<str>,
    /// The number of the place; 0 for none, and for a tag.
    #[doc(hidden)]
    pub stack: u32,
    /// Bytes of the blocks.
    pub bytes: usize,
    /// The number of blocks.
    pub count: usize,
}

impl Shortage {
    fn fmt_tags(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(largest) = self.largest_tags.first() else { return Ok(()) };
        for (index, MemoryUser { tag, bytes, count, .. }) in self.largest_tags.iter().enumerate() {
            let before = if index == 0 { " In use by tag: " } else { ", " };
            let blocks = if *count == 1 { "block" } else { "blocks" };
            let (tag, size) = (tag.escape_debug(), display_bytes(*bytes));
            write!(f, "{before}'{tag}' {size} in {count} {blocks}")?;
        }
        if self.lacking_bytes == 0 {
            return f.write_str("."); // the device refused what it has
        }
        write!(f, ". The request lacks {}", display_bytes(self.lacking_bytes))?;
        let is_enough = largest.bytes >= self.lacking_bytes;
        if is_enough {
            write!(f, ", and '{}' alone has that.", largest.tag.escape_debug())
        } else {
            f.write_str(".")
        }
    }
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
        self.fmt_tags(f)
    }
}
