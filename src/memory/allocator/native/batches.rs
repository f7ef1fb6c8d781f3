//! Small pieces on their way from threads that free them to threads that allocate.
//!
//! A thread whose bin is full leaves the older half of it here, and a thread that misses takes it:
//! neither of them touches the slabs. Whatever empties the thread caches empties this too.

use crate::base::size::KIB;
use crate::memory::allocator::allocated::{Allocated, Single};
use crate::memory::allocator::native::bins::{HALF_BIN, Key};
use crate::memory::allocator::native::marks::Tag;

/// The bytes of all batches: little beside what threads cache, and many times what two threads that
/// take turns need.
const MOST_BYTES: usize = 128 * KIB;
/// The sizes and streams that have pieces here at a time, which a look goes through.
const MOST_BATCHES: usize = 8;

/// The batches of one allocator, guarded by its lock.
///
/// Equation: `bytes` is the sum of the sizes of all pieces, at most [`MOST_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// The newest one last; none is empty.
    batches: Vec<Batch>,
    bytes: usize,
}

#[derive(Debug)]
struct Batch {
    key: Key,
    count: usize,
    pieces: [Single; HALF_BIN],
}

impl Batches {
    /// Adds half a bin. False, without an effect, when there is no room for it.
    pub(super) fn put(&mut self, key: Key, pieces: &[Single; HALF_BIN]) -> bool {
        let bytes = self.bytes + HALF_BIN * key.bytes;
        if bytes > MOST_BYTES || self.batches.len() == MOST_BATCHES {
            return false;
        }
        self.batches.push(Batch { key, count: HALF_BIN, pieces: *pieces });
        self.bytes = bytes;
        true
    }

    /// Takes at most `most` pieces of the newest batch with a key. Returns their number.
    pub(super) fn take(&mut self, key: Key, most: usize, put: &mut dyn FnMut(Single)) -> usize {
        let Some(place) = self.batches.iter().rposition(|batch| batch.key == key) else { return 0 };
        let batch = &mut self.batches[place];
        let left = batch.count.saturating_sub(most);
        let taken = &batch.pieces[left..batch.count];
        taken.iter().for_each(|single| put(*single));
        let count = taken.len();
        batch.count = left;
        self.bytes -= count * key.bytes;
        if left == 0 {
            self.batches.swap_remove(place);
        }
        count
    }

    /// Takes all pieces out.
    pub(super) fn drain(&mut self, tag: Tag) -> Vec<Allocated> {
        self.bytes = 0;
        let pieces_of = |Batch { key, count, pieces }| {
            let pieces = pieces.into_iter().take(count);
            pieces.map(move |single| single.of(single.handle().tagged(tag), key.bytes, key.stream))
        };
        self.batches.drain(..).flat_map(pieces_of).collect()
    }
}
