//! The state of a generator, a seed and an offset, and its 16-byte encoding.
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use accelrt::{Error, GeneratorError, Result};

/// The initial seed of a generator: torch's `default_rng_seed_val`.
pub(crate) const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// Words per block. Every offset is a multiple of this number.
pub(crate) const BLOCK_WORDS: u64 = 4;

/// A position in the sequence of words that a seed selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) seed: u64,
    /// The number of used words, a multiple of [`BLOCK_WORDS`].
    offset: u64,
}

impl State {
    pub(crate) const fn of(seed: u64) -> Self {
        Self { seed, offset: 0 }
    }

    pub(crate) fn at(seed: u64, offset: u64) -> Result<Self> {
        if offset.is_multiple_of(BLOCK_WORDS) {
            Ok(Self { seed, offset })
        } else {
            Err(Error::Generator(GeneratorError::InvalidOffset { offset }))
        }
    }

    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// Advances the offset by `blocks` blocks. Returns the number of the first of these blocks.
    /// Fails, without a change, when the offset would exceed its largest value: after that the
    /// words from the beginning would be used again.
    pub(crate) fn take(&mut self, blocks: u64) -> Result<u64> {
        let (first, offset) = (self.offset / BLOCK_WORDS, self.offset);
        let advanced = blocks.checked_mul(BLOCK_WORDS).and_then(|words| offset.checked_add(words));
        self.offset = advanced.ok_or_else(|| {
            let words = u128::from(blocks) * u128::from(BLOCK_WORDS);
            Error::Generator(GeneratorError::SequenceEnd { offset, words })
        })?;
        Ok(first)
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let both = u128::from(self.seed) | u128::from(self.offset) << 64;
        both.to_le_bytes()
    }

    #[expect(clippy::cast_possible_truncation, reason = "splits the number into its halves")]
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Result<Self> {
        let both = u128::from_le_bytes(bytes);
        Self::at(both as u64, (both >> 64) as u64)
    }
}

/// An unpredictable seed: a hash of the process id and the time. The hash keys of the standard
/// library are random bytes of the system.
pub(crate) fn random_seed() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id()); // a forked child has its parent's hash keys
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(now.as_nanos());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_stops_at_the_end_of_the_sequence() {
        const LAST: u64 = u64::MAX - 3;
        for (offset, blocks) in
            [(LAST, 1), (LAST - 4, 2), (4, u64::MAX >> 2), (4, 1 << 62), (0, u64::MAX)]
        {
            let mut state = State::at(3, offset).unwrap();
            let refused = state.take(blocks).unwrap_err().to_string();
            let words = u128::from(blocks) * 4;
            let expected =
                format!("Cannot take {words} words of random numbers at offset {offset}:");
            assert!(refused.starts_with(&expected), "{refused}");
            assert_eq!(state.offset(), offset, "a refused request takes nothing");
        }
        let mut state = State::at(3, LAST - 4).unwrap();
        assert_eq!(state.take(1).unwrap(), (u64::MAX >> 2) - 1);
        assert_eq!((state.take(0).unwrap(), state.offset()), (u64::MAX >> 2, LAST));
    }

    #[test]
    fn sixteen_bytes_are_the_seed_and_the_offset() {
        let state = State::at(0x0102_0304_0506_0708, 0x1112_1314_1516_1718).unwrap();
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];
        assert_eq!(state.to_bytes(), bytes);
        assert_eq!(State::from_bytes(bytes).unwrap(), state);
        let refused = State::from_bytes([1; 16]).unwrap_err();
        assert!(refused.to_string().contains("72340172838076673"), "{refused}");
    }

    #[test]
    fn random_seeds_differ() {
        assert_ne!(random_seed(), random_seed());
    }
}
