//! Converts the four words of a block into 16 bytes of numbers.
//!
//! Processors with AVX2 and FMA run a vector loop, others a portable loop. Both loops execute the
//! same operations, each rounded as IEEE 754 requires, so their results are bitwise equal.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::needless_range_loop,
    reason = "exact conversions of bits; lanes are indices"
)]
#![expect(unsafe_code, reason = "calls functions with target features")]
use crate::normal::{pair_32, pair_64, uniform_64};
use crate::philox::{LANES, Words, blocks};

#[cfg(target_arch = "x86_64")]
use crate::philox_avx2;

/// The distribution and the type of the numbers that a fill writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    RawUint32,
    RawUint64,
    UniformFloat32,
    UniformFloat64,
    NormalFloat32,
    NormalFloat64,
}

/// The numbers of one block, in memory order.
pub(crate) type Block = [u32; 4];

pub(crate) const BLOCK_BYTES: usize = size_of::<Block>();

impl Values {
    pub(crate) fn item_bytes(self) -> usize {
        match self {
            Self::RawUint32 | Self::UniformFloat32 | Self::NormalFloat32 => 4,
            Self::RawUint64 | Self::UniformFloat64 | Self::NormalFloat64 => 8,
        }
    }

    /// Writes consecutive blocks of a seed's sequence, from block `first`.
    pub(crate) fn write(self, seed: u64, first: u64, out: &mut [Block]) {
        match self {
            Self::RawUint32 => write::<RawUint32>(seed, first, out),
            Self::RawUint64 => write::<RawUint64>(seed, first, out),
            Self::UniformFloat32 => write::<UniformFloat32>(seed, first, out),
            Self::UniformFloat64 => write::<UniformFloat64>(seed, first, out),
            Self::NormalFloat32 => write::<NormalFloat32>(seed, first, out),
            Self::NormalFloat64 => write::<NormalFloat64>(seed, first, out),
        }
    }
}

/// The conversion to the numbers of one [`Values`]. This is a trait, because the compiler would
/// build a function behind a pointer without the caller's target features.
trait Numbers {
    /// Converts each lane's words into a block.
    fn make(words: &Words, out: &mut [Block; LANES]);
}

/// The two steps of a batch, as separate functions. In one function, the compiler would interleave
/// them, and most vectors would need shuffles.
#[derive(Clone, Copy)]
struct Steps {
    blocks: fn(u64, u64, &mut Words),
    make: fn(&Words, &mut [Block; LANES]),
}

fn write<N: Numbers>(seed: u64, first: u64, out: &mut [Block]) {
    run(steps::<N>(), seed, first, out);
}

fn steps<N: Numbers>() -> Steps {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return Steps {
            // SAFETY: `philox_avx2::blocks` requires AVX2, which the check above found.
            blocks: |seed, first, words| unsafe { philox_avx2::blocks(seed, first, words) },
            // SAFETY: `make_with_vectors` requires AVX2 and FMA, which the check above found.
            make: |words, out| unsafe { make_with_vectors::<N>(words, out) },
        };
    }
    portable_steps::<N>()
}

fn portable_steps<N: Numbers>() -> Steps {
    Steps { blocks, make: N::make }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn make_with_vectors<N: Numbers>(words: &Words, out: &mut [Block; LANES]) {
    N::make(words, out);
}

fn run(steps: Steps, seed: u64, first: u64, out: &mut [Block]) {
    let (mut block, mut words) = (first, [[0; LANES]; 4]);
    let (batches, rest) = out.as_chunks_mut::<LANES>();
    for batch in batches {
        (steps.blocks)(seed, block, &mut words);
        (steps.make)(&words, batch);
        block = block.wrapping_add(LANES as u64);
    }
    if !rest.is_empty() {
        let mut batch = [Block::default(); LANES];
        (steps.blocks)(seed, block, &mut words);
        (steps.make)(&words, &mut batch);
        rest.copy_from_slice(&batch[..rest.len()]);
    }
}

/// The two 64-bit numbers of a lane's four words. The first word of each pair is the lower half.
#[inline(always)]
fn wide(words: &Words, lane: usize) -> [u64; 2] {
    [
        u64::from(words[0][lane]) | u64::from(words[1][lane]) << 32,
        u64::from(words[2][lane]) | u64::from(words[3][lane]) << 32,
    ]
}

/// Stores each lane's four numbers as a block.
#[inline(always)]
fn store(numbers: &Words, out: &mut [Block; LANES]) {
    for lane in 0..LANES {
        out[lane] = [numbers[0][lane], numbers[1][lane], numbers[2][lane], numbers[3][lane]];
    }
}

/// Stores each lane's two 64-bit numbers as a block, in this machine's byte order.
#[inline(always)]
fn store_wide(numbers: &[[u64; LANES]; 2], out: &mut [Block; LANES]) {
    for lane in 0..LANES {
        let (first, second) = (numbers[0][lane], numbers[1][lane]);
        let halves = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        let [a, b, c, d] = halves;
        out[lane] = if cfg!(target_endian = "little") { halves } else { [b, a, d, c] };
    }
}

struct RawUint32;

impl Numbers for RawUint32 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        store(words, out);
    }
}

struct RawUint64;

impl Numbers for RawUint64 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        let mut bits = [[0; LANES]; 2];
        for lane in 0..LANES {
            [bits[0][lane], bits[1][lane]] = wide(words, lane);
        }
        store_wide(&bits, out);
    }
}

/// Multiples of 2^-24 in [0, 1), from the upper 24 bits of a word.
struct UniformFloat32;

impl Numbers for UniformFloat32 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        const STEP: f32 = 1.0 / 16_777_216.0;
        let mut bits = [[0; LANES]; 4];
        for word in 0..4 {
            for lane in 0..LANES {
                bits[word][lane] = ((words[word][lane] >> 8) as i32 as f32 * STEP).to_bits();
            }
        }
        store(&bits, out);
    }
}

/// Multiples of 2^-53 in [0, 1), from the upper 53 bits of two words.
struct UniformFloat64;

impl Numbers for UniformFloat64 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        let mut bits = [[0; LANES]; 2];
        for lane in 0..LANES {
            let [first, second] = wide(words, lane);
            bits[0][lane] = uniform_64(first).to_bits();
            bits[1][lane] = uniform_64(second).to_bits();
        }
        store_wide(&bits, out);
    }
}

struct NormalFloat32;

impl Numbers for NormalFloat32 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        let mut bits = [[0; LANES]; 4];
        for half in [0, 2] {
            for lane in 0..LANES {
                let (first, second) = pair_32(words[half][lane], words[half + 1][lane]);
                (bits[half][lane], bits[half + 1][lane]) = (first.to_bits(), second.to_bits());
            }
        }
        store(&bits, out);
    }
}

struct NormalFloat64;

impl Numbers for NormalFloat64 {
    #[inline(always)]
    fn make(words: &Words, out: &mut [Block; LANES]) {
        let mut bits = [[0; LANES]; 2];
        for lane in 0..LANES {
            let [first, second] = wide(words, lane);
            let (first, second) = pair_64(first, second);
            (bits[0][lane], bits[1][lane]) = (first.to_bits(), second.to_bits());
        }
        store_wide(&bits, out);
    }
}

#[cfg(test)]
mod tests {
    //! Goal: vector and portable loops give the same bits, wherever a range is cut, and words map
    //! to numbers as documented. Method: comparisons for several seeds and ranges.

    use super::*;
    use crate::philox::LAST_BLOCK;

    pub(crate) const ALL: [Values; 6] = [
        Values::RawUint32,
        Values::RawUint64,
        Values::UniformFloat32,
        Values::UniformFloat64,
        Values::NormalFloat32,
        Values::NormalFloat64,
    ];

    fn drawn(values: Values, seed: u64, first: u64, count: usize) -> Vec<Block> {
        let mut out = vec![[0; 4]; count];
        values.write(seed, first, &mut out);
        out
    }

    /// As [`Values::write`], but with the portable loop on every processor.
    fn write_portable(values: Values, seed: u64, first: u64, out: &mut [Block]) {
        match values {
            Values::RawUint32 => run(portable_steps::<RawUint32>(), seed, first, out),
            Values::RawUint64 => run(portable_steps::<RawUint64>(), seed, first, out),
            Values::UniformFloat32 => run(portable_steps::<UniformFloat32>(), seed, first, out),
            Values::UniformFloat64 => run(portable_steps::<UniformFloat64>(), seed, first, out),
            Values::NormalFloat32 => run(portable_steps::<NormalFloat32>(), seed, first, out),
            Values::NormalFloat64 => run(portable_steps::<NormalFloat64>(), seed, first, out),
        }
    }

    #[test]
    fn vector_and_portable_builds_give_the_same_bits() {
        for values in ALL {
            for (seed, first) in [(0, 0), (u64::MAX, 1 << 40), (67_280_421_310_721, LAST_BLOCK - 9)]
            {
                let mut portable = vec![[0; 4]; 4099];
                write_portable(values, seed, first, &mut portable);
                assert_eq!(drawn(values, seed, first, 4099), portable, "{values:?} of seed {seed}");
            }
        }
    }

    #[test]
    fn a_range_cut_anywhere_has_the_same_bits() {
        for values in ALL {
            let whole = drawn(values, 5, LAST_BLOCK - 20, 150);
            for cut in (0..=150).step_by(3) {
                let first = LAST_BLOCK - 20 + cut as u64;
                let parts =
                    [drawn(values, 5, LAST_BLOCK - 20, cut), drawn(values, 5, first, 150 - cut)];
                assert_eq!(parts.concat(), whole, "{values:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn the_mapping_from_words_to_numbers_is_the_documented_one() {
        let mut all = [[0; LANES]; 4];
        blocks(7, 3, &mut all);
        let words = all.map(|words| words[0]);
        let one = |values| drawn(values, 7, 3, 1)[0];
        assert_eq!(one(Values::RawUint32), words);
        let wide = [0, 2].map(|low| u64::from(words[low]) | u64::from(words[low + 1]) << 32);
        let stored = |numbers: [u64; 2]| {
            let mut out = [Block::default()];
            out.as_flattened_mut()
                .iter_mut()
                .zip(numbers.map(u64::to_ne_bytes).as_flattened().as_chunks::<4>().0)
                .for_each(|(word, bytes)| *word = u32::from_ne_bytes(*bytes));
            out[0]
        };
        assert_eq!(one(Values::RawUint64), stored(wide));
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
