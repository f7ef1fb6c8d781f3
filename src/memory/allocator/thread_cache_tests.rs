//! Tests of what threads leave to others, and of pieces that wait for the lock.

use std::thread;

use super::*;
use crate::base::device::{Device, DeviceKind};
use crate::base::size::MIB;
use crate::memory::allocator::allocated::Handle;
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::ids::BlockId;
use crate::memory::allocator::live_table::LiveTable;
use crate::memory::allocator::{AllocatorConfig, CachingAllocator, Request};
use crate::null::{NullBackend, NullConfig};
use crate::numbers::Numbers;
use crate::seed::seed;

/// Half a bin of pieces, each with an address of its own, until the task of its number.
fn half_bin(live: &LiveTable, key: Key, first: u64) -> [CachedBlock; HALF_BIN] {
    std::array::from_fn(|nth| {
        let address = first + nth as u64;
        let block = BlockId::from_number(u32::try_from(address).unwrap());
        let handle = Handle::of_mark(live.mark_of(BlockRef::block(block)), live.tag());
        let piece = Allocated::of_piece(handle, address, key.bytes, address, key.stream);
        piece.single_until(address, handle.untagged(live.tag()).unwrap().0)
    })
}

fn known_bytes(model: &[(Key, Vec<u64>)]) -> usize {
    model.iter().map(|(key, pieces)| key.bytes * pieces.len()).sum()
}

/// Goal: each piece comes out once, of its key, the newest first, within the bounds. Method:
/// random steps beside a model; keys of which few fit, and keys of which many do.
#[test]
fn what_was_put_comes_out_once_and_is_bounded() {
    let (mut numbers, live) = (Numbers::new(seed()), LiveTable::default());
    let (mut batches, mut next) = (TransferCache::default(), 1);
    let mut model: Vec<(Key, Vec<u64>)> = Vec::new();
    for _ in 0..20_000 {
        let (stream, step) = (numbers.below(2) as u64, numbers.below(9));
        let key = Key { stream, bytes: [64, 512, 2 * KIB, 8 * KIB][numbers.below(4)] };
        if step < 4 {
            let is_fit = known_bytes(&model) + HALF_BIN * key.bytes <= MOST_BYTES;
            let pieces = half_bin(&live, key, next);
            let is_put = batches.put(key, &pieces);
            assert_eq!(is_put, is_fit && model.len() < MOST_BATCHES);
            if is_put {
                model.push((key, (next..).take(HALF_BIN).collect()));
                next += HALF_BIN as u64;
            }
        } else if step < 8 {
            let most = numbers.below(HALF_BIN + 4);
            let mut taken = Vec::new();
            let count = batches.take(key, most, &mut |single| {
                let piece = single.of(single.handle().tagged(live.tag()), key.bytes, stream);
                assert_eq!(piece.busy_until(), piece.address());
                taken.push(piece.address());
            });
            assert_eq!(count, taken.len());
            let newest = model.iter().rposition(|(known, _)| *known == key);
            let expected = newest.map_or(Vec::new(), |place| {
                let pieces = &mut model[place].1;
                pieces.split_off(pieces.len().saturating_sub(most))
            });
            assert_eq!(taken, expected);
            model.retain(|(_, pieces)| !pieces.is_empty());
        } else if numbers.below(10) == 0 {
            let mut out: Vec<u64> =
                batches.drain(live.tag()).iter().map(Allocated::address).collect();
            let mut expected: Vec<u64> = model.drain(..).flat_map(|(_, pieces)| pieces).collect();
            out.sort_unstable();
            expected.sort_unstable();
            assert_eq!(out, expected);
        }
        assert_eq!(batches.bytes, known_bytes(&model));
    }
}

const BYTES: usize = 512;

fn allocator(capacity_bytes: usize) -> CachingAllocator {
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let null = NullBackend::new(NullConfig { capacity_bytes, ..NullConfig::default() });
    CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap()
}

/// This thread takes pieces, and another one, which it returns, has freed them.
fn hand_over<'a>(scope: &'a thread::Scope<'a, '_>, allocator: &'a CachingAllocator) {
    let request = Request::new(BYTES, 0);
    let blocks: Vec<_> = (0..200).map(|_| allocator.allocate(request).unwrap()).collect();
    scope.spawn(move || free_all(allocator, blocks)).join().unwrap();
}

/// A thread's end gives back what it caches, and leaves the batches.
fn free_all(allocator: &CachingAllocator, blocks: Vec<Allocated>) {
    for block in blocks {
        allocator.free(block).unwrap();
    }
}

/// Goal: what one thread frees another one gets, and no slab is touched. Method: the heap
/// counts what comes back to it.
#[test]
fn what_one_thread_frees_another_one_gets_without_the_heap() {
    let allocator = allocator(64 * MIB);
    thread::scope(|scope| hand_over(scope, &allocator));
    let left = allocator.state.lock().native.batches.bytes;
    assert!(left >= 2 * HALF_BIN * BYTES, "{left} bytes are on their way");
    let request = Request::new(BYTES, 0);
    // What this thread has cached goes first, and each miss takes one piece of a slab.
    let taken: Vec<_> = (0..200).map(|_| allocator.allocate(request).unwrap()).collect();
    assert_eq!(allocator.state.lock().native.batches.bytes, 0);
    let mut places: Vec<u64> = taken.iter().map(Allocated::address).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 200, "each piece once");
    for block in taken {
        allocator.free(block).unwrap();
    }
}

/// Goal: an error counts what is on its way as free. Method: no cache is open, and the request
/// is larger than any memory.
#[test]
fn an_error_tells_what_is_on_its_way_as_free() {
    let allocator = allocator(64 * MIB);
    let request = Request::new(BYTES, 0);
    let blocks: Vec<_> = (0..200).map(|_| allocator.allocate(request).unwrap()).collect();
    let _ = allocator.statistics_at_rest(); // closes this thread's cache
    thread::scope(|scope| scope.spawn(|| free_all(&allocator, blocks)).join().unwrap());
    assert!(allocator.state.lock().native.batches.bytes > 0);
    let refused = allocator.allocate(Request::new(usize::MAX, 0)).unwrap_err().to_string();
    assert!(refused.contains(" 0 B are allocated"), "{refused}");
}

/// Goal: what is on its way is memory that a request gets. Method: nothing else is left, by the
/// request's own shortage and by the program's wish.
#[test]
fn what_is_on_its_way_is_there_for_a_request_that_is_short() {
    let allocator = allocator(4 * MIB);
    thread::scope(|scope| hand_over(scope, &allocator));
    assert!(allocator.state.lock().native.batches.bytes > 0);
    let all = allocator.allocate(Request::new(4 * MIB, 0)).expect("nobody uses memory");
    allocator.free(all).unwrap();
    thread::scope(|scope| hand_over(scope, &allocator));
    assert!(allocator.state.lock().native.batches.bytes > 0);
    allocator.empty_cache();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
}
