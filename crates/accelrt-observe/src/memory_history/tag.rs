//! Tags: names for what a thread's memory is for.

use std::fmt;
use std::marker::PhantomData;

use accelrt::internal::{NameId, exchange_tag};

/// A thread's tag, until the drop: see [`memory_tag`].
#[must_use = "the drop ends the tag"]
pub struct MemoryTag {
    before: NameId,
    /// The tag belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// Gives what this thread allocates from here on a tag, until the guard is dropped; the innermost
/// tag counts. [`CachingAllocator::tag_statistics`] has the bytes of each tag, and a history names
/// the tags of its events. An empty name ends an outer tag meanwhile. Drop guards in the opposite
/// order of their creation.
///
/// A request with a tag takes the slow path of the allocator, and so does the free of its block.
/// There are 65,535 names in a process, of tags, threads and ranges together; what comes behind has
/// no tag.
///
/// [`CachingAllocator::tag_statistics`]: accelrt::allocator::CachingAllocator::tag_statistics
pub fn memory_tag(name: &str) -> MemoryTag {
    let tag = if name.is_empty() { NameId::NONE } else { NameId::of(name) };
    MemoryTag { before: exchange_tag(tag), thread: PhantomData }
}

impl Drop for MemoryTag {
    fn drop(&mut self) {
        exchange_tag(self.before);
    }
}

impl fmt::Debug for MemoryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTag").finish_non_exhaustive()
    }
}
