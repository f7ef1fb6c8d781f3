//! Numbers from a seed that is printed; `ACCELRT_TEST_SEED` repeats a run.

use std::time::{SystemTime, UNIX_EPOCH};

/// `SplitMix64`, by Steele, Lea and Flood.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Prints the seed; a test that fails shows it.
    #[expect(clippy::print_stdout, reason = "the test's own output")]
    pub(crate) fn new() -> Self {
        let given = std::env::var("ACCELRT_TEST_SEED").ok();
        let seed = given.map_or_else(fresh_seed, |seed| seed.parse().expect("a number"));
        println!("repeat with ACCELRT_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits fit") % end
    }
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
}
