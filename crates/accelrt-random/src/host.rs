//! Random fills on host kinds: several threads write chunks of the buffer.
#![expect(unsafe_code, reason = "writes to memory by its address")]
use std::sync::Arc;

use accelrt::backend::contract::{Address, Turn, Work};
use accelrt::internal::{
    Class, Command, Details, MemoryAccess, OperationKind, TaskContext, TaskParts,
};

use crate::values::{BLOCK_BYTES, Block, Values};

/// Blocks per chunk: 256 KiB, half of a typical L2 cache, written in tens of microseconds.
const CHUNK_BLOCKS: usize = (256 << 10) / BLOCK_BYTES;

/// Minimum chunks per helper, because waking a thread takes as long as writing one chunk.
const CHUNKS_PER_HELPER: usize = 4;

/// A memory range to fill with consecutive blocks of a seed's sequence. The end of the range may
/// cut the last block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) seed: u64,
    pub(crate) first_block: u64,
    pub(crate) to: Address,
    pub(crate) bytes: usize,
    pub(crate) values: Values,
    /// Maximum number of threads, including the thread that runs the task.
    pub(crate) core_count: u16,
}

impl Range {
    fn chunks(&self) -> usize {
        self.bytes.div_ceil(CHUNK_BLOCKS * BLOCK_BYTES)
    }

    /// Writes the numbers of one chunk. The last chunk may be shorter.
    ///
    /// # Safety
    /// The memory of this chunk is writable. No other thread accesses it during the call.
    unsafe fn write_chunk(&self, chunk: usize) {
        let begin = chunk * CHUNK_BLOCKS * BLOCK_BYTES;
        let bytes = (self.bytes - begin).min(CHUNK_BLOCKS * BLOCK_BYTES);
        let (blocks, rest) = (bytes / BLOCK_BYTES, bytes % BLOCK_BYTES);
        let first = self.first_block.wrapping_add((chunk * CHUNK_BLOCKS) as u64);
        let to = usize::try_from(self.to.offset(begin).0).expect("addresses have 64 bits");
        let to = std::ptr::with_exposed_provenance_mut::<Block>(to);
        // SAFETY: the caller upholds that the memory is writable and not shared. The memory is
        // word-aligned, because `Generator` rejects other ranges.
        let whole = unsafe { std::slice::from_raw_parts_mut(to, blocks) };
        self.values.write(self.seed, first, whole);
        if rest > 0 {
            let mut last = [Block::default()];
            self.values.write(self.seed, first.wrapping_add(blocks as u64), &mut last);
            let from = last.as_ptr().cast::<u8>();
            let behind = to.wrapping_add(blocks).cast::<u8>();
            // SAFETY: the caller upholds that the chunk is writable. `rest` bytes of it follow the
            // whole blocks, and `last` has a whole block.
            unsafe { std::ptr::copy_nonoverlapping(from, behind, rest) };
        }
    }
}

#[derive(Debug)]
struct SharedFill {
    range: Range,
    parts: TaskParts,
}

impl SharedFill {
    fn help(&self) {
        // SAFETY: `TaskParts` yields each chunk once. Only the task uses the memory, and it waits
        // for all chunks before it retires.
        self.parts.work(|chunk| unsafe { self.range.write_chunk(chunk) });
    }
}

impl Work for SharedFill {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        self.help();
    }

    fn is_needed(&self) -> bool {
        self.parts.has_unclaimed()
    }
}

pub(crate) struct HostFill(pub(crate) Range);

impl Command<TaskContext> for HostFill {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Random;

    fn details(&self) -> Details {
        let accesses = vec![MemoryAccess::write(self.0.to, self.0.bytes)];
        Details { bytes: self.0.bytes, accesses, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        let (range, chunks) = (self.0, self.0.chunks());
        let helpers = usize::from(range.core_count).min(chunks / CHUNKS_PER_HELPER).max(1) - 1;
        if helpers == 0 {
            // SAFETY: only this task uses the memory while it runs, and no helper shares the work.
            return (0..chunks).for_each(|chunk| unsafe { range.write_chunk(chunk) });
        }
        let fill = Arc::new(SharedFill { range, parts: TaskParts::new(chunks) });
        for _ in 0..helpers {
            // `resume` only queues the helper. If no helper starts, this thread writes every chunk.
            context.resume(Arc::clone(&fill) as Arc<dyn Work>);
        }
        fill.help();
        fill.parts.wait();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Goal: the result does not depend on the threads that write the chunks. Method: several
    //! threads fill one range, and the test compares it with a fill by one thread.

    use super::*;

    /// Four chunks, and a remainder that is not a whole block.
    const BYTES: usize = 4 * CHUNK_BLOCKS * BLOCK_BYTES + 24;

    fn range_over(words: &mut [u32], values: Values) -> Range {
        assert!(words.len() * 4 >= BYTES);
        let to = Address(words.as_mut_ptr().expose_provenance() as u64);
        Range { seed: 3, first_block: 9, to, bytes: BYTES, values, core_count: 1 }
    }

    #[test]
    fn helpers_write_the_same_bytes_as_a_single_thread() {
        for values in [Values::RawUint32, Values::NormalFloat64] {
            let mut alone = vec![Block::default(); BYTES.div_ceil(BLOCK_BYTES)];
            values.write(3, 9, &mut alone);
            let mut words = vec![0xEEEE_EEEE; BYTES / 4 + 8];
            let range = range_over(&mut words, values);
            let parts = TaskParts::new(range.chunks());
            let fill = Arc::new(SharedFill { range, parts });
            assert!(fill.is_needed(), "a run queue keeps it");
            let helpers: Vec<_> = (0..3)
                .map(|_| Arc::clone(&fill))
                .map(|fill| std::thread::spawn(move || fill.run(&Turn::unshared())))
                .collect();
            fill.help();
            fill.parts.wait();
            assert_eq!(words[..BYTES / 4], alone.as_flattened()[..BYTES / 4], "{values:?}");
            assert!(words[BYTES / 4..].iter().all(|word| *word == 0xEEEE_EEEE));
            assert!(!fill.is_needed());
            for helper in helpers {
                helper.join().unwrap();
            }
        }
    }
}
