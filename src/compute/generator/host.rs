//! A fill on a kind that runs tasks on the host: in chunks, with the help of other workers.
#![expect(unsafe_code, reason = "writes to memory by its address")]

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::{Address, Turn, Work};
use crate::compute::generator::shares::Shares;
use crate::compute::generator::values::{BLOCK_BYTES, Block, Values};
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::operation::{Details, MemoryAccess, OperationKind};
use crate::queue::{Class, Command};

/// The chunk that a thread claims at once: some tens of microseconds, and half of a usual L2 cache.
const CHUNK_BLOCKS: usize = (256 << 10) / BLOCK_BYTES;

/// Fewer chunks than this per helper wake no other thread: the wake takes as long as one chunk.
const CHUNKS_PER_HELPER: usize = 4;

/// Numbers for a range of memory: consecutive blocks of a seed's sequence. The last block is cut
/// where the range ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) seed: u64,
    pub(super) first_block: u64,
    pub(super) to: Address,
    pub(super) bytes: usize,
    pub(super) values: Values,
    /// Cores that may work on it.
    pub(super) core_count: u16,
}

impl Range {
    fn chunks(&self) -> usize {
        self.bytes.div_ceil(CHUNK_BLOCKS * BLOCK_BYTES)
    }

    /// Writes one of its chunks.
    ///
    /// # Safety
    /// The memory of this chunk is writable, and no other thread reads or writes there meanwhile.
    unsafe fn write_chunk(&self, chunk: usize) {
        let begin = chunk * CHUNK_BLOCKS * BLOCK_BYTES;
        let bytes = (self.bytes - begin).min(CHUNK_BLOCKS * BLOCK_BYTES);
        let (blocks, rest) = (bytes / BLOCK_BYTES, bytes % BLOCK_BYTES);
        let first = self.first_block.wrapping_add((chunk * CHUNK_BLOCKS) as u64);
        let to = usize::try_from(self.to.offset(begin).0).expect("addresses have 64 bits");
        let to = std::ptr::with_exposed_provenance_mut::<Block>(to);
        // SAFETY: needs memory that is writable, not shared and aligned to a word: the caller's
        // promise, and `Generator` fills no range with misaligned numbers.
        let whole = unsafe { std::slice::from_raw_parts_mut(to, blocks) };
        self.values.write(self.seed, first, whole);
        if rest > 0 {
            let mut last = [Block::default()];
            self.values.write(self.seed, first.wrapping_add(blocks as u64), &mut last);
            let from = last.as_ptr().cast::<u8>();
            let behind = to.wrapping_add(blocks).cast::<u8>();
            // SAFETY: as above, of the bytes behind the whole blocks; a block is longer.
            unsafe { std::ptr::copy_nonoverlapping(from, behind, rest) };
        }
    }
}

/// A range that several threads write.
struct Team {
    range: Range,
    shares: Shares,
}

impl Team {
    /// Writes chunks until all are claimed.
    fn help(&self) {
        // SAFETY: each chunk is claimed once, and the task is not retired before the last one is
        // done: until then only the task uses the memory.
        self.shares.work(|chunk| unsafe { self.range.write_chunk(chunk) });
    }
}

impl Work for Team {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        self.help();
    }

    fn is_needed(&self) -> bool {
        self.shares.has_unclaimed()
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("range", &self.range).finish_non_exhaustive()
    }
}

/// The task of a fill.
pub(super) struct HostFill(pub(super) Range);

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
            // SAFETY: only the task uses the memory while it runs.
            return (0..chunks).for_each(|chunk| unsafe { range.write_chunk(chunk) });
        }
        let team = Arc::new(Team { range, shares: Shares::new(chunks) });
        for _ in 0..helpers {
            // Never on this stack, and only a hint: this thread writes the chunks that no other
            // claims.
            context.handle.resume(Arc::clone(&team) as Arc<dyn Work>);
        }
        team.help();
        team.shares.wait();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Goal: a range is the same, whichever thread writes its chunks. Method: threads that help at
    //! once.

    use super::*;

    /// Four chunks and a rest that is no whole block.
    const BYTES: usize = 4 * CHUNK_BLOCKS * BLOCK_BYTES + 24;

    /// A range over words of this test, which stay where they are.
    fn range_over(words: &mut [u32], values: Values) -> Range {
        assert!(words.len() * 4 >= BYTES);
        let to = Address(words.as_mut_ptr().expose_provenance() as u64);
        Range { seed: 3, first_block: 9, to, bytes: BYTES, values, core_count: 1 }
    }

    #[test]
    fn threads_that_help_write_what_one_alone_writes_and_nothing_beside_it() {
        for values in [Values::RawUint32, Values::NormalFloat64] {
            let mut alone = vec![Block::default(); BYTES.div_ceil(BLOCK_BYTES)];
            values.write(3, 9, &mut alone);
            let mut words = vec![0xEEEE_EEEE; BYTES / 4 + 8];
            let range = range_over(&mut words, values);
            let shares = Shares::new(range.chunks());
            let team = Arc::new(Team { range, shares });
            assert!(team.is_needed(), "a run queue keeps it");
            let helpers: Vec<_> = (0..3)
                .map(|_| Arc::clone(&team))
                .map(|team| std::thread::spawn(move || team.run(&Turn::unshared())))
                .collect();
            team.help();
            team.shares.wait();
            assert_eq!(words[..BYTES / 4], alone.as_flattened()[..BYTES / 4], "{values:?}");
            assert!(words[BYTES / 4..].iter().all(|word| *word == 0xEEEE_EEEE));
            assert!(!team.is_needed());
            for helper in helpers {
                helper.join().unwrap();
            }
        }
    }
}
