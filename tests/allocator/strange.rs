//! Requests that make no sense: errors, never panics.

use accelrt::allocator::Request;
use accelrt::{
    Config, ConfigError, Device, DriverError, Error, MemoryError, PoolId, PoolOptions, Runtime,
};
use accelrt_testing::null::NullConfig;

use crate::free_memory::most_bytes;
use crate::scheduled::scheduled;
use crate::support::{Bench, MIB};

const SETTINGS: [&str; 3] = ["", "policy:torch", "expandable_segments:True"];

#[test]
fn an_alignment_that_is_no_power_of_two_is_an_error() {
    for settings in SETTINGS {
        let bench = Bench::new(settings);
        for align_bytes in [0, 3, 48, 1000, usize::MAX, (1 << 40) + 1] {
            for bytes in [1, 100, 1 << 20, 64 << 20, usize::MAX] {
                let request = Request::new(bytes, 0).aligned_to(align_bytes);
                let Err(Error::Config(ConfigError::InvalidSetting { name, value, .. })) =
                    bench.allocator.allocate(request)
                else {
                    panic!("{align_bytes} is an alignment under {settings:?}")
                };
                assert_eq!((name, value), ("alignment", align_bytes.to_string()));
            }
        }
        bench.allocator.check_all();
    }
}

#[test]
fn sizes_and_alignments_beyond_everything_are_errors() {
    // On numbers and on the machine's own memory, whose addresses end earlier.
    let runtime = scheduled(Runtime::new(Config::default()).unwrap());
    for settings in SETTINGS {
        let bench = Bench::new(settings);
        runtime.set_allocator_settings(settings).unwrap();
        let own = runtime.allocator(Device::cpu(0)).unwrap();
        for allocator in [&bench.allocator, &*own] {
            for bytes in [1, 1 << 40, 1 << 60, (1 << 60) + 1, isize::MAX as usize, usize::MAX] {
                for shift in [0, 9, 21, 32, 47, 60, 63] {
                    let request = Request::new(bytes, u64::MAX).aligned_to(1 << shift);
                    match allocator.allocate(request) {
                        Ok(block) => {
                            assert!(bytes == 1 && block.address().is_multiple_of(1 << shift));
                            allocator.free(block).unwrap();
                        }
                        Err(Error::Memory(MemoryError::OutOfMemory {
                            requested_bytes, ..
                        })) => {
                            assert_eq!(requested_bytes, bytes);
                        }
                        Err(Error::Driver(DriverError::Refused { .. })) => {
                            assert!(shift > 30, "no such addresses");
                        }
                        Err(other) => panic!("{bytes} bytes at 1 << {shift}: {other}"),
                    }
                }
            }
            allocator.check_all();
        }
    }
}

#[test]
fn a_pool_that_was_not_made_is_one_without_users() {
    for settings in SETTINGS {
        let bench = Bench::new(settings);
        let absent = PoolId(7, 7);
        bench.allocator.release_pool(absent);
        let block = bench.allocator.allocate(Request::new(1000, 0).from_pool(absent)).unwrap();
        bench.allocator.release_pool(absent);
        bench.allocator.check_all();
        bench.allocator.free(block).unwrap();
        bench.allocator.empty_cache();
        assert_eq!(bench.allocator.statistics().reserved_bytes.all.current, 0, "{settings:?}");
        bench.allocator.retain_pool(PoolId::DEFAULT, PoolOptions::default());
        bench.allocator.release_pool(PoolId::DEFAULT);
        bench.allocator.check_all();
    }
}

#[test]
fn addresses_do_not_double_beyond_what_is_counted() {
    // Goal: however far apart blocks are, the next ones have addresses. Method: alignments as large
    // as the parts of an address space, which each request leaves to none after it.
    let bench = Bench::new("policy:native");
    let align_bytes = 1 << 38;
    let request = Request::new(512, 0).aligned_to(align_bytes);
    let blocks = [(); 12].map(|()| bench.allocator.allocate(request).unwrap());
    for block in blocks {
        assert!(block.address().is_multiple_of(align_bytes as u64), "{block:?}");
        bench.allocator.free(block).unwrap();
    }
    bench.empty_cache();
    assert_eq!(bench.reserved_bytes(), 0);
}

#[test]
fn pages_smaller_than_a_block_serve_several_at_a_time() {
    for granularity_bytes in [64, 256, 512, 4096] {
        for settings in ["policy:native", "expandable_segments:True"] {
            let null = NullConfig { granularity_bytes, ..NullConfig::default() };
            let bench = Bench::on(settings, null);
            let blocks = [1, 513, 40_000].map(|bytes| bench.take(bytes));
            for block in blocks {
                bench.free(block);
            }
            bench.empty_cache();
            assert_eq!(bench.reserved_bytes(), 0, "{settings} with {granularity_bytes}");
        }
    }
}

#[test]
fn any_alignment_is_kept_or_refused_as_a_shortage() {
    // Goal: an alignment beyond what addresses or counts hold is a shortage, which programs catch,
    // and leaves nothing behind. Method: powers of two for sizes of each arena, on both sides of
    // what is served; what the error says could be had is less than what was asked for.
    for (settings, granularity_bytes, served_power) in [
        ("policy:native", 2 * MIB, 41),
        ("policy:native", 512, 29),
        ("policy:torch", 2 * MIB, 41),
        ("expandable_segments:True", 2 * MIB, 30), // as far as the addresses of a segment go
    ] {
        let null = NullConfig { granularity_bytes, ..NullConfig::default() };
        let bench = Bench::on(settings, null);
        for bytes in [1, 40_000, 3 * MIB, 20 * MIB] {
            for power in [1, 12, 22, 29, 30, 38, 39, 40, 41, 42, 49, 50, 60, 63] {
                let context = format!("{settings}, {granularity_bytes}: {bytes} at 2^{power}");
                match bench.request(Request::new(bytes, 0).aligned_to(1 << power)) {
                    Ok(block) => {
                        assert!(block.address().is_multiple_of(1 << power), "{context}");
                        assert!(power <= served_power || !settings.contains("native"), "{context}");
                        bench.free(block);
                    }
                    Err(error) => {
                        assert!(power > served_power, "{context}: {error}");
                        assert!(most_bytes(&error) < bytes, "{context}: {error}");
                    }
                }
                bench.empty_cache();
            }
        }
        assert_eq!(bench.reserved_bytes(), 0, "{settings}");
    }
}
