//! The seed of a run with chance in it; `ACCELRT_TEST_SEED` repeats it.

use std::hash::{BuildHasher, RandomState};

/// The seed of this run. Prints it: a test that fails shows it.
#[expect(clippy::print_stdout, reason = "the test's own output")]
pub(crate) fn seed() -> u64 {
    let given = std::env::var("ACCELRT_TEST_SEED").ok();
    let seed = given.map_or_else(
        || RandomState::new().hash_one("seed"),
        |seed| seed.parse().unwrap_or_else(|_| panic!("ACCELRT_TEST_SEED={seed} is no number")),
    );
    println!("repeat with ACCELRT_TEST_SEED={seed}");
    seed
}
