//! What is tried when memory is short, in which order, and what is said when nothing helps.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use accelrt::allocator::{CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::{AllocatorConfig, Device, DeviceKind, Error, MemoryError};
use accelrt_testing::fault::{FaultBackend, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::pools::POOL;
use crate::support::{Bench, KIB, MIB};

#[test]
fn cached_segments_go_back_when_the_device_has_too_little() {
    // Specification 2.4.6d: release_cached_blocks, then alloc_block with isRetry.
    let bench = Bench::of_capacity("", 60 * MIB);
    let blocks = [bench.take(20 * MIB), bench.take(20 * MIB)];
    for block in blocks {
        bench.free(block);
    }
    let _ = bench.take(44 * MIB);
    let statistics = bench.statistics();
    assert_eq!(bench.reserved_bytes(), 44 * MIB);
    assert_eq!((statistics.num_alloc_retries, statistics.num_sync_all_streams), (1, 1));
    assert_eq!((statistics.num_device_alloc, statistics.num_device_free), (3, 2));
}

#[test]
fn split_segments_stay_when_memory_is_short() {
    // Specification 2.7: release all unsplit blocks.
    let bench = Bench::of_capacity("", 42 * MIB);
    let _ = bench.take(512);
    let large = bench.take(20 * MIB);
    bench.free(large);
    let _ = bench.take(22 * MIB);
    assert_eq!(bench.reserved_bytes(), 24 * MIB);
}

#[test]
fn an_oversize_block_that_is_enough_goes_back_alone() {
    // Specification 2.4.6c and 2.7: release_available_cached_blocks.
    let bench = Bench::of_capacity("max_split_size_mb:32", 109 * MIB);
    let blocks = [bench.take(512), bench.take(64 * MIB)];
    for block in blocks {
        bench.free(block);
    }
    let _ = bench.take(44 * MIB); // 64 MiB would waste 20
    assert_eq!(bench.reserved_bytes(), 46 * MIB, "the small segment stays");
    let statistics = bench.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_sync_all_streams), (0, 0));
}

#[test]
fn several_oversize_blocks_go_back_until_they_are_enough_the_largest_first() {
    // Specification 2.7: from the top until their sum is enough.
    let bench = Bench::of_capacity("max_split_size_mb:32", 140 * MIB);
    let blocks = [32, 36, 40].map(|mib| bench.take(mib * MIB));
    for block in blocks {
        bench.free(block);
    }
    let _ = bench.take(74 * MIB);
    assert_eq!(bench.reserved_bytes(), (32 + 74) * MIB);
    assert_eq!(bench.statistics().num_alloc_retries, 0);
}

#[test]
fn garbage_of_more_than_average_age_goes_back_above_the_threshold() {
    // Specification 2.7: 256 MiB are allowed, so above 128 MiB garbage is collected.
    let settings = "per_process_memory_fraction:0.25,garbage_collection_threshold:0.5";
    let bench = Bench::new(settings);
    let old = [(); 3].map(|()| bench.take(40 * MIB));
    for block in old {
        bench.free(block);
    }
    let young = bench.take(50 * MIB);
    assert_eq!(bench.reserved_bytes(), 170 * MIB, "120 MiB were below the threshold");
    let young = bench.free(young);
    let _ = bench.take(60 * MIB);
    assert_eq!(bench.reserved_bytes(), 110 * MIB, "the three old ones are gone");
    assert_eq!(bench.statistics().num_device_free, 3);
    assert_eq!(bench.take(50 * MIB).address(), young);
}

#[test]
fn without_a_limit_no_garbage_is_collected() {
    // Specification 2.4.5: only if the fraction is set.
    let bench = Bench::new("garbage_collection_threshold:0.01");
    let old = bench.take(40 * MIB);
    bench.free(old);
    let _ = bench.take(60 * MIB);
    assert_eq!(bench.reserved_bytes(), 100 * MIB);
}

#[test]
fn a_limit_holds_although_the_device_has_more() {
    // Specification 2.4: allowed_memory_maximum, no driver call.
    let bench = Bench::new("per_process_memory_fraction:0.05"); // 51.2 MiB
    let block = bench.take(40 * MIB);
    bench.request(Request::new(12 * MIB, 0)).unwrap_err();
    bench.free(block);
    let _ = bench.take(12 * MIB); // a part of the cached one
    assert_eq!(bench.reserved_bytes(), 40 * MIB);
    bench.allocator.set_memory_fraction(1.0).unwrap();
    let _ = bench.take(60 * MIB);
    for wrong in [-0.1, 1.1, f64::NAN] {
        bench.allocator.set_memory_fraction(wrong).unwrap_err();
    }
}

#[test]
fn the_last_byte_of_a_limit_is_given() {
    // Goal: a request that fills device or limit exactly succeeds, and one byte more fails. Method:
    // each policy, with nothing and something held, by one request and by many.
    let capacity = 80 * MIB; // pages of expandable segments have 20
    for policy in ["policy:native", "policy:torch", "policy:torch,expandable_segments:True"] {
        for (fraction, limit) in [(1.0, capacity), (0.5, capacity / 2)] {
            for held_bytes in [0, 20 * MIB, limit - 20 * MIB] {
                let bench = Bench::of_capacity(policy, capacity);
                bench.allocator.set_memory_fraction(fraction).unwrap();
                let _held = (held_bytes > 0).then(|| bench.take(held_bytes));
                let at = format!("{policy}, {held_bytes} of {limit}");
                let rest = limit - bench.reserved_bytes();
                bench.request(Request::new(rest + 1, 0)).expect_err(&at);
                let block = bench.request(Request::new(rest, 0)).expect(&at);
                assert_eq!(bench.reserved_bytes(), limit, "{at}");
                bench.request(Request::new(1, 0)).expect_err(&at);
                bench.free(block);
                bench.empty_cache();
                let rest = limit - bench.reserved_bytes();
                let blocks: Vec<_> = (0..rest / MIB).map(|_| bench.take(MIB)).collect();
                bench.request(Request::new(MIB, 0)).expect_err(&at);
                drop(blocks);
            }
        }
    }
}

#[test]
fn above_the_fraction_a_request_can_fail_before_anything_goes_back() {
    let settings = "policy:native,exact_statistics:True,throw_on_cudamalloc_oom:True,\
        per_process_memory_fraction:0.05";
    let bench = Bench::new(settings);
    let _held = bench.take(20 * MIB);
    let block = bench.take(20 * MIB);
    bench.free(block);
    bench.request(Request::new(50 * MIB, 0)).unwrap_err();
    let statistics = bench.statistics();
    assert_eq!((statistics.num_oom_rejections, statistics.num_alloc_retries), (1, 0));
    assert_eq!(statistics.num_sync_all_streams, 0);
    assert_eq!(bench.reserved_bytes(), 40 * MIB, "the cache was not touched");
}

#[test]
fn the_error_of_a_request_says_what_there_was() {
    // Specification 2.9, with our numbers.
    let bench = Bench::of_capacity("", 64 * MIB);
    let _ = bench.take(30 * MIB);
    let [_before, hole, _behind] = [(); 3].map(|()| bench.take(300 * KIB));
    bench.free(hole);
    let error = bench.request(Request::new(40 * MIB, 0)).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory {
        requested_bytes,
        free_bytes,
        total_bytes,
        ref cache,
        ..
    }) = error
    else {
        panic!("{error}")
    };
    assert_eq!((requested_bytes, free_bytes, total_bytes), (40 * MIB, 32 * MIB, 64 * MIB));
    let cache = cache.as_deref().unwrap();
    assert_eq!((cache.allocated_bytes, cache.reserved_bytes), (30 * MIB + 600 * KIB, 32 * MIB));
    assert_eq!(cache.limit_bytes, None);
    assert!(error.to_string().contains("1.41 MiB are free, at most 0 B in one piece"), "{error}");
    assert_eq!(bench.statistics().num_ooms, 1);
    let _ = bench.take(32 * MIB); // it goes on
}

#[test]
fn the_numbers_of_an_error_add_up_under_every_policy() {
    // Goal: they are of one moment. Method: a device that gives some of the pages that a request
    // needs and refuses the rest.
    for settings in ["", "expandable_segments:True", "policy:native"] {
        let bench = Bench::of_capacity(settings, 50 * MIB);
        let kept = bench.take(11 * MIB);
        let error = bench.request(Request::new(60 * MIB, 0)).unwrap_err();
        let Error::Memory(MemoryError::OutOfMemory {
            free_bytes,
            total_bytes,
            cache: Some(cache),
            ..
        }) = &error
        else {
            panic!("{error}")
        };
        let reserved_bytes = bench.reserved_bytes();
        assert_eq!((cache.reserved_bytes, *total_bytes), (reserved_bytes, 50 * MIB), "{settings}");
        assert_eq!(free_bytes + reserved_bytes, 50 * MIB, "{settings}: {error}");
        assert_eq!((cache.allocated_bytes, cache.active_bytes), (kept.bytes(), kept.bytes()));
        bench.free(kept);
    }
}

#[test]
fn what_goes_back_while_an_error_is_made_is_in_all_of_its_numbers() {
    // Method: inside the only look at the device another thread gives a segment back.
    let faults = FaultBackend::new(NullBackend::new(NullConfig {
        capacity_bytes: 64 * MIB,
        ..NullConfig::default()
    }));
    let settings = "policy:torch,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True";
    let (backend, device) = (Arc::clone(&faults), Device::new(DeviceKind::NULL, 0).unwrap());
    let allocator = CachingAllocator::new(backend, device, settings.parse().unwrap());
    let allocator = Arc::new(allocator.unwrap());
    let cached = allocator.allocate(Request::new(20 * MIB, 0)).unwrap();
    allocator.free(cached).unwrap();
    let other = Arc::clone(&allocator);
    faults.plan_callback(Method::MemoryInfo, 1, move || {
        std::thread::spawn(move || other.trim()).join().unwrap();
    });
    let error = allocator.allocate(Request::new(40 * MIB, 0)).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory { free_bytes, cache: Some(ref cache), .. }) = error
    else {
        panic!("{error}")
    };
    assert_eq!((free_bytes, cache.reserved_bytes), (64 * MIB, 0), "{error}");
}

#[test]
fn expandable_segments_name_the_pages_they_lack() {
    // A request is refused when the device lacks its pages of 20 MiB, and under a limit when that
    // lacks a segment: the text names the larger one, and has what it lacks.
    for (settings, capacity, kept, request, segment, lacking) in [
        ("expandable_segments:True", 30, 0, 32, Some(40), 10),
        ("expandable_segments:True", 15, 0, 12, Some(20), 5),
        ("expandable_segments:True", 25, 12, 22, None, 15), // 8 of the first page are free
        ("expandable_segments:True,per_process_memory_fraction:0.5", 50, 12, 9, Some(20), 15),
    ] {
        let bench = Bench::of_capacity(settings, capacity * MIB);
        let held = (kept > 0).then(|| bench.take(kept * MIB));
        let error = bench.request(Request::new(request * MIB, 0)).unwrap_err();
        let Error::Memory(MemoryError::OutOfMemory { cache: Some(cache), .. }) = &error else {
            panic!("{error}")
        };
        let expected = (segment.map(|it| it * MIB), lacking * MIB);
        assert_eq!((cache.segment_bytes, cache.lacking_bytes), expected, "{settings}: {error}");
        if let Some(segment) = segment {
            let takes = format!("{request}.00 MiB, which takes a segment of {segment}.00 MiB.");
            assert!(error.to_string().contains(&takes), "{error}");
        }
        if let Some(block) = held {
            bench.free(block);
        }
    }
}

#[test]
fn the_segment_that_a_small_request_takes_is_told() {
    let bench = Bench::of_capacity("", MIB);
    let text = bench.request(Request::new(1000, 0)).unwrap_err().to_string();
    let expected = "Tried to allocate 1000 B, which takes a segment of 2.00 MiB. \
                    null:0 has a total capacity of 1.00 MiB of which 1.00 MiB is free.";
    assert!(text.contains(expected), "{text}");
    let text = bench.request(Request::new(30 * MIB, 0)).unwrap_err().to_string();
    assert!(text.contains("Tried to allocate 30.00 MiB. null:0"), "{text}");
}

#[test]
fn the_largest_hole_of_an_error_is_one_that_the_request_could_have_had() {
    // Specification 2.2: an index is searched by stream, in the pool of the size.
    let bench = Bench::of_capacity("", 64 * MIB);
    let hole = |bytes, rest_bytes, stream, pool| {
        let request = |bytes| Request::new(bytes, stream).from_pool(pool);
        let [kept, hole] = [rest_bytes, bytes].map(|bytes| bench.request(request(bytes)).unwrap());
        bench.free(hole);
        kept // so that the segment stays
    };
    bench.allocator.retain_pool(POOL, PoolOptions::default());
    let kept = [
        hole(15 * MIB, 5 * MIB, 0, POOL),
        hole(11 * MIB, 9 * MIB, 1, PoolId::DEFAULT),
        hole(12 * MIB + 4 * KIB, 8 * MIB - 4 * KIB, 0, PoolId::DEFAULT),
        hole(700 * KIB, 900 * KIB, 0, PoolId::DEFAULT),
    ];
    let largest = |request| {
        let error = bench.request(request).unwrap_err();
        let Error::Memory(MemoryError::OutOfMemory { cache: Some(cache), .. }) = error else {
            panic!("{error}")
        };
        cache.largest_free_bytes
    };
    assert_eq!(largest(Request::new(17 * MIB, 0)), 12 * MIB + 4 * KIB);
    assert_eq!(largest(Request::new(17 * MIB, 1)), 11 * MIB);
    assert_eq!(largest(Request::new(17 * MIB, 2)), 0);
    assert_eq!(largest(Request::new(17 * MIB, 0).from_pool(POOL)), 15 * MIB);
    assert_eq!(largest(Request::new(usize::MAX, 1)), 11 * MIB);
    let helper = PoolOptions::default().use_on_oom(true);
    bench.allocator.retain_pool(POOL, helper);
    assert_eq!(largest(Request::new(17 * MIB, 0)), 15 * MIB, "what helps out was looked at too");
    for block in kept {
        bench.free(block);
    }
}

#[test]
fn advice_is_given_where_it_would_help_and_only_there() {
    // Specification 2.9 has one for everybody.
    let bench = Bench::of_capacity("", 64 * MIB);
    bench.allocator.set_memory_fraction(0.5).unwrap();
    for (bytes, would_help) in [(40 * MIB, true), (65 * MIB, false)] {
        let error = bench.request(Request::new(bytes, 0)).unwrap_err();
        let text = error.to_string();
        let Error::Memory(MemoryError::OutOfMemory { cache: Some(cache), .. }) = error else {
            panic!("{text}")
        };
        assert_eq!(cache.is_only_limited, would_help, "{text}");
        assert_eq!(text.contains("a higher memory fraction would help"), would_help, "{text}");
    }
}

#[test]
fn more_than_there_ever_is_fails_at_once() {
    // Specification 2.1: the guard of an exbibyte.
    let bench = Bench::new("");
    for bytes in [usize::MAX, 1 << 61] {
        let text = bench.request(Request::new(bytes, 0)).unwrap_err().to_string();
        assert!(text.contains("out of memory. Tried to allocate more than 1EB memory."), "{text}");
    }
    assert_eq!(bench.statistics().num_alloc_retries, 0);
}

#[test]
fn observers_are_told_before_a_request_fails_and_may_use_the_allocator() {
    // Specification 2.9.3: observers are called without the lock.
    let bench = Bench::of_capacity("", 20 * MIB);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = |name: &'static str| {
        let told = Arc::clone(&told);
        move |error: &Error| told.lock().unwrap().push(format!("{name}: {error}"))
    };
    let first = bench.allocator.add_oom_observer(tell("first"));
    bench.allocator.add_oom_observer(tell("second"));
    bench.request(Request::new(30 * MIB, 0)).unwrap_err();
    bench.allocator.remove_oom_observer(first);
    bench.request(Request::new(31 * MIB, 0)).unwrap_err();
    let told = told.lock().unwrap();
    let names: Vec<&str> = told.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(names, ["first", "second", "second"]);
    assert!(told[2].contains("31.00 MiB"), "{}", told[2]);
}

#[test]
fn the_number_of_an_observer_ends_no_other_allocators() {
    let [bench, other] = [20 * MIB; 2].map(|capacity| Bench::of_capacity("", capacity));
    let told = Arc::new(Mutex::new(0));
    let telling = Arc::clone(&told);
    bench.allocator.add_oom_observer(move |_| *telling.lock().unwrap() += 1);
    let of_the_other = other.allocator.add_oom_observer(|_| {});
    bench.allocator.remove_oom_observer(of_the_other);
    bench.request(Request::new(30 * MIB, 0)).unwrap_err();
    assert_eq!(*told.lock().unwrap(), 1);
}

#[test]
fn an_emptied_cache_keeps_what_shares_a_segment_with_something_in_use() {
    // Specification 2.5: empty_cache counts one synchronisation each.
    let bench = Bench::new("");
    let [first, second, large] = [512, 512, 30 * MIB].map(|bytes| bench.take(bytes));
    bench.free(first);
    bench.free(large);
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 2 * MIB);
    bench.free(second);
    bench.empty_cache();
    assert_eq!(bench.device_bytes(), 0);
    assert_eq!(bench.statistics().num_sync_all_streams, 2);
}

#[test]
fn requests_that_fail_inside_of_an_observer_are_told_to_none() {
    let (null, device) =
        (NullBackend::new(NullConfig::default()), Device::new(DeviceKind::NULL, 0));
    let allocator = CachingAllocator::new(null, device.unwrap(), AllocatorConfig::default());
    let allocator = Arc::new(allocator.unwrap());
    let told = Arc::new(AtomicUsize::new(0));
    let (weak, counter) = (Arc::downgrade(&allocator), Arc::clone(&told));
    let number = allocator.add_oom_observer(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        let allocator = weak.upgrade().expect("it is asked");
        for _ in 0..2 {
            allocator.allocate(Request::new(1 << 50, 0)).unwrap_err();
        }
    });
    for round in 1..4 {
        allocator.allocate(Request::new(1 << 50, 0)).unwrap_err();
        assert_eq!(told.load(Ordering::Relaxed), round);
    }
    allocator.remove_oom_observer(number);
}
