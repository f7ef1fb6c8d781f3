//! Tests only: virtual memory against a model, with kernel failures and concurrent threads.
#![expect(unsafe_code, reason = "accesses the pages, and simulates another thread's mmap")]

use super::super::faults;
use super::*;
use crate::backend::contract::VirtualMemory as _;
use crate::base::device::Device;
use crate::numbers::Numbers;
use crate::seed::seed;
use crate::trusted::TrustedPages;

const CAPACITY_BYTES: usize = 64 * GRANULE_BYTES;

fn memory() -> TrustedPages<Box<CpuVirtualMemory>> {
    let capacity = Arc::new(Capacity::new(Device::cpu(0), CAPACITY_BYTES));
    TrustedPages(Box::new(CpuVirtualMemory::with_mappings(capacity, MapCount::for_test(1000))))
}

/// Checks that capacity and mapping count are back at their start after all releases.
fn assert_nothing_is_left(memory: &CpuVirtualMemory) {
    assert_eq!(memory.capacity.info().free_bytes, CAPACITY_BYTES);
    assert_eq!(memory.mappings.used(), 0);
}

fn granule(base: Address, index: usize) -> Address {
    base.offset(index * GRANULE_BYTES)
}

fn bytes_at(address: Address, granules: usize) -> &'static mut [u8] {
    let base: *mut u8 = std::ptr::with_exposed_provenance_mut(address.0.try_into().unwrap());
    // SAFETY: mapped granules of the calling test, which uses one such slice at a time.
    unsafe { std::slice::from_raw_parts_mut(base, granules * GRANULE_BYTES) }
}

fn is_inaccessible(address: Address, granules: usize) -> bool {
    pages::is_inaccessible(Span::new(address, granules * GRANULE_BYTES))
}

#[test]
fn contents_move_with_the_pages_and_vacated_addresses_are_closed() {
    let memory = memory();
    let range = memory.reserve(8 * GRANULE_BYTES).unwrap();
    assert!(is_inaccessible(range, 8));
    let [left, moved, right] = [1, 2, 1].map(|n| memory.create(n * GRANULE_BYTES).unwrap());
    for (index, handle, granules) in [(0, left, 1), (1, moved, 2), (3, right, 1)] {
        memory.map(granule(range, index), handle).unwrap();
        bytes_at(granule(range, index), granules).fill(u8::try_from(index).unwrap() + 1);
    }
    let check = |at: usize| {
        assert!(bytes_at(granule(range, at), 2).iter().all(|byte| *byte == 2));
        assert!(bytes_at(range, 1).iter().all(|byte| *byte == 1));
        assert!(bytes_at(granule(range, 3), 1).iter().all(|byte| *byte == 4));
    };
    memory.relocate(moved, granule(range, 4)).unwrap();
    assert!(is_inaccessible(granule(range, 1), 2));
    check(4);
    memory.relocate(moved, granule(range, 5)).unwrap(); // overlaps its old range
    assert!(is_inaccessible(granule(range, 4), 1));
    check(5);
    memory.relocate(moved, granule(range, 5)).unwrap();
    memory.unmap(moved).unwrap();
    assert!(is_inaccessible(granule(range, 4), 4));
    memory.map(granule(range, 1), moved).unwrap();
    check(1);
    assert_eq!(memory.capacity.info().free_bytes, CAPACITY_BYTES - 4 * GRANULE_BYTES);
    for handle in [left, moved, right] {
        memory.unmap(handle).unwrap();
        memory.release(handle).unwrap();
    }
    memory.unreserve(range, 8 * GRANULE_BYTES).unwrap();
    assert_nothing_is_left(&memory);
}

/// The number of kernel mappings in some granules, from `/proc/self/maps`.
fn mappings_in(base: Address, granules: usize) -> usize {
    let end = base.0 + (granules * GRANULE_BYTES) as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_inside = |line: &&str| {
        let (range, _) = line.split_once(' ').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let [first, last] = [first, last].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        first < end && last > base.0
    };
    maps.lines().filter(is_inside).count()
}

/// Goal: our count reaches its limit before the kernel's. Method: the test maps, releases and moves
/// pages at random, and compares the count with the kernel's list each time. It counts parked
/// pages, whose mappings are outside the range, separately.
#[test]
fn the_mapping_count_bounds_the_kernels() {
    const GRANULES: usize = 40;
    let mut numbers = Numbers::new(seed());
    let memory = memory();
    let range = memory.reserve(GRANULES * GRANULE_BYTES).unwrap();
    let (mut mapped, mut parked) = (vec![None; GRANULES], Vec::new());
    let mut most = 0;
    for round in 0..400 {
        let place = numbers.below(GRANULES);
        match (mapped[place].take(), numbers.below(3)) {
            (None, choice) => {
                let waiting = if choice == 0 { parked.pop() } else { None };
                let handle = waiting.or_else(|| memory.create(GRANULE_BYTES).ok());
                if let Some(handle) = handle {
                    memory.map(granule(range, place), handle).unwrap();
                }
                mapped[place] = handle;
            }
            (Some(handle), 0) => {
                memory.unmap(handle).unwrap();
                memory.release(handle).unwrap();
            }
            (Some(handle), 1) => {
                memory.unmap(handle).unwrap();
                parked.push(handle);
            }
            (Some(handle), _) => {
                let to = mapped.iter().position(Option::is_none).expect("where it was is vacant");
                memory.relocate(handle, granule(range, to)).unwrap();
                mapped[to] = Some(handle);
            }
        }
        let (counted, known) = (memory.mappings.used(), mappings_in(range, GRANULES));
        assert!(known + parked.len() <= counted, "round {round}: {known} of {counted}");
        assert!(counted <= 2 * GRANULES + 1 + parked.len(), "round {round}: {counted}");
        most = most.max(known);
    }
    assert!(most > 2, "the kernel tells pages from vacant places: {most}");
    for handle in mapped.into_iter().flatten() {
        memory.unmap(handle).unwrap();
        memory.release(handle).unwrap();
    }
    for handle in parked {
        memory.release(handle).unwrap();
    }
    memory.unreserve(range, GRANULES * GRANULE_BYTES).unwrap();
    assert_nothing_is_left(&memory);
}

#[test]
fn a_refusal_of_any_system_call_leaves_the_accounting_true_and_a_second_try_works() {
    for refused in 0.. {
        let memory = memory();
        faults::refuse_after(refused, || ());
        let again = |call: &dyn Fn() -> Result<()>| {
            call().or_else(|_| call()).unwrap_or_else(|error| panic!("call {refused}: {error}"));
        };
        let reserve = || memory.reserve(8 * GRANULE_BYTES);
        let range = reserve().or_else(|_| reserve()).unwrap();
        let handle = memory.create(2 * GRANULE_BYTES).unwrap();
        again(&|| memory.map(range, handle));
        bytes_at(range, 2).fill(9);
        for index in [4, 3, 6] {
            again(&|| memory.relocate(handle, granule(range, index)));
            assert!(bytes_at(granule(range, index), 2).iter().all(|byte| *byte == 9));
        }
        again(&|| memory.unmap(handle));
        assert!(is_inaccessible(range, 8));
        again(&|| memory.map(granule(range, 2), handle));
        assert!(bytes_at(granule(range, 2), 2).iter().all(|byte| *byte == 9));
        again(&|| memory.unmap(handle));
        again(&|| memory.release(handle));
        again(&|| memory.unreserve(range, 8 * GRANULE_BYTES));
        assert_nothing_is_left(&memory);
        if faults::clear() {
            assert!(refused > 10, "the scenario makes {refused} calls");
            return;
        }
    }
}

#[test]
fn addresses_taken_by_another_thread_during_a_failed_move_are_not_touched() {
    let memory = memory();
    let range = memory.reserve(4 * GRANULE_BYTES).unwrap();
    let handle = memory.create(GRANULE_BYTES).unwrap();
    memory.map(range, handle).unwrap();
    bytes_at(range, 1).fill(3);
    let (to, taken) = (granule(range, 2), Span::new(granule(range, 2), GRANULE_BYTES));
    faults::refuse_after(0, move || {
        // The kernel unmaps the target before it fails; then another thread maps pages there. Here
        // both happen at once: a parallel test must not take the addresses in between.
        // SAFETY: the test owns these vacant pages, which now simulate another thread's mapping.
        unsafe { pages::commit(taken) }.unwrap();
        bytes_at(to, 1).fill(8);
    });
    assert!(memory.relocate(handle, to).is_err());
    let message = memory.relocate(handle, to).unwrap_err().to_string();
    assert!(message.contains("were lost"), "{message}");
    assert!(bytes_at(range, 1).iter().all(|byte| *byte == 3));
    memory.relocate(handle, granule(range, 3)).unwrap();
    memory.unmap(handle).unwrap();
    memory.unreserve(range, 4 * GRANULE_BYTES).unwrap();
    assert!(bytes_at(to, 1).iter().all(|byte| *byte == 8), "the other's pages were touched");
    // SAFETY: the simulated thread owns these pages and no longer uses them.
    unsafe { pages::unmap(taken) }.unwrap();
    memory.release(handle).unwrap();
    assert_nothing_is_left(&memory);
}

#[test]
fn pages_with_a_split_mapping_stay_in_place_or_move_whole() {
    let memory = memory();
    let range = memory.reserve(4 * GRANULE_BYTES).unwrap();
    let [cut, other] = [(); 2].map(|()| memory.create(GRANULE_BYTES).unwrap());
    memory.map(range, cut).unwrap();
    bytes_at(range, 1).fill(5);
    let half: *mut libc::c_void = bytes_at(range, 1).as_mut_ptr().cast();
    // SAFETY: owned pages; this advice changes no contents.
    let advised = unsafe { libc::madvise(half, GRANULE_BYTES / 2, libc::MADV_DONTFORK) };
    assert_eq!(advised, 0);
    let to = granule(range, 2);
    // Kernels differ: some move the pages, others unmap the target and then fail.
    if memory.relocate(cut, to).is_ok() {
        assert!(bytes_at(to, 1).iter().all(|byte| *byte == 5));
        return;
    }
    assert!(bytes_at(range, 1).iter().all(|byte| *byte == 5));
    match memory.map(to, other) {
        Ok(()) => bytes_at(to, 1).fill(6),
        // A parallel test may have mapped pages there in between.
        Err(error) => assert!(error.to_string().contains("were lost"), "{error}"),
    }
}

/// Generates random numbers by splitmix64 of Sebastiano Vigna; the field is the state.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}

/// The expected state of one physical memory: the first and last byte of each granule hold the tag.
struct Model {
    handle: PhysicalHandle,
    granules: usize,
    tag: u8,
    /// Index of the reserved range, and of the granule inside it.
    mapped: Option<(usize, usize)>,
}

const RANGE_GRANULES: usize = 8;

fn vacancies(models: &[Model], moving: Option<usize>, granules: usize) -> Vec<(usize, usize)> {
    let others = models.iter().enumerate().filter(|(index, _)| Some(*index) != moving);
    let taken: Vec<_> = others
        .filter_map(|(_, model)| model.mapped.map(|(range, at)| (range, at, model.granules)))
        .collect();
    let is_free = |range: usize, at: usize| {
        let clear = |&(other, start, length): &(usize, usize, usize)| {
            other != range || start + length <= at || at + granules <= start
        };
        taken.iter().all(clear)
    };
    let starts = 0..=RANGE_GRANULES - granules;
    let all = (0..2).flat_map(|range| starts.clone().map(move |at| (range, at)));
    all.filter(|&(range, at)| is_free(range, at)).collect()
}

/// Makes random calls, and compares the memory with the model after each call.
fn random_sequence(seed: u64) {
    let memory = memory();
    let mut random = Random(seed);
    let ranges = [(); 2].map(|()| memory.reserve(RANGE_GRANULES * GRANULE_BYTES).unwrap());
    let at = |(range, index): (usize, usize)| granule(ranges[range], index);
    let mut models: Vec<Model> = Vec::new();
    for step in 0..120 {
        if models.is_empty() || (models.len() < 7 && random.below(4) == 0) {
            let granules = 1 + random.below(3);
            let handle = memory.create(granules * GRANULE_BYTES).unwrap();
            models.push(Model { handle, granules, tag: 0, mapped: None });
        }
        let chosen = random.below(models.len());
        let places = vacancies(&models, Some(chosen), models[chosen].granules);
        let model = &mut models[chosen];
        match (model.mapped, random.below(3)) {
            (None, 0) => {
                memory.release(model.handle).unwrap();
                models.swap_remove(chosen);
            }
            (Some(_), 0) => {
                memory.unmap(model.handle).unwrap();
                model.mapped = None;
            }
            (before, _) if !places.is_empty() => {
                let place = places[random.below(places.len())];
                match before {
                    None => memory.map(at(place), model.handle).unwrap(),
                    Some(_) => memory.relocate(model.handle, at(place)).unwrap(),
                }
                model.mapped = Some(place);
                if model.tag == 0 {
                    model.tag = u8::try_from(step).unwrap() + 1;
                    for granule in bytes_at(at(place), model.granules).chunks_mut(GRANULE_BYTES) {
                        (granule[0], granule[GRANULE_BYTES - 1]) = (model.tag, model.tag);
                    }
                }
            }
            _ => {}
        }
        for model in &models {
            let Some(place) = model.mapped else { continue };
            for granule in bytes_at(at(place), model.granules).chunks(GRANULE_BYTES) {
                assert_eq!([granule[0], granule[GRANULE_BYTES - 1]], [model.tag; 2]);
            }
        }
        for (range, index) in vacancies(&models, None, 1) {
            assert!(step % 10 > 0 || is_inaccessible(at((range, index)), 1), "{range} {index}");
        }
        let used: usize = models.iter().map(|model| model.granules * GRANULE_BYTES).sum();
        assert_eq!(memory.capacity.info().free_bytes, CAPACITY_BYTES - used);
    }
    let (capacity, mappings) = (Arc::clone(&memory.capacity), memory.mappings);
    drop(memory);
    assert_eq!((capacity.info().free_bytes, mappings.used()), (CAPACITY_BYTES, 0));
}

/// On a failure, the thread's name is the seed that reproduces the sequence.
#[test]
fn random_sequences_agree_with_a_model() {
    for seed in 0..24 {
        let thread = std::thread::Builder::new().name(format!("seed {seed}"));
        thread.spawn(move || random_sequence(seed)).unwrap().join().unwrap();
    }
}

#[test]
fn devices_move_their_pages_side_by_side() {
    std::thread::scope(|scope| {
        for seed in 100..104 {
            let thread = std::thread::Builder::new().name(format!("seed {seed}"));
            thread.spawn_scoped(scope, move || random_sequence(seed)).unwrap();
        }
    });
}
