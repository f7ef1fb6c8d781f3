//! What an allocator had when it could not serve a request: the numbers of the error.

use std::fmt;

use crate::base::size::display_bytes;

/// What an allocator had at a request that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Blocks that were handed out and not freed.
    pub allocated_bytes: usize,
    /// The same with those that are freed while streams use them.
    pub active_bytes: usize,
    /// What was taken from the device.
    pub reserved_bytes: usize,
    /// What may be taken from the device, when there is a limit besides its size.
    pub limit_bytes: Option<usize>,
    /// What the device is asked for to serve the request, where that is more than a page above it:
    /// under policy `torch` and of pinned memory, whose segments have least sizes.
    pub segment_bytes: Option<usize>,
    /// The largest request like it that could be had. Under policy `native` one of any size, from
    /// free memory and from what the device and the limit have left; under `torch` the largest
    /// free block of its stream, its pool and its class of sizes, and of pools that help out.
    pub largest_free_bytes: usize,
    /// True when that counts what the device and the limit have left.
    pub is_growth_counted: bool,
    /// True when the device has enough, and the limit alone stands in the way.
    pub is_only_limited: bool,
    /// True of pinned host memory, of which each piece comes from one segment.
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
