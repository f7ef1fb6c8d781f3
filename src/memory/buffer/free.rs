//! Frees in stream order: a block goes back to its allocator behind every use.
//!
//! On its home stream a block may serve the next request at once, because that comes after every
//! use there. On other streams only points are recorded: the allocator looks at their counters, no
//! stream waits because of a free, no thread waits, and nothing is enqueued. When a driver's stream
//! ends, it has passed its points only once its device has: so it keeps its resources until then.
#![expect(unsafe_code, reason = "a block that is shared is freed by the last or the first")]

use std::sync::Arc;

use crate::backend::contract::{Address, MemoryKind};
use crate::base::device::Device;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::memory::allocator::{Allocated, CachingAllocator, UsePoint};
use crate::memory::buffer::uses::{Last, Use, Uses};

/// A block of an allocator, to be given back once: `State::is_released` says whether it was.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) allocator: Arc<CachingAllocator>,
    pub(super) block: Allocated,
    /// The device of the memory; of pinned host memory the device named in the request.
    pub(super) device: Device,
    pub(super) kind: MemoryKind,
    /// The requested size.
    pub(super) bytes: usize,
}

impl Memory {
    pub(super) fn address(&self) -> Address {
        Address(self.block.address())
    }
}

/// Frees a block behind all work on its home stream and behind its uses on other streams. Never
/// called in a forked child. Leaves no use.
///
/// # Safety
/// Called once for the block of this memory.
#[inline]
pub(super) unsafe fn free(memory: &Memory, home: &Arc<StreamCore>, uses: &mut Uses) {
    if memory.bytes == 0 {
        *uses = Uses::default();
        return;
    }
    // SAFETY: the caller promises it.
    let block = unsafe { memory.block.give_up() };
    if home.on_host && !uses.has_others() && home.progress.done() >= home.pushed() {
        // Every use of the memory is done.
        uses.at_home = Last::default();
        return memory.allocator.free_behind(block, None, &[]);
    }
    free_behind_uses(memory, block, home, std::mem::take(uses).into_others());
}

fn free_behind_uses(
    memory: &Memory,
    block: Allocated,
    home: &Arc<StreamCore>,
    others: impl Iterator<Item = Use>,
) {
    // A driver's stream may have work that other code gave it by its native handle.
    let ticket = if home.on_host { home.pushed() } else { home.enqueue(EmptyTask, Always).ticket };
    let home = point(home, ticket);
    let others = others.filter(|point| !point.is_done());
    let mut others: Vec<UsePoint> =
        others.map(|Use { stream, last }| point(&stream, last.task.ticket)).collect();
    if memory.kind == MemoryKind::Host {
        others.push(home); // it serves all streams and the host, which no stream orders
        return memory.allocator.free_behind(block, None, &others);
    }
    memory.allocator.free_behind(block, Some(&home), &others);
}

fn point(stream: &Arc<StreamCore>, ticket: u64) -> UsePoint {
    if !stream.on_host && stream.progress.done() < ticket {
        stream.hold(ticket, Box::new(()));
    }
    UsePoint { stream: Arc::clone(stream), ticket }
}
