//! Philox 4x32-10: computes four random words from a counter and a key, without other state.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//! This file has the portable loop over a batch's counters; `philox_avx2` uses intrinsics instead.
#![expect(clippy::cast_possible_truncation, reason = "words are halves of products")]

pub(crate) const ROUNDS: usize = 10;

pub(crate) const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// The key's increments between two rounds: the golden ratio, and √3 - 1, as Philox defines them.
pub(crate) const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

const LOW_WORD: u64 = 0xFFFF_FFFF;

/// The last block's number. Block 0 follows it: a block has 4 words, and word offsets have 64 bits.
pub(crate) const LAST_BLOCK: u64 = u64::MAX >> 2;

/// The blocks of a batch, which one call of [`blocks`] computes: 1 KiB of numbers.
pub(crate) const LANES: usize = 64;

/// The words of a batch, indexed by word, then by lane.
pub(crate) type Words = [[u32; LANES]; 4];

pub(crate) const fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Computes consecutive blocks of a seed's sequence, from block `first`. A block's number is the
/// lower half of its counter; the upper half is 0.
pub(crate) fn blocks(seed: u64, first: u64, words: &mut Words) {
    let [a, b, c, d] = words;
    for lane in 0..LANES {
        let block = first.wrapping_add(lane as u64) & LAST_BLOCK;
        let mixed = mix([block & LOW_WORD, block >> 32, 0, 0], key(seed));
        a[lane] = mixed[0] as u32;
        b[lane] = mixed[1] as u32;
        c[lane] = mixed[2] as u32;
        d[lane] = mixed[3] as u32;
    }
}

/// Applies the ten rounds. Each 64-bit element holds a word in its lower half. The rounds ignore
/// the upper half, so a 64-bit product can stay in its element.
#[inline(always)]
fn mix(mut counter: [u64; 4], [mut low_key, mut high_key]: [u32; 2]) -> [u64; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            low_key = low_key.wrapping_add(KEY_STEPS[0]);
            high_key = high_key.wrapping_add(KEY_STEPS[1]);
        }
        let first = MULTIPLIERS[0] * (counter[0] & LOW_WORD);
        let second = MULTIPLIERS[1] * (counter[2] & LOW_WORD);
        counter = [
            (second >> 32) ^ counter[1] ^ u64::from(low_key),
            second,
            (first >> 32) ^ counter[3] ^ u64::from(high_key),
            first,
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    //! Goal: the output is Philox's, and lanes are independent. Method: comparison with Random123's
    //! known answers, and of a batch with single blocks.

    use super::*;

    fn words(seed: u64, first: u64) -> Words {
        let mut words = [[0; LANES]; 4];
        blocks(seed, first, &mut words);
        words
    }

    fn answer(counter: [u64; 4], key: [u32; 2]) -> [u32; 4] {
        mix(counter, key).map(|word| word as u32)
    }

    #[test]
    fn random123s_known_answers_match() {
        let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(answer([0; 4], [0; 2]), zeros);
        let ones = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(answer([LOW_WORD; 4], [u32::MAX; 2]), ones);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let of_pi = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(answer(pi, [0xa409_3822, 0x299f_31d0]), of_pi);
    }

    #[test]
    fn a_seed_is_the_key_and_a_block_is_the_lower_half_of_the_counter() {
        let (seed, block) = (0x0123_4567_89ab_cdef, 0x2bcd_ef01_1234_5678);
        let expected = answer([0x1234_5678, 0x2bcd_ef01, 0, 0], [0x89ab_cdef, 0x0123_4567]);
        assert_eq!(words(seed, block).map(|words| words[0]), expected);
    }

    #[test]
    fn lanes_are_consecutive_blocks_and_wrap_after_the_last() {
        for first in [0, 7, LOW_WORD - 30, LAST_BLOCK - 30] {
            let many = words(99, first);
            for lane in 0..LANES {
                let alone = words(99, (first + lane as u64) & LAST_BLOCK).map(|words| words[0]);
                assert_eq!(many.map(|words| words[lane]), alone, "lane {lane} from {first}");
            }
        }
    }
}
