//! Philox 4x32-10: four random words from a counter and a key, with no state between them.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//! Several counters are worked on side by side, in arrays that a compiler turns into vectors.
#![expect(
    clippy::cast_possible_truncation,
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "words are halves of products; lanes are indices; compiled once for each set of \
              instructions"
)]

/// How often the words are mixed.
const ROUNDS: usize = 10;

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// What a key grows by between two rounds: the golden ratio, and the root of 3 less 1.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

const LOW_WORD: u64 = 0xFFFF_FFFF;

/// The block that comes after the last one is block 0: blocks are numbered by 62 bits, so that an
/// offset, which counts words, has 64.
pub(super) const LAST_BLOCK: u64 = u64::MAX >> 2;

/// Four words a lane, word by word.
pub(super) type Words<const LANES: usize> = [[u32; LANES]; 4];

/// The key of a seed.
const fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// The words of `LANES` consecutive blocks of a seed's sequence. A block's number is the lower half
/// of its counter; the upper half is 0.
#[inline(always)]
pub(super) fn blocks<const LANES: usize>(seed: u64, first: u64) -> Words<LANES> {
    let mut counters = [[0; LANES]; 4];
    for lane in 0..LANES {
        let block = first.wrapping_add(lane as u64) & LAST_BLOCK;
        (counters[0][lane], counters[1][lane]) = (block & LOW_WORD, block >> 32);
    }
    mix(counters, key(seed))
}

/// The ten rounds. The upper half of an element means nothing between rounds: that way products
/// stay where multiplications of vectors leave them.
#[inline(always)]
fn mix<const LANES: usize>(mut counters: [[u64; LANES]; 4], key: [u32; 2]) -> Words<LANES> {
    let mut key = key;
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        for lane in 0..LANES {
            let first = MULTIPLIERS[0] * (counters[0][lane] & LOW_WORD);
            let second = MULTIPLIERS[1] * (counters[2][lane] & LOW_WORD);
            counters[0][lane] = (second >> 32) ^ counters[1][lane] ^ u64::from(key[0]);
            counters[1][lane] = second;
            counters[2][lane] = (first >> 32) ^ counters[3][lane] ^ u64::from(key[1]);
            counters[3][lane] = first;
        }
    }
    counters.map(|words| words.map(|word| word as u32))
}

#[cfg(test)]
mod tests {
    //! Goal: it is Philox, and a lane knows nothing of the others. Method: the known answers of
    //! Random123, and many lanes against one.

    use super::*;

    fn answer(counter: [u64; 4], key: [u32; 2]) -> [u32; 4] {
        mix(counter.map(|word| [word]), key).map(|[word]| word)
    }

    #[test]
    fn the_known_answers_of_random123_come_out() {
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
        assert_eq!(blocks::<1>(seed, block).map(|[word]| word), expected);
    }

    #[test]
    fn lanes_side_by_side_are_consecutive_blocks_also_past_the_last_one() {
        for first in [0, 7, LOW_WORD - 3, LAST_BLOCK - 3] {
            let many = blocks::<16>(99, first);
            for lane in 0..16 {
                let block = (first + lane as u64) & LAST_BLOCK;
                let alone = blocks::<1>(99, block).map(|[word]| word);
                assert_eq!(many.map(|words| words[lane]), alone, "lane {lane} from {first}");
            }
        }
    }
}
