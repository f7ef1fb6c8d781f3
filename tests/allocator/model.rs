//! Programs made of random bytes, and those of the fuzzer's corpus, against a model.
//!
//! Goal: no order of requests, uses, frees, settings, limits, pools and refusals breaks a law.
//! Method: `driver`, which makes a program of a string of bytes and compares it with a model.

use std::path::Path;

use crate::driver::{run_on_cpu, run_on_numbers};
use crate::numbers::Numbers;
use crate::seed::seed;

/// Comes to about a thousand steps.
const BYTES: usize = 6_000;

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    (0..bytes).map(|_| numbers.next().to_le_bytes()[0]).collect()
}

#[test]
fn random_programs_keep_the_laws_on_a_device_of_numbers() {
    let seed = seed();
    for run in 0..4 {
        run_on_numbers(&random(seed.wrapping_add(run), BYTES));
    }
}

#[test]
fn random_programs_keep_the_laws_and_the_contents_on_cpu() {
    run_on_cpu(&random(seed(), BYTES));
}

#[test]
fn programs_that_the_fuzzer_found_keep_the_laws() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/allocator");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let program = std::fs::read(entry.unwrap().path()).unwrap();
        run_on_numbers(&program);
        run_on_cpu(&program);
        count += 1;
    }
    assert!(count > 0, "a corpus");
}
