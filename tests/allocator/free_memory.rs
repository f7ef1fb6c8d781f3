//! Law 8 under policy `native`: memory that is free is handed out, wherever it is.
//!
//! Goal: no request fails, and none takes more from the device, while free memory can hold it.
//! Method: devices that are exactly large enough, and layouts made by hand in which the free memory
//! is where a search has to look for it. Random programs ask the same of every refusal (`driver`).

use accelrt::allocator::Allocated;

use crate::support::{Bench, KIB, MIB};

/// Without threads' caches, so that each free block is where the test puts it.
const NATIVE: &str = "policy:native,exact_statistics:True";

/// Blocks of two sizes in turns; each pair fills two pages of 2 MiB.
fn pairs(bench: &Bench, count: usize, first_kib: usize) -> (Vec<Allocated>, Vec<Allocated>) {
    let rest_kib = 4096 - first_kib;
    (0..count).map(|_| (bench.take(first_kib * KIB), bench.take(rest_kib * KIB))).unzip()
}

#[test]
fn memory_at_the_end_of_a_free_block_serves_after_the_pages_before_it_moved() {
    let bench = Bench::of_capacity(NATIVE, 16 * MIB);
    let (large, small) = pairs(&bench, 4, 3584);
    for block in large {
        bench.free(block);
    }
    let moved = bench.take(8 * MIB); // the first page of each
    assert_eq!(bench.statistics().num_pages_stolen, 4);
    let rest = [(); 4].map(|()| bench.take(1536 * KIB));
    assert_eq!(bench.statistics().num_pages_stolen, 4, "they had their memory");
    for block in small.into_iter().chain(rest).chain([moved]) {
        bench.free(block);
    }
}

#[test]
fn memory_inside_a_free_block_serves_before_pages_move_or_the_device_is_asked() {
    let bench = Bench::new(NATIVE);
    let whole = bench.free(bench.take(60 * MIB));
    let moved = bench.take(6 * MIB); // the three pages that have been idle for longest
    let inside = bench.take(40 * MIB);
    let statistics = bench.statistics();
    assert_eq!((statistics.num_pages_stolen, bench.reserved_bytes()), (3, 60 * MIB));
    assert_eq!(inside.address() - whole, 6 * MIB as u64);
    for block in [moved, inside] {
        bench.free(block);
    }
}

#[test]
fn the_device_is_not_asked_while_any_of_many_free_blocks_has_its_memory() {
    // Goal: the bound of a search is no reason to grow. Method: more free blocks that miss a page
    // than a bounded search looks at, all of them smaller than the one that misses none.
    let bench = Bench::of_capacity(NATIVE, 256 * MIB);
    let (holes, mut kept) = pairs(&bench, 60, 2560);
    kept.push(bench.take(500 * KIB));
    let last = bench.take(3072 * KIB);
    kept.push(bench.take(524 * KIB)); // the pages of the block before it are shared
    for block in holes {
        bench.free(block);
    }
    kept.push(bench.take(120 * MIB)); // the first page of each hole
    let last = bench.free(last);
    let reserved_bytes = bench.reserved_bytes();
    let again = bench.take(1600 * KIB);
    assert_eq!((again.address(), bench.reserved_bytes()), (last, reserved_bytes));
    for block in kept.into_iter().chain([again]) {
        bench.free(block);
    }
}
