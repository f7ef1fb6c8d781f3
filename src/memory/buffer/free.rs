//! Frees in stream order: the next tasks that use a freed block run after all its earlier uses.
//!
//! A freed block may serve the next request on its home stream at once: the tasks of that request
//! run after every earlier task of the stream. For each other stream that uses the block, the
//! allocator records a use point (stream and ticket) and polls the stream's progress counter. It
//! also records one on the home stream of pinned memory, whose next request may be on any stream.
//! No thread and no stream waits for a free. On a driver's stream, this file also holds an empty
//! value at the use point: the runtime polls a stream until the device has passed its held values.
#![expect(unsafe_code, reason = "gives up a shared block once, behind its uses")]

use std::sync::Arc;

use crate::backend::contract::{Address, MemoryKind};
use crate::base::device::Device;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::internal::EmptyTask;
use crate::engine::stream::order_watch::{self, Told, UsedBytes};
use crate::memory::allocator::{Allocated, CachingAllocator, UsePoint};
use crate::memory::buffer::uses::{LastTasks, Use, Uses};

/// A block of an allocator, which is freed once. `State::is_released` records the free.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) allocator: Arc<CachingAllocator>,
    pub(super) block: Allocated,
    /// The device of the memory; for pinned host memory, the device that the request named.
    pub(super) device: Device,
    pub(super) kind: MemoryKind,
    pub(super) bytes: usize,
}

impl Memory {
    pub(super) fn address(&self) -> Address {
        Address(self.block.address())
    }

    /// All of it, for a watch of the order.
    pub(super) fn all_bytes(&self, home: &StreamCore) -> UsedBytes {
        UsedBytes {
            runtime: home.lifecycle.runtime,
            home: home.key(),
            address: self.block.address(),
            bytes: self.bytes,
            range: 0..self.bytes,
            writes: None,
        }
    }
}

/// Frees a block and clears the uses. The free is ordered after all work on the home stream and
/// after the uses on other streams. Never called in a forked child.
///
/// # Safety
/// The caller must call this function only once for `memory`.
#[inline]
pub(super) unsafe fn free(memory: &Memory, home: &Arc<StreamCore>, uses: &mut Uses) {
    if memory.bytes == 0 {
        *uses = Uses::default();
        return;
    }
    if order_watch::is_on() {
        order_watch::tell(Told::Free(memory.all_bytes(home)));
    }
    // SAFETY: the caller calls `free` once for this memory, so the block is given up once.
    let block = unsafe { memory.block.give_up() };
    if home.on_host && !uses.has_others() && home.progress.done() >= home.pushed() {
        uses.at_home = LastTasks::default();
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
    // On a driver's stream, the program may have submitted work through the native handle. The
    // ticket of a new task covers that work.
    let ticket = if home.on_host { home.pushed() } else { home.enqueue(EmptyTask, Always).ticket };
    let home = point(home, ticket);
    let others = others.filter(|point| !point.is_done());
    let mut others: Vec<UsePoint> =
        others.map(|Use { stream, last }| point(&stream, last.task.ticket)).collect();
    if memory.kind == MemoryKind::Host {
        others.push(home); // the next request of pinned memory may be on any stream
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
