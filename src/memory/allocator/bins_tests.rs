//! Tests of what a thread keeps.
//!
//! Goal: what is kept is within the bound, comes out once, and is what went in. Method: random
//! pieces are kept and taken beside a model that knows what is inside by size and stream.

use std::collections::HashMap;

use crate::base::size::{KIB, MIB};
use crate::memory::allocator::allocated::{Allocated, Handle};
use crate::memory::allocator::bins::{Bins, Bound, Key};
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::ids::BlockId;
use crate::memory::allocator::live_table::LiveTable;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::thread_counters::{BlockSize, Quantity};
use crate::numbers::Numbers;
use crate::seed::seed;

const PIECES: u32 = 400;
const ROUNDS: usize = 40_000;

struct Thread {
    kept: Bins,
    live: LiveTable,
    /// What is kept, by key: the addresses, the last one on top.
    inside: HashMap<(u64, usize), Vec<u64>>,
    inside_bytes: usize,
    /// The size from which pieces do not count.
    uncounted_from_bytes: usize,
}

/// Pieces of some sizes for some streams, each with an address of its own.
fn pieces(live: &LiveTable) -> Vec<Allocated> {
    let sizes = [512, 1024, 8 * KIB, 64 * KIB, 300 * KIB, MIB, 3 * MIB, 40 * MIB];
    let piece = |number: u32| {
        let bytes = sizes[number as usize % sizes.len()];
        let piece = BlockRef::block(BlockId::from_number(number));
        let handle = Handle::of_mark(live.mark_of(piece), live.tag());
        Allocated::of_piece(handle, u64::from(number) << 32, bytes, 0, u64::from(number / 8 % 3))
    };
    (1..=PIECES).map(piece).collect()
}

fn piece(live: &LiveTable, number: u32, bytes: usize) -> Allocated {
    let mark = live.mark_of(BlockRef::block(BlockId::from_number(number)));
    let handle = Handle::of_mark(mark, live.tag());
    Allocated::of_piece(handle, u64::from(number) << 32, bytes, 0, 0)
}

fn class(bytes: usize) -> PoolClass {
    if bytes > 16 * MIB { PoolClass::Large } else { PoolClass::Small }
}

impl Thread {
    fn new() -> Self {
        let live = LiveTable::default();
        let kept = Bins::new(live.tag());
        let uncounted_from_bytes = usize::MAX;
        Self { kept, live, inside: HashMap::new(), inside_bytes: 0, uncounted_from_bytes }
    }

    /// And all pieces, which a program has.
    fn with_all_in_use() -> (Self, Vec<Allocated>) {
        let mut thread = Self::new();
        let blocks = pieces(&thread.live);
        for block in &blocks {
            thread.allocate_piece(block);
        }
        (thread, blocks)
    }

    /// As a free of the product: what is not kept, and was driven out.
    fn free(&mut self, block: Allocated, most_bytes: u64) -> Vec<Allocated> {
        let Self { kept, inside, inside_bytes, uncounted_from_bytes, .. } = self;
        let (key, bytes) = (Key::of(&block), block.bytes());
        let bound = Bound { most_bytes, is_counted: bytes < *uncounted_from_bytes };
        let (mut out, mut is_kept) = (Vec::new(), true);
        if !kept.keep(&block, 7) {
            kept.make_room(key, class(bytes), bound, &mut |piece| out.push(piece));
            let mark = block.handle().mark().expect("a piece");
            let requested_bytes = mark.end(bytes).expect("a piece in use");
            kept.count_end(BlockSize { class: class(bytes), bytes, requested_bytes });
            is_kept = kept.stock(&block, 7);
        }
        for piece in &out {
            let of_key = inside.get_mut(&(piece.stream(), piece.bytes())).expect("it was inside");
            assert_eq!(of_key.remove(0), piece.address(), "the oldest goes first");
            assert_eq!(piece.busy_until(), 7);
            *inside_bytes -= piece.bytes();
        }
        if is_kept {
            inside.entry((key.stream, bytes)).or_default().push(block.address());
            *inside_bytes += bytes;
        } else {
            out.push(block);
        }
        let counted = inside.iter().filter(|((_, bytes), _)| bytes < uncounted_from_bytes);
        let [mut count, mut counted_bytes] = [0; 2];
        for ((_, bytes), of_key) in counted {
            count += of_key.len();
            counted_bytes += of_key.len() * bytes;
        }
        let is_bounded = counted_bytes as u64 <= most_bytes || count == 1;
        assert!(is_bounded, "{counted_bytes} bytes are kept of {most_bytes}");
        for block in &out {
            self.allocate_piece(block);
        }
        out
    }

    /// A heap hands a piece out.
    fn allocate_piece(&mut self, block: &Allocated) {
        let bytes = block.bytes();
        block.handle().mark().expect("a piece").begin(bytes, bytes);
        self.kept.count_begin(BlockSize { class: class(bytes), bytes, requested_bytes: bytes });
    }

    /// Everything that is kept, handed out again by its heap.
    fn drain(&mut self) -> Vec<Allocated> {
        let mut out = Vec::new();
        self.kept.drain(&mut |piece| out.push(piece));
        assert_eq!(out.iter().map(Allocated::bytes).sum::<usize>(), self.inside_bytes);
        (self.inside_bytes, self.inside) = (0, HashMap::new());
        for block in &out {
            self.allocate_piece(block);
        }
        out
    }

    /// As a request of the product.
    fn take(&mut self, stream: u64, bytes: usize) -> Option<Allocated> {
        let Self { kept, inside, inside_bytes, .. } = self;
        let key = Key { stream, bytes };
        let block = kept.take(key, bytes);
        let known = inside.get_mut(&(stream, bytes)).and_then(Vec::pop);
        assert_eq!(block.as_ref().map(Allocated::address), known, "what was freed last is on top");
        *inside_bytes -= block.as_ref().map_or(0, Allocated::bytes);
        block
    }
}

#[test]
fn places_of_one_size_stay_when_another_claims_exactly_what_is_left() {
    let mut thread = Thread::new();
    let blocks = pieces(&thread.live);
    let [first, second] = [512, 1024].map(|bytes| {
        blocks.iter().find(|block| block.bytes() == bytes && block.stream() == 0).unwrap()
    });
    let keys = [first, second].map(Key::of);
    let claim = |kept: &mut Bins, most_bytes| {
        let bytes =
            keys.map(|key| kept.make_room_for_stock(key, class(key.bytes), most_bytes) * key.bytes);
        bytes.iter().sum::<usize>() as u64
    };
    let both = claim(&mut Thread::new().kept, u64::MAX);
    thread.allocate_piece(first);
    assert_eq!(claim(&mut thread.kept, both), both);
    assert!(thread.kept.keep(first, 7), "its place is there");
}

#[test]
fn a_large_size_is_kept_from_its_second_free_in_a_row_on() {
    let mut thread = Thread::new();
    let mut blocks = pieces(&thread.live);
    blocks.retain(|block| block.bytes() == 3 * MIB && block.stream() == 0);
    for block in &blocks {
        thread.allocate_piece(block);
    }
    let kept: Vec<bool> =
        blocks.drain(..3).map(|block| thread.free(block, u64::MAX).is_empty()).collect();
    assert_eq!(kept, [false, true, true]);
}

/// Takes the pieces of one size for one stream.
fn take_of(blocks: &mut Vec<Allocated>, stream: u64, bytes: usize) -> Vec<Allocated> {
    blocks.extract_if(.., |block| (block.stream(), block.bytes()) == (stream, bytes)).collect()
}

/// One size is freed and taken while others, which are not asked for, find no room.
fn use_one_size_while_others_find_no_room(mut behind_each: impl FnMut(&mut Thread)) {
    let ((mut thread, mut blocks), most_bytes) = (Thread::with_all_in_use(), 3 * MIB as u64);
    let mut used = take_of(&mut blocks, 0, MIB);
    while let Some(block) = used.pop() {
        thread.free(block, most_bytes);
    }
    for bytes in [3 * MIB, 40 * MIB, 3 * MIB, 40 * MIB] {
        let others = take_of(&mut blocks, u64::from(bytes > 3 * MIB), bytes);
        for other in others {
            blocks.extend(thread.free(other, most_bytes));
            let found = thread.take(0, MIB).expect("its size is used");
            assert!(thread.free(found, most_bytes).is_empty(), "its place is there");
            behind_each(&mut thread);
        }
    }
}

/// Goal: a thread with more sizes than it may keep has those that it uses (A3).
#[test]
fn a_size_that_is_used_stays_while_others_find_no_room() {
    use_one_size_while_others_find_no_room(|_| ());
}

/// Goal: who reads statistics does not drive out what a thread uses. Method: they are read behind
/// each use, which resets the counts by which a use is seen.
#[test]
fn a_size_that_is_used_stays_while_statistics_are_read() {
    use_one_size_while_others_find_no_room(|thread| _ = thread.kept.cell());
}

/// Goal: a size withholds room from others only as long as it needs it. Method: of a full cache of
/// one size three of four pieces are taken and not freed; then another size comes again and again.
#[test]
fn places_that_a_size_needs_no_more_are_others_room() {
    let ((mut thread, mut blocks), most_bytes) = (Thread::with_all_in_use(), 4 * MIB as u64);
    for block in take_of(&mut blocks, 0, MIB).into_iter().take(5) {
        thread.free(block, most_bytes);
    }
    assert_eq!(thread.inside_bytes, 4 * MIB, "it is full, and the first one came once so far");
    for _ in 0..3 {
        assert!(thread.take(0, MIB).is_some(), "it is kept");
    }
    let mut other = take_of(&mut blocks, 0, 300 * KIB).pop().expect("there are many");
    for _ in 0..100 {
        let used = thread.take(0, MIB).expect("its size is used");
        assert!(thread.free(used, most_bytes).is_empty(), "its place is there");
        match thread.free(other, most_bytes).pop() {
            Some(refused) => other = refused,
            None => return,
        }
    }
    panic!("it finds no room");
}

/// Goal: what a thread uses no more makes room for what it does. Method: the cache is full of one
/// size, then a piece of another one comes again and again.
#[test]
fn a_size_that_is_not_used_makes_room_for_one_that_is() {
    let ((mut thread, mut blocks), most_bytes) = (Thread::with_all_in_use(), MIB as u64);
    for old in take_of(&mut blocks, 0, 300 * KIB).into_iter().take(4) {
        thread.free(old, most_bytes);
    }
    assert_eq!(thread.inside_bytes, 900 * KIB, "it is full, and the first one came once so far");
    let mut block = take_of(&mut blocks, 0, MIB).pop().unwrap();
    for frees in 1..100 {
        let mut out = thread.free(block, most_bytes);
        let Some(place) = out.iter().position(|out| out.bytes() == MIB) else {
            assert!(frees > 3, "not at once: {frees}");
            assert_eq!(thread.inside_bytes, MIB, "the other size has left");
            return;
        };
        block = out.swap_remove(place);
    }
    panic!("it finds no room");
}

/// Goal: what a thread uses no more does not stay in its cache for ever, out of others' reach.
/// Method: one size comes twice, and then hundreds of others once each, all with room.
#[test]
fn a_size_that_is_used_no_more_leaves_though_there_is_room() {
    let mut thread = Thread::new();
    for number in 1..=2 {
        let block = piece(&thread.live, number, 3 * MIB);
        thread.allocate_piece(&block);
        thread.free(block, u64::MAX);
    }
    assert_eq!(thread.inside_bytes, 3 * MIB, "from its second free on");
    for number in 3..1_000 {
        let block = piece(&thread.live, number, 4 * MIB + 512 * number as usize);
        thread.allocate_piece(&block);
        thread.free(block, u64::MAX);
        if thread.inside_bytes == 0 {
            assert!(number > 256, "not at once: {number}");
            return;
        }
    }
    panic!("it stays");
}

/// Goal: what was taken of a size is counted when the thread has forgotten the size. Method: one is
/// kept and taken; then come hundreds of other sizes.
#[test]
fn what_was_taken_of_a_size_that_is_used_no_more_is_counted() {
    let mut thread = Thread::new();
    for number in 1..=2 {
        let block = piece(&thread.live, number, 3 * MIB);
        thread.allocate_piece(&block);
        thread.free(block, u64::MAX);
    }
    let allocated = |kept: &mut Bins| kept.cell().sums(Quantity::Count).all.allocated;
    let before = allocated(&mut thread.kept);
    assert!(thread.take(0, 3 * MIB).is_some(), "from its second free on");
    for number in 3..1_000 {
        let block = piece(&thread.live, number, 4 * MIB + 512 * number as usize);
        thread.allocate_piece(&block);
        assert_eq!(thread.free(block, u64::MAX).len(), 1, "each size comes once");
    }
    assert_eq!(allocated(&mut thread.kept), before + 1 + 2 * 997, "each was handed out twice");
}

/// Goal: pieces that wait for the lock come out once each, in the order of their frees, with their
/// last uses, and are counted as freed. Method: sizes that come once, then one of them again.
#[test]
fn what_waits_for_the_lock_comes_out_in_order_and_is_counted() {
    let mut thread = Thread::new();
    let blocks: Vec<_> =
        (1..=3).map(|number| piece(&thread.live, number, number as usize * MIB)).collect();
    for block in &blocks {
        thread.allocate_piece(block);
    }
    for (block, ticket) in blocks.iter().zip(7..) {
        assert!(thread.kept.leave(block, ticket), "its size came once");
        assert!(!thread.kept.leave(block, ticket), "it is freed already");
    }
    let mut out = Vec::new();
    let mut end = |kept: &mut Bins| {
        kept.end_leaving(|piece| out.push((piece.address(), piece.bytes(), piece.busy_until())))
    };
    assert!(end(&mut thread.kept));
    assert!(!end(&mut thread.kept), "they are out");
    let freed = blocks.iter().zip(7..).map(|(it, ticket)| (it.address(), it.bytes(), ticket));
    assert_eq!(out, freed.collect::<Vec<_>>());
    assert_eq!(thread.kept.cell().sums(Quantity::Bytes).all.current, 0);
    thread.allocate_piece(&blocks[2]);
    assert!(!thread.kept.leave(&blocks[2], 0), "a bin keeps it, as its size comes again");
    let small = piece(&thread.live, 9, 8 * KIB);
    thread.allocate_piece(&small);
    assert!(!thread.kept.leave(&small, 0), "small sizes are few");
}

/// Goal: a thread whose frees all wait for the lock looks for sizes that it does not use, as often
/// as one whose frees are refused. Method: hundreds of sizes that come once, each out at once.
#[test]
fn what_waits_for_the_lock_does_not_put_the_sweep_off() {
    let mut thread = Thread::new();
    for number in 1..1_000 {
        let block = piece(&thread.live, number, MIB + 512 * number as usize);
        thread.allocate_piece(&block);
        if !thread.kept.leave(&block, 0) {
            assert_eq!(number, 256, "the slow path sweeps");
            return;
        }
        thread.kept.end_leaving(|_| ());
    }
    panic!("no free takes the slow path");
}

/// Goal: a thread that only frees what others take goes on keeping half of a bin. Method: pieces of
/// one size come again and again, as while other threads have caches, which want no half of them;
/// what is driven out comes next.
#[test]
fn a_size_that_only_comes_is_used() {
    let mut thread = Thread::new();
    let mut blocks: Vec<_> = (1..40).map(|number| piece(&thread.live, number, 512)).collect();
    for block in &blocks {
        thread.allocate_piece(block);
    }
    let mut least_bytes = usize::MAX;
    for frees in 0..20_000 {
        let block = blocks.pop().expect("what is not kept is driven out");
        let _ = thread.kept.older_half(Key::of(&block));
        blocks.extend(thread.free(block, u64::MAX));
        if frees > 40 {
            least_bytes = least_bytes.min(thread.inside_bytes);
        }
    }
    assert!(least_bytes >= 16 * 512, "{least_bytes} bytes were kept");
}

#[test]
fn a_stock_is_twice_the_one_before_and_small_after_the_cache_was_emptied() {
    let mut kept = Thread::new().kept;
    let key = Key { stream: 0, bytes: 512 };
    let mut stock = || kept.make_room_for_stock(key, class(key.bytes), u64::MAX);
    let first = [0; 5].map(|_| stock());
    assert_eq!(first, [2, 4, 8, 16, 16]);
    kept.drain(&mut |_| ());
    assert_eq!(kept.make_room_for_stock(key, class(key.bytes), u64::MAX), 2);
}

/// Goal: threads together keep no more than the bound, also when more of them come (R). Method: a
/// size is freed and taken under a smaller part than it was kept in.
#[test]
fn what_a_thread_uses_leaves_too_when_its_part_becomes_smaller() {
    let ((mut thread, mut blocks), most_bytes) = (Thread::with_all_in_use(), 2 * MIB as u64);
    for block in take_of(&mut blocks, 0, MIB) {
        thread.free(block, most_bytes);
    }
    assert_eq!(thread.inside_bytes, 2 * MIB);
    let (kept, used) = (&mut thread.kept, Key { stream: 0, bytes: MIB });
    let bound = Bound { most_bytes: MIB as u64, is_counted: true };
    let mut left_bytes = 0;
    for stream in [1, 2] {
        for other in take_of(&mut blocks, stream, 40 * MIB) {
            let key = Key::of(&other);
            kept.make_room(key, PoolClass::Large, bound, &mut |out| left_bytes += out.bytes());
            if let Some(found) = kept.take(used, MIB) {
                assert!(kept.keep(&found, 7), "its place is there");
            }
        }
    }
    assert_eq!(left_bytes, 2 * MIB, "though it was used");
}

/// Goal: a thread keeps what has pages of its own without a bound while it is alone, and no longer
/// (A3). Method: large pieces are freed under a small bound, then other threads come, and other
/// pieces find no room.
#[test]
fn what_does_not_count_is_kept_beyond_the_bound_until_it_counts() {
    let ((mut thread, mut blocks), most_bytes) = (Thread::with_all_in_use(), MIB as u64);
    let mut large = take_of(&mut blocks, 0, 40 * MIB);
    for _ in 0..2 {
        let block = large.pop().expect("there are many");
        blocks.extend(thread.free(block, most_bytes));
    }
    assert_eq!(thread.inside_bytes, 40 * MIB, "one piece from its second free on: it counts");
    thread.uncounted_from_bytes = 32 * MIB;
    let count = 1 + large.len();
    for block in large {
        blocks.extend(thread.free(block, most_bytes));
    }
    assert_eq!(thread.inside_bytes, count * 40 * MIB);
    for other in take_of(&mut blocks, 0, MIB).into_iter().take(2) {
        blocks.extend(thread.free(other, most_bytes));
    }
    assert_eq!(thread.inside_bytes % (40 * MIB), MIB, "others have the bound for themselves");

    thread.kept.claim_what_is_there(); // as when another thread comes
    let used = thread.take(0, 40 * MIB).expect("it was kept");
    assert!(thread.free(used, most_bytes).is_empty(), "its place is there");
    let mut left_bytes = 0;
    thread.uncounted_from_bytes = usize::MAX;
    let counted = Bound { most_bytes, is_counted: true };
    let no_room = Key { stream: 0, bytes: 3 * MIB };
    let mut frees = 0..12;
    while left_bytes == 0 {
        frees.next().expect("at the first look");
        let mut out = |piece: Allocated| left_bytes += piece.bytes();
        thread.kept.make_room(no_room, PoolClass::Small, counted, &mut out);
    }
    assert_eq!(left_bytes, thread.inside_bytes, "all that it has is above its part");
}

#[test]
fn a_thread_keeps_no_more_than_its_part_and_has_it_again() {
    let mut numbers = Numbers::new(seed());
    let (mut thread, mut outside) = Thread::with_all_in_use();
    let all: Vec<Key> = outside.iter().map(Key::of).collect();
    let mut most_bytes = MIB as u64;
    for _ in 0..ROUNDS {
        if numbers.below(500) == 0 {
            most_bytes = (MIB << numbers.below(6)) as u64;
            thread.uncounted_from_bytes = [MIB, 16 * MIB, usize::MAX][numbers.below(3)];
            outside.extend(thread.drain());
        }
        if numbers.below(2) == 0 && !outside.is_empty() {
            let block = outside.swap_remove(numbers.below(outside.len()));
            outside.extend(thread.free(block, most_bytes));
        } else {
            let like = all[numbers.below(all.len())];
            outside.extend(thread.take(like.stream, like.bytes));
        }
        let current = thread.kept.cell().sums(Quantity::Count).all.current;
        assert_eq!(current, i64::try_from(outside.len()).unwrap());
    }
    outside.extend(thread.drain());
    assert_eq!(outside.len(), PIECES as usize);
}
