//! Tests of the host heap, and of the C functions in front of it.
//!
//! Goal: no two objects overlap, resizes retain contents, statistics are exact, and all memory
//! returns to the device. Method: random requests beside a naive model, in threads that free each
//! other's memory, over the backend `cpu`; chosen sizes at the bounds of the size ranges; a backend
//! that runs out of memory.
#![expect(unsafe_code, reason = "writes and reads the memory, and calls the C functions")]

use std::ffi::c_void;
use std::ptr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::internal::{LockRank, Mutex};
use accelrt::size::{KIB, MIB};
use accelrt::{CachingAllocator, Config, Device};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::host_heap::heap::Heap;
use crate::host_heap::{Functions, boundary, calloc, free, is_ours, malloc, open, realloc};
use crate::numbers::Numbers;
use crate::seed::seed;

const ALIGN_BYTES: usize = 64;
/// The largest size that slabs serve.
const MOST_SMALL_BYTES: usize = 32 * KIB;
const PAGE_BYTES: usize = 4 * KIB;

/// Heaps that tests never drop, as the process's heap: leak checkers reach them from here.
static HEAPS: Mutex<Vec<&'static Heap>> = Mutex::new(LockRank::Runtime, Vec::new());

fn heap_over(backend: Arc<dyn Backend>) -> &'static Heap {
    heap_by(backend, "")
}

fn heap_by(backend: Arc<dyn Backend>, settings: &str) -> &'static Heap {
    let device = Device::new(backend.kind(), 0).unwrap();
    let config = settings.parse().unwrap();
    let allocator = Arc::new(CachingAllocator::heap(backend, device, config));
    let heap: &Heap = Box::leak(Box::new(Heap::new(allocator)));
    HEAPS.lock().push(heap);
    heap
}

fn heap() -> &'static Heap {
    heap_over(CpuBackend::new(&Config::default()).unwrap())
}

/// Asserts the objects and bytes in use, and the allocator's invariants.
fn check(heap: &Heap, requests: u64, bytes: u64) {
    let statistics = heap.statistics();
    assert_eq!(statistics.active_requests.current, requests);
    assert_eq!(statistics.active_bytes.current, bytes);
    assert!(statistics.active_requests.peak >= requests && statistics.active_bytes.peak >= bytes);
    assert!(statistics.allocated_bytes.current >= bytes);
    heap.allocator().check_all();
}

/// Asserts that no object is in use, and that all memory returns to the device.
fn check_empty(heap: &Heap) {
    check(heap, 0, 0);
    heap.allocator().empty_cache();
    assert_eq!(heap.statistics().allocated_bytes.current, 0);
    heap.allocator().check_all();
}

/// Memory of a test, filled with one byte value.
struct Live {
    address: usize,
    bytes: usize,
    byte: u8,
}

impl Live {
    fn new(address: usize, bytes: usize, byte: u8) -> Self {
        assert!(address.is_multiple_of(ALIGN_BYTES));
        let memory = ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the heap allocated memory of this size for this test.
        unsafe { ptr::write_bytes(memory, byte, bytes) };
        Self { address, bytes, byte }
    }

    fn check(&self) {
        let memory = ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: as in `new`, and the memory is not freed yet.
        let bytes = unsafe { std::slice::from_raw_parts(memory, self.bytes) };
        assert!(bytes.iter().all(|byte| *byte == self.byte), "somebody else wrote here");
    }
}

fn some_bytes(numbers: &mut Numbers) -> usize {
    match numbers.below(8) {
        0 => numbers.below(3 * MOST_SMALL_BYTES),
        1 => numbers.below(MIB / 4),
        2 | 3 => numbers.below(5000),
        _ => numbers.below(600),
    }
}

/// Allocates and frees at random. Returns the memory that remains in use.
fn run(heap: &Heap, numbers: &mut Numbers, steps: usize) -> Vec<Live> {
    let mut live: Vec<Live> = Vec::new();
    for step in 0..steps {
        if live.is_empty() || numbers.below(100) < 52 {
            let bytes = some_bytes(numbers);
            let address = heap.allocate(bytes).unwrap();
            assert!(heap.usable_bytes(address).unwrap() >= bytes);
            live.push(Live::new(address, bytes, u8::try_from(step % 251).unwrap()));
        } else {
            let gone = live.swap_remove(numbers.below(live.len()));
            gone.check();
            assert!(heap.free(gone.address));
        }
    }
    live
}

#[test]
fn an_address_has_no_owner_when_the_system_has_it_back() {
    // Goal: an address has no owner during the release of its memory. Method: a slab and a large
    // block; the second request mostly gets the same address, which has an owner again.
    for bytes in [64, 3 * MIB] {
        let faults = FaultBackend::new(CpuBackend::new(&Config::default()).unwrap());
        let heap = heap_over(Arc::<FaultBackend>::clone(&faults));
        let address = heap.allocate(bytes).unwrap();
        let (tell, told) = channel();
        let look = move || tell.send(heap.usable_bytes(address)).unwrap();
        faults.plan_callback(Method::ReleaseHost, 1, look);
        assert!(heap.free(address));
        heap.allocator().empty_cache();
        assert_eq!(told.recv(), Ok(None));
        let other = heap.allocate(bytes).unwrap();
        assert_eq!(heap.usable_bytes(other), Some(bytes));
        assert!(heap.free(other));
        check_empty(heap);
    }
}

#[test]
fn what_is_freed_and_not_in_use_is_leaked_and_counted() {
    open().unwrap();
    let (leaks, other) = (boundary::leaks(), Functions::LIBC);
    let large = malloc(40 * MIB, &other); // too large for thread caches
    // SAFETY: the block is in use, and this call frees it.
    unsafe { free(large, &other) };
    // SAFETY: a planted second free, which the heap detects.
    unsafe { free(large, &other) };
    assert!(boundary::leaks() > leaks, "the second free of a block");
    let heap = heap();
    let address = heap.allocate(200).unwrap();
    assert!(heap.free(address + 8)); // planted: no object begins there
    assert!(boundary::leaks() > leaks + 1, "a free inside of an object");
    assert!(heap.free(address) && heap.free(address)); // planted: a second free
    assert!(boundary::leaks() > leaks + 2, "the second free of an object");
    heap.allocator().check_all();
}

#[test]
fn a_panic_ends_before_c_and_the_heap_goes_on() {
    let leaks = boundary::leaks();
    let faults = FaultBackend::new(CpuBackend::new(&Config::default()).unwrap());
    let heap = heap_over(Arc::<FaultBackend>::clone(&faults));
    let address = heap.allocate(3 * MIB).unwrap();
    faults.plan(Fault::nth(Method::AllocateHost, 1, FaultError::Panic));
    assert_eq!(boundary::contain(None, || heap.allocate(3 * MIB)), None);
    faults.plan(Fault::nth(Method::ReleaseHost, 1, FaultError::Panic));
    boundary::contain((), || {
        assert!(heap.free(address));
        heap.allocator().empty_cache();
    });
    assert!(boundary::leaks() >= leaks + 2);
    let address = heap.allocate(3 * MIB).unwrap();
    assert!(heap.free(address));
    check_empty(heap);
}

#[test]
fn random_requests_and_frees_agree_with_a_model() {
    let (heap, mut numbers) = (heap(), Numbers::new(seed()));
    for _ in 0..2 {
        let live = run(heap, &mut numbers, 4000);
        let bytes = live.iter().map(|one| heap.usable_bytes(one.address).unwrap() as u64).sum();
        check(heap, live.len() as u64, bytes);
        for one in &live {
            one.check();
            assert!(heap.free(one.address));
        }
        check_empty(heap);
    }
}

#[test]
fn threads_free_what_others_were_given() {
    let (heap, begin) = (heap(), seed());
    let (post, receive) = channel::<Vec<Live>>();
    let receive = Mutex::new(LockRank::Runtime, receive);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (receive, post) = (&receive, post.clone());
            scope.spawn(move || {
                let mut numbers = Numbers::new(begin ^ thread);
                for _ in 0..20 {
                    post.send(run(heap, &mut numbers, 300)).unwrap();
                    let others = receive.lock().recv().unwrap();
                    for one in others {
                        one.check();
                        assert!(heap.free(one.address));
                    }
                    if thread == 0 {
                        heap.allocator().empty_cache(); // also empties the other threads' caches
                    }
                }
            });
        }
    });
    check_empty(heap);
}

#[test]
fn a_peak_is_exact_for_one_thread_and_bounded_by_what_threads_keep() {
    let heap = heap();
    let take = || -> Vec<usize> { (0..100).map(|_| heap.allocate(64).unwrap()).collect() };
    let addresses = take();
    let statistics = heap.statistics();
    assert_eq!((statistics.active_requests.peak, statistics.active_bytes.peak), (100, 6400));
    std::thread::scope(|scope| {
        let free = move || addresses.into_iter().for_each(|one| assert!(heap.free(one)));
        scope.spawn(free).join().unwrap();
    });
    for _ in 0..10 {
        for one in take() {
            assert!(heap.free(one));
        }
    }
    let statistics = heap.statistics();
    assert_eq!(statistics.active_requests.allocated, 1100);
    assert_eq!(statistics.active_requests.freed, 1100);
    let peak = statistics.active_requests.peak;
    assert!((100..=100 + 3 * 64).contains(&peak), "{peak}: the threads' own peaks are 200");
    check_empty(heap);
}

#[test]
fn what_a_thread_kept_serves_others_after_its_end() {
    let heap = heap();
    let address = std::thread::scope(|scope| {
        let turn_over = || {
            let address = heap.allocate(20_000).unwrap();
            assert!(heap.free(address));
            address
        };
        scope.spawn(turn_over).join().unwrap()
    });
    assert_eq!(heap.allocate(20_000), Some(address));
    assert!(heap.free(address));
    check_empty(heap);
}

#[test]
fn free_segments_above_the_bound_are_not_kept() {
    let settings = "pinned_max_cached_size_mb:4";
    let heap = heap_by(CpuBackend::new(&Config::default()).unwrap(), settings);
    let [small, large] = [MIB, 6 * MIB].map(|bytes| heap.allocate(bytes).unwrap());
    assert!(heap.free(small) && heap.free(large));
    let reserved_bytes = heap.statistics().allocated_bytes.current;
    assert!((1..=4 * MIB as u64).contains(&reserved_bytes), "{reserved_bytes}");
    check_empty(heap);
}

#[test]
fn segments_are_at_least_as_large_as_the_settings_say() {
    let settings = "pinned_reserve_segment_size_mb:8";
    let heap = heap_by(CpuBackend::new(&Config::default()).unwrap(), settings);
    let address = heap.allocate(100).unwrap();
    assert_eq!(heap.statistics().allocated_bytes.current, 8 * MIB as u64);
    assert!(heap.free(address));
    check_empty(heap);
}

#[test]
fn of_several_frees_of_a_large_block_one_counts() {
    // Goal: of concurrent frees of one large block, only one takes effect. Method: threads free one
    // block at once, then each requests a block; no two threads get the same one.
    const THREADS: usize = 3;
    let heap = heap();
    for _ in 0..200 {
        let address = heap.allocate(100_000).unwrap();
        let begin = Barrier::new(THREADS);
        let free_and_take = || {
            begin.wait();
            assert!(heap.free(address), "it is the heap's");
            begin.wait();
            heap.allocate(100_000).unwrap()
        };
        let mut again = std::thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(free_and_take));
            threads.map(|thread| thread.join().unwrap())
        });
        again.sort_unstable();
        assert!(again[0] != again[1] && again[1] != again[2]);
        for address in again {
            assert!(heap.free(address));
        }
    }
    check_empty(heap);
}

#[test]
fn what_threads_keep_serves_a_request_that_the_device_cannot() {
    let backend = FaultBackend::new(CpuBackend::new(&Config::default()).unwrap());
    let heap = heap_over(Arc::clone(&backend) as Arc<dyn Backend>);
    let (tell, told) = channel();
    let (go_on, goes_on) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2 {
                let kept = heap.allocate(6 * MIB).unwrap();
                assert!(heap.free(kept)); // the thread caches the second block
            }
            tell.send(()).unwrap();
            goes_on.recv().unwrap();
        });
        told.recv().unwrap();
        backend.plan(Fault::always(Method::AllocateHost, FaultError::OutOfMemory));
        let served = heap.allocate(5 * MIB).unwrap();
        assert!(heap.free(served));
        assert_eq!(heap.allocate(50 * MIB), None);
        go_on.send(()).unwrap();
    });
    check_empty(heap);
}

#[test]
fn slabs_that_are_free_go_back_while_others_are_in_use() {
    let heap = heap();
    let all: Vec<_> = (0..10_000).map(|_| heap.allocate(1000).unwrap()).collect();
    let (kept, freed) = all.split_first().unwrap();
    for address in freed {
        assert!(heap.free(*address));
    }
    heap.allocator().empty_cache();
    let reserved = heap.statistics().allocated_bytes.current;
    assert!(reserved <= 2 * MIB as u64, "{reserved} B for one object of 1 KiB");
    assert_eq!(heap.usable_bytes(freed[9000]), None, "the page is not the heap's any more");
    assert!(heap.free(*kept));
    check_empty(heap);
}

#[test]
fn without_memory_nothing_is_given_and_nothing_has_changed() {
    let backend = FaultBackend::new(NullBackend::new(NullConfig::default()));
    let heap = heap_over(Arc::clone(&backend) as Arc<dyn Backend>);
    backend.plan(Fault::always(Method::AllocateHost, FaultError::OutOfMemory));
    for bytes in [0, 1, MOST_SMALL_BYTES, MOST_SMALL_BYTES + 1, 5 * MIB] {
        assert_eq!(heap.allocate(bytes), None);
    }
    backend.clear();
    for bytes in [usize::MAX, usize::MAX - PAGE_BYTES, isize::MAX.unsigned_abs(), 1 << 62] {
        assert_eq!(heap.allocate(bytes), None);
    }
    check_empty(heap);
}

const NEVER_CALLED: Functions = {
    unsafe extern "C" fn malloc(_: usize) -> *mut c_void {
        panic!("memory of the heap")
    }
    unsafe extern "C" fn calloc(_: usize, _: usize) -> *mut c_void {
        panic!("memory of the heap")
    }
    unsafe extern "C" fn realloc(_: *mut c_void, _: usize) -> *mut c_void {
        panic!("memory of the heap")
    }
    unsafe extern "C" fn free(_: *mut c_void) {
        panic!("memory of the heap")
    }
    Functions { malloc, calloc, realloc, free }
};

#[test]
fn the_functions_serve_every_size_and_zeros_are_zeros() {
    open().unwrap();
    for bytes in [0, 1, 63, 64, 65, 1024, 1025, MOST_SMALL_BYTES, MOST_SMALL_BYTES + 1, 3 * MIB] {
        let address = malloc(bytes, &NEVER_CALLED).addr();
        let dirty = Live::new(address, bytes, 0xA5);
        // SAFETY: `malloc` just returned this memory, and `dirty` is not used again.
        unsafe { free(ptr::with_exposed_provenance_mut(dirty.address), &NEVER_CALLED) };
        let zeros = calloc(bytes, 1, &NEVER_CALLED);
        Live { address: zeros.addr(), bytes, byte: 0 }.check();
        // SAFETY: as above.
        unsafe { free(zeros, &NEVER_CALLED) };
    }
    for (count, bytes) in [(usize::MAX, 2), (1 << 33, 1 << 33), (3, usize::MAX / 2)] {
        assert!(calloc(count, bytes, &NEVER_CALLED).is_null());
    }
    assert!(malloc(usize::MAX, &NEVER_CALLED).is_null());
}

#[test]
fn what_is_resized_keeps_its_bytes() {
    open().unwrap();
    let mut numbers = Numbers::new(seed());
    for _ in 0..300 {
        let mut bytes = some_bytes(&mut numbers);
        // SAFETY: `realloc` accepts null, and then allocates.
        let mut memory = unsafe { realloc(ptr::null_mut(), bytes, &NEVER_CALLED) };
        for byte in 0..10 {
            let before = Live::new(memory.addr(), bytes, byte);
            let new_bytes = some_bytes(&mut numbers);
            // SAFETY: the memory is not freed yet, and the old pointer is not used again.
            memory = unsafe { realloc(memory, new_bytes, &NEVER_CALLED) };
            let kept = before.bytes.min(new_bytes);
            Live { address: memory.addr(), bytes: kept, byte }.check();
            bytes = new_bytes;
        }
        // SAFETY: the memory is not freed yet; the refused call leaves it unchanged.
        assert!(unsafe { realloc(memory, usize::MAX, &NEVER_CALLED) }.is_null());
        // SAFETY: the memory is not freed yet and not used again.
        unsafe { free(memory, &NEVER_CALLED) };
    }
}

#[test]
fn foreign_memory_is_freed_and_resized_by_its_own_functions() {
    open().unwrap();
    for bytes in [1, 4096, MIB] {
        // SAFETY: `malloc` accepts any size.
        let foreign = unsafe { libc::malloc(bytes) };
        assert!(!is_ours(foreign));
        // SAFETY: the C library allocated the memory, and the call gets its functions.
        let foreign = unsafe { realloc(foreign, 2 * bytes, &Functions::LIBC) };
        assert!(!is_ours(foreign));
        // SAFETY: as above. A sanitizer run reports a leak or a wrong owner.
        unsafe { free(foreign, &Functions::LIBC) };
    }
    let own = malloc(100, &NEVER_CALLED);
    assert!(is_ours(own));
    // SAFETY: the memory is not freed yet and not used again.
    unsafe { free(own, &NEVER_CALLED) };
    // SAFETY: `free` accepts null.
    unsafe { free(ptr::null_mut(), &Functions::LIBC) };
}

#[test]
fn a_thread_that_ends_frees_in_its_last_moments() {
    /// Frees its memory when the thread-locals are destroyed.
    struct Last(std::cell::Cell<*mut c_void>);
    impl Drop for Last {
        fn drop(&mut self) {
            // SAFETY: memory of the heap, which only this value has.
            unsafe { free(self.0.get(), &NEVER_CALLED) };
            let again = malloc(5000, &NEVER_CALLED);
            // SAFETY: as above.
            unsafe { free(again, &NEVER_CALLED) };
        }
    }
    thread_local!(static LAST: Last = const { Last(std::cell::Cell::new(ptr::null_mut())) });
    open().unwrap();
    for is_first in [true, false] {
        std::thread::spawn(move || {
            if is_first {
                // Initialises `LAST` before the heap's thread-local; round two does so after.
                LAST.with(|_| ());
            }
            let memory = malloc(5000, &NEVER_CALLED);
            LAST.with(|last| last.0.set(memory));
        })
        .join()
        .unwrap();
    }
}
