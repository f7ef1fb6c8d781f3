//! What the words of a block become: sixteen bytes of numbers.
//!
//! With vector instructions where the processor has them: both builds of the loop run the same
//! operations, each rounded as IEEE 754 says, so they make the same bits.
#![expect(clippy::inline_always, reason = "compiled once for each set of instructions")]
#![expect(unsafe_code, reason = "calls code for processors that have certain instructions")]

use crate::generator::normal::{pair_32, pair_64};
use crate::generator::philox::{Words, blocks};

/// What a fill writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    RawUint32,
    RawUint64,
    UniformFloat32,
    UniformFloat64,
    NormalFloat32,
    NormalFloat64,
}

/// The numbers of one block, as they stand in memory.
pub(super) type Block = [u32; 4];

/// Size of a block.
pub(super) const BLOCK_BYTES: usize = size_of::<Block>();

impl Values {
    /// Size of one number.
    pub(super) fn item_bytes(self) -> usize {
        match self {
            Self::RawUint32 | Self::UniformFloat32 | Self::NormalFloat32 => 4,
            Self::RawUint64 | Self::UniformFloat64 | Self::NormalFloat64 => 8,
        }
    }

    /// Writes consecutive blocks, from the one numbered `first` of a seed's sequence on.
    pub(super) fn write(self, seed: u64, first: u64, out: &mut [Block]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: needs these two sets of instructions, which the processor was asked for.
            unsafe { write_with_vectors(self, seed, first, out) };
            return;
        }
        write(self, seed, first, out);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn write_with_vectors(values: Values, seed: u64, first: u64, out: &mut [Block]) {
    write(values, seed, first, out);
}

#[inline(always)]
fn write(values: Values, seed: u64, first: u64, out: &mut [Block]) {
    // As many lanes as were fastest: 16 of normal numbers do not fit into the registers.
    match values {
        Values::RawUint32 => fill::<16>(seed, first, out, raw_32),
        Values::RawUint64 => fill::<16>(seed, first, out, raw_64),
        Values::UniformFloat32 => fill::<16>(seed, first, out, uniform_32),
        Values::UniformFloat64 => fill::<8>(seed, first, out, uniform_64),
        Values::NormalFloat32 => fill::<8>(seed, first, out, normal_32),
        Values::NormalFloat64 => fill::<8>(seed, first, out, normal_64),
    }
}

#[inline(always)]
fn fill<const LANES: usize>(
    seed: u64,
    first: u64,
    out: &mut [Block],
    numbers: impl Fn(&Words<LANES>) -> [Block; LANES],
) {
    let mut block = first;
    let (batches, rest) = out.as_chunks_mut::<LANES>();
    for batch in batches {
        *batch = numbers(&blocks(seed, block));
        block = block.wrapping_add(LANES as u64);
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&numbers(&blocks(seed, block))[..rest.len()]);
    }
}

/// The halves of a number in the order of this machine's memory.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
fn halves(number: u64) -> [u32; 2] {
    let (low, high) = (number as u32, (number >> 32) as u32);
    if cfg!(target_endian = "little") { [low, high] } else { [high, low] }
}

/// The numbers of 64 bits that a lane's words make, the lower word first.
#[inline(always)]
fn wide<const LANES: usize>(words: &Words<LANES>, lane: usize) -> [u64; 2] {
    let [a, b, c, d] = [0, 1, 2, 3].map(|word| u64::from(words[word][lane]));
    [a | b << 32, c | d << 32]
}

/// Each lane's block from its four words.
#[inline(always)]
fn each_word<const LANES: usize>(
    words: &Words<LANES>,
    number: impl Fn(u32) -> u32,
) -> [Block; LANES] {
    let mut out = [[0; 4]; LANES];
    for (lane, block) in out.iter_mut().enumerate() {
        *block = [0, 1, 2, 3].map(|word| number(words[word][lane]));
    }
    out
}

/// Each lane's block from its two numbers of 64 bits.
#[inline(always)]
fn each_wide<const LANES: usize>(
    words: &Words<LANES>,
    numbers: impl Fn([u64; 2]) -> [u64; 2],
) -> [Block; LANES] {
    let mut made = [[0; LANES]; 2];
    let [first, second] = &mut made;
    for (lane, (first, second)) in first.iter_mut().zip(second).enumerate() {
        [*first, *second] = numbers(wide(words, lane));
    }
    let mut out = [[0; 4]; LANES];
    for (lane, block) in out.iter_mut().enumerate() {
        let ([a, b], [c, d]) = (halves(made[0][lane]), halves(made[1][lane]));
        *block = [a, b, c, d];
    }
    out
}

#[inline(always)]
fn raw_32<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    each_word(words, |word| word)
}

#[inline(always)]
fn raw_64<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    each_wide(words, |numbers| numbers)
}

/// Multiples of 2^-24 below 1: the upper 24 bits of a word.
#[inline(always)]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "24 bits are exact")]
fn uniform_32<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    let step = 0.5_f32.powi(24);
    each_word(words, |word| ((word >> 8) as i32 as f32 * step).to_bits())
}

/// Multiples of 2^-53 below 1: the upper 53 bits.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn uniform_64<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    let step = 0.5_f64.powi(53);
    each_wide(words, |numbers| numbers.map(|number| ((number >> 11) as f64 * step).to_bits()))
}

#[inline(always)]
fn normal_32<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    let mut made = [[0; LANES]; 4];
    for half in [0, 2] {
        for lane in 0..LANES {
            let (first, second) = pair_32(words[half][lane], words[half + 1][lane]);
            (made[half][lane], made[half + 1][lane]) = (first.to_bits(), second.to_bits());
        }
    }
    each_word(&made, |bits| bits)
}

#[inline(always)]
fn normal_64<const LANES: usize>(words: &Words<LANES>) -> [Block; LANES] {
    each_wide(words, |[first, second]| {
        let (first, second) = pair_64(first, second);
        [first.to_bits(), second.to_bits()]
    })
}

#[cfg(test)]
mod tests {
    //! Goal: both builds of the loop make the same bits, wherever a range is cut, and the mapping
    //! from words to numbers is the documented one. Method: one beside the other, at random.

    use super::*;
    use crate::generator::philox::LAST_BLOCK;

    pub(super) const ALL: [Values; 6] = [
        Values::RawUint32,
        Values::RawUint64,
        Values::UniformFloat32,
        Values::UniformFloat64,
        Values::NormalFloat32,
        Values::NormalFloat64,
    ];

    fn made(values: Values, seed: u64, first: u64, count: usize) -> Vec<Block> {
        let mut out = vec![[0; 4]; count];
        values.write(seed, first, &mut out);
        out
    }

    #[test]
    fn with_and_without_vector_instructions_the_bits_are_the_same() {
        for values in ALL {
            for (seed, first) in [(0, 0), (u64::MAX, 1 << 40), (67_280_421_310_721, LAST_BLOCK - 9)]
            {
                let mut portable = vec![[0; 4]; 4099];
                write(values, seed, first, &mut portable);
                assert_eq!(made(values, seed, first, 4099), portable, "{values:?} of seed {seed}");
            }
        }
    }

    #[test]
    fn a_range_that_is_cut_anywhere_is_the_whole_range() {
        for values in ALL {
            let whole = made(values, 5, LAST_BLOCK - 20, 61);
            for cut in 0..=61 {
                let first = LAST_BLOCK - 20 + cut as u64;
                let parts =
                    [made(values, 5, LAST_BLOCK - 20, cut), made(values, 5, first, 61 - cut)];
                assert_eq!(parts.concat(), whole, "{values:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn each_kind_of_number_is_made_from_the_words_that_the_documents_name() {
        let words = blocks::<1>(7, 3).map(|[word]| word);
        let one = |values| made(values, 7, 3, 1)[0];
        assert_eq!(one(Values::RawUint32), words);
        let wide = [0, 2].map(|low| u64::from(words[low]) | u64::from(words[low + 1]) << 32);
        let stored = |numbers: [u64; 2]| {
            let [[a, b], [c, d]] = numbers.map(halves);
            [a, b, c, d]
        };
        assert_eq!(one(Values::RawUint64), stored(wide));
        #[expect(clippy::cast_precision_loss, reason = "24 and 53 bits are exact")]
        let (uniform_32, uniform_64) = (
            words.map(|word| ((word >> 8) as f32 / 16_777_216.0).to_bits()),
            wide.map(|number| ((number >> 11) as f64 / 9_007_199_254_740_992.0).to_bits()),
        );
        assert_eq!(one(Values::UniformFloat32), uniform_32);
        assert_eq!(one(Values::UniformFloat64), stored(uniform_64));
        let ((a, b), (c, d)) = (pair_32(words[0], words[1]), pair_32(words[2], words[3]));
        assert_eq!(one(Values::NormalFloat32), [a, b, c, d].map(f32::to_bits));
        let (a, b) = pair_64(wide[0], wide[1]);
        assert_eq!(one(Values::NormalFloat64), stored([a.to_bits(), b.to_bits()]));
    }
}
