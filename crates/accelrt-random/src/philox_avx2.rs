//! Philox for processors with AVX2: eight blocks at once, two vectors per word.
//!
//! The file uses intrinsics, because no known compiler generates this code from the portable loop.
//! Each 64-bit element holds a word in its lower half, where multiplications read their factors.
//! The code ignores the upper half.
#![expect(unsafe_code, reason = "a vector is stored to an array")]
#![expect(clippy::cast_possible_wrap, reason = "intrinsics take bits as signed numbers")]
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_mul_epu32, _mm256_permute4x64_epi64, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use crate::philox::{KEY_STEPS, LANES, LAST_BLOCK, MULTIPLIERS, ROUNDS, Words, key};

/// A vector with one word of each of four consecutive blocks.
type Word = __m256i;

/// Vectors per word in one step. Twice as many would not fit into the registers.
const VECTORS: usize = 2;

const STEP: usize = 4 * VECTORS;

/// [`philox::blocks`](super::philox::blocks) with AVX2 instructions.
#[target_feature(enable = "avx2")]
pub(crate) fn blocks(seed: u64, first: u64, words: &mut Words) {
    let keys = schedule(seed);
    for lane in (0..LANES).step_by(STEP) {
        let counters = mixed(&keys, first.wrapping_add(lane as u64));
        for (word, lanes) in words.iter_mut().enumerate() {
            for pair in 0..VECTORS / 2 {
                let packed = packed(counters[2 * pair][word], counters[2 * pair + 1][word]);
                let place = &mut lanes[lane + 8 * pair..][..8];
                // SAFETY: the call writes 32 bytes, and the slice has eight words of 4 bytes.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), packed) };
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn schedule(seed: u64) -> [[Word; 2]; ROUNDS] {
    let [mut low_key, mut high_key] = key(seed);
    let mut keys = [[_mm256_setzero_si256(); 2]; ROUNDS];
    for keys in &mut keys {
        *keys = [low_key, high_key].map(|key| _mm256_set1_epi64x(i64::from(key)));
        low_key = low_key.wrapping_add(KEY_STEPS[0]);
        high_key = high_key.wrapping_add(KEY_STEPS[1]);
    }
    keys
}

/// Computes eight consecutive blocks from block `first`. Each vector has one word of four blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn mixed(keys: &[[Word; 2]; ROUNDS], first: u64) -> [[Word; 4]; VECTORS] {
    let mut counters = [[_mm256_setzero_si256(); 4]; VECTORS];
    for (counter, lane) in counters.iter_mut().zip((0..).step_by(4)) {
        let lanes = _mm256_set_epi64x(lane + 3, lane + 2, lane + 1, lane);
        let last = _mm256_set1_epi64x(LAST_BLOCK as i64);
        let first = _mm256_set1_epi64x(first as i64);
        counter[0] = _mm256_and_si256(_mm256_add_epi64(first, lanes), last);
        counter[1] = _mm256_srli_epi64::<32>(counter[0]);
    }
    for keys in keys {
        for counter in &mut counters {
            *counter = round(*counter, *keys);
        }
    }
    counters
}

#[inline]
#[target_feature(enable = "avx2")]
fn round(counter: [Word; 4], keys: [Word; 2]) -> [Word; 4] {
    let multipliers = MULTIPLIERS.map(|multiplier| multiplier as i64);
    let first = _mm256_mul_epu32(counter[0], _mm256_set1_epi64x(multipliers[0]));
    let second = _mm256_mul_epu32(counter[2], _mm256_set1_epi64x(multipliers[1]));
    let low = _mm256_xor_si256(counter[1], keys[0]);
    let high = _mm256_xor_si256(counter[3], keys[1]);
    [
        _mm256_xor_si256(_mm256_srli_epi64::<32>(second), low),
        second,
        _mm256_xor_si256(_mm256_srli_epi64::<32>(first), high),
        first,
    ]
}

/// Packs the lower halves of both vectors' elements into one vector, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn packed(first: Word, second: Word) -> Word {
    let (first, second) = (_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
    let lower = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(first, second));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(lower)
}
