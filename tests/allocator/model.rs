//! Programs made of random bytes, and those of the fuzzer's corpus, against a model.
//!
//! Goal: no order of requests, uses, frees, settings, limits, pools and refusals breaks a law.
//! Method: `driver`, which makes a program of a string of bytes and compares it with a model.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::driver::{run_on_cpu, run_on_numbers, run_short_of_memory};
use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::scheduled::scheduled;
use crate::seed::seed;

/// The longest program: about a thousand steps.
const MOST_BYTES: usize = 6_000;
/// How long a program that breaks a law is cut down.
const MOST_SHRINK_MS: u32 = 10_000;

/// Runs programs of random bytes. The least one that breaks a law is what is told.
fn run_random(cases: u32, run: fn(&[u8])) {
    let mut numbers = Numbers::new(seed());
    let key: Vec<u8> = (0..4).flat_map(|_| numbers.next().to_le_bytes()).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let config = Config {
        cases,
        max_shrink_time: MOST_SHRINK_MS,
        failure_persistence: None,
        ..Config::default()
    };
    let programs = vec(any::<u8>(), 0..MOST_BYTES);
    let watchdog = Watchdog::new("random programs");
    let outcome = TestRunner::new_with_rng(config, rng).run(&programs, |program| {
        watchdog
            .step(format!("a program of {} bytes; ACCELRT_TEST_SEED repeats it", program.len()));
        run(&program);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn random_programs_keep_the_laws_on_a_device_of_numbers() {
    run_random(5, run_on_numbers);
}

#[test]
fn random_programs_keep_the_laws_and_the_contents_on_cpu() {
    run_random(2, |bytes| run_on_cpu(bytes, scheduled));
}

#[test]
fn requests_fail_only_when_no_free_memory_can_hold_them() {
    run_random(10, run_short_of_memory);
}

#[test]
fn programs_that_the_fuzzer_found_keep_the_laws() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/allocator");
    let mut count = 0;
    let watchdog = Watchdog::new("programs of the corpus");
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        watchdog.step(path.display().to_string());
        let program = std::fs::read(path).unwrap();
        run_on_numbers(&program);
        run_on_cpu(&program, scheduled);
        run_short_of_memory(&program);
        count += 1;
    }
    assert!(count > 0, "a corpus");
}
