//! Normal numbers by the Box-Muller transform, in IEEE operations that round the same everywhere.
//!
//! The functions use only additions, multiplications and fused multiply-adds, in a fixed order: no
//! division, no table, no branch. Vectors and OpenCL C (`fill.cl`, with the same coefficients)
//! therefore give the same results. Two words give two numbers: a radius times the cosine and the
//! sine of a uniform angle. The radius is the root of -2 log(u) for a uniform u. Remez' algorithm
//! fitted the polynomials to the least relative error; the root uses Newton's method.
//! Source: G. Box, M. Muller, "A note on the generation of random normal deviates" (1958).

/// The coefficients of a polynomial p, the constant term first. For f from √½ - 1 to √2 - 1,
/// log(1 + f) is f - f²/2 + f³ p(f), with a relative error of at most 2^-27 in exact arithmetic.
pub(crate) const LOG_32: [f32; 8] = [
    0.333_333_3,
    -0.250_008_2,
    0.200_012_27,
    -0.166_233_57,
    0.142_017_57,
    -0.131_601_81,
    0.127_615_78,
    -0.076_345,
];

/// The coefficients of a polynomial p, the constant term first. For x from -1 to 1, sin(x π/4) is
/// x p(x²). The relative error is at most 2^-28 before the coefficients are rounded to `f32`.
pub(crate) const SIN_32: [f32; 4] =
    [std::f32::consts::FRAC_PI_4, -0.080_745_44, 0.002_490_001, -3.595_045e-5];

/// The coefficients of a polynomial p, the constant term first. For x from -1 to 1, cos(x π/4) is
/// p(x²). The relative error is at most 2^-33 before the coefficients are rounded to `f32`.
pub(crate) const COS_32: [f32; 5] =
    [1.0, -0.308_425_13, 0.015_854_327, -0.000_325_940_08, 3.530_338e-6];

/// The coefficients for `f64` of the polynomial that [`LOG_32`] describes. The relative error is at
/// most 2^-56 in exact arithmetic.
pub(crate) const LOG_64: [f64; 19] = [
    0.333_333_333_333_331_4,
    -0.249_999_999_999_879_8,
    0.200_000_000_000_666_12,
    -0.166_666_666_698_254_72,
    0.142_857_142_800_926_18,
    -0.124_999_996_914_777_21,
    0.111_111_111_475_417_81,
    -0.100_000_152_048_598_87,
    0.090_909_239_277_602_64,
    -0.083_329_135_694_941_95,
    0.076_915_299_301_272_15,
    -0.071_494_392_330_669_36,
    0.066_845_875_374_933_85,
    -0.061_966_788_924_825_28,
    0.056_683_887_150_883_856,
    -0.056_777_954_518_134_51,
    0.065_034_647_024_035_61,
    -0.059_816_428_022_951_264,
    0.026_150_599_022_538_554,
];

/// The coefficients for `f64` of the polynomial that [`SIN_32`] describes. The relative error is at
/// most 2^-58 before the coefficients are rounded to `f64`.
pub(crate) const SIN_64: [f64; 7] = [
    std::f64::consts::FRAC_PI_4,
    -0.080_745_512_188_280_54,
    0.002_490_394_570_188_736_4,
    -3.657_620_415_845_638_6e-5,
    3.133_616_216_633_737e-7,
    -1.757_149_294_157_490_4e-9,
    6.877_100_842_742_955e-12,
];

/// The coefficients for `f64` of the polynomial that [`COS_32`] describes. The relative error is at
/// most 2^-64 before the coefficients are rounded to `f64`.
pub(crate) const COS_64: [f64; 8] = [
    1.0,
    -0.308_425_137_534_042_44,
    0.015_854_344_243_815_426,
    -0.000_325_991_886_926_758_9,
    3.590_860_446_058_855e-6,
    -2.461_136_405_106_278e-8,
    1.150_051_188_801_104_9e-10,
    -3.858_155_558_321_837_5e-13,
];

/// Defines a module for one floating-point type. `$exponent` converts a small integer to the type.
macro_rules! functions {
    (
        $module:ident, $float:ident, $bits:ident, $integer:ident,
        log $log:ident, sin $sin:ident, cos $cos:ident,
        mantissa $mantissa_bits:literal, root_of_half $root_of_half:literal,
        root_guess $root_guess:literal, root_steps $root_steps:literal, exponent $exponent:expr
    ) => {
        mod $module {
            use super::{$cos, $log, $sin};

            /// Horner's method for c0 + x (c1 + x (c2 + …)).
            #[inline(always)]
            fn polynomial<const N: usize>(coefficients: &[$float; N], x: $float) -> $float {
                let mut sum = coefficients[N - 1];
                let mut index = N - 1;
                while index > 0 {
                    index -= 1;
                    sum = sum.mul_add(x, coefficients[index]);
                }
                sum
            }

            /// -2 log(u), for u in (0, 1].
            #[inline(always)]
            #[expect(clippy::cast_possible_wrap, reason = "an arithmetic shift of the exponent")]
            #[expect(clippy::cast_sign_loss, reason = "subtracted from the bits")]
            pub(crate) fn minus_two_log(u: $float) -> $float {
                // u = 2^exponent (1 + f), 1 + f from √½ to √2.
                let bits = u.to_bits();
                let exponent = bits.wrapping_sub($root_of_half) as $integer >> $mantissa_bits;
                let mantissa = bits.wrapping_sub((exponent << $mantissa_bits) as $bits);
                let f = $float::from_bits(mantissa) - 1.0;
                let rest = polynomial(&$log, f).mul_add(f, -0.5);
                let log = (f * f).mul_add(rest, f);
                let exponent: $float = $exponent(exponent);
                -2.0 * exponent.mul_add(std::$float::consts::LN_2, log)
            }

            /// The square root of 0 or of a number far above the subnormal numbers.
            #[inline(always)]
            pub(crate) fn root(square: $float) -> $float {
                // Halving the exponent estimates the inverse root. Newton's steps refine it.
                let half = 0.5 * square;
                let mut inverse = $float::from_bits($root_guess - (square.to_bits() >> 1));
                for _ in 0..$root_steps {
                    inverse *= (-(half * inverse)).mul_add(inverse, 1.5);
                }
                let root = square * inverse;
                (-root).mul_add(root, square).mul_add(0.5 * inverse, root)
            }

            /// Cosine and sine of (`quadrant` + x/2) right angles, x from -1 to 1.
            #[inline(always)]
            pub(crate) fn cos_sin(quadrant: $bits, x: $float) -> ($float, $float) {
                let square = x * x;
                let sin = x * polynomial(&$sin, square);
                let cos = polynomial(&$cos, square);
                let (across, up) = if quadrant & 1 == 0 { (cos, sin) } else { (sin, cos) };
                // The cosine is negative in the quadrants 1 and 2, the sine in 2 and 3.
                (sign(across, quadrant.wrapping_add(1)), sign(up, quadrant))
            }

            /// Negates the number in the quadrants 2 and 3.
            #[inline(always)]
            fn sign(number: $float, quadrant: $bits) -> $float {
                $float::from_bits(number.to_bits() ^ ((quadrant & 2) << ($bits::BITS - 2)))
            }
        }
    };
}

functions!(
    single, f32, u32, i32,
    log LOG_32, sin SIN_32, cos COS_32,
    mantissa 23, root_of_half 0x3f35_04f3,
    root_guess 0x5f37_59df, root_steps 2, exponent super::rounded_f32
);
functions!(
    double, f64, u64, i64,
    log LOG_64, sin SIN_64, cos COS_64,
    mantissa 52, root_of_half 0x3fe6_a09e_667f_3bcd,
    root_guess 0x5fe6_eb50_c7b5_37a9, root_steps 3, exponent super::f64_by_bits
);

/// Converts an integer to the nearest `f32`. The result is exact for absolute values up to 2^24.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "rounds to the nearest, as intended")]
fn rounded_f32(integer: i32) -> f32 {
    integer as f32
}

/// Converts a signed integer of up to 52 bits, without rounding. Adds the integer to the bits of
/// 1.5 · 2^52, and subtracts that number. A cast would be slower, because not every processor has a
/// conversion instruction for vectors.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "bits are added")]
fn f64_by_bits(integer: i64) -> f64 {
    const BASE: u64 = 0x4338_0000_0000_0000;
    f64::from_bits(BASE.wrapping_add(integer as u64)) - f64::from_bits(BASE)
}

/// 2^-`power`, exactly, for a power up to 126.
const fn exp2_neg_f32(power: u32) -> f32 {
    f32::from_bits((127 - power) << 23)
}

/// 2^-`power`, exactly, for a power up to 1022.
const fn exp2_neg_f64(power: u64) -> f64 {
    f64::from_bits((1023 - power) << 52)
}

/// The upper 53 bits times 2^-53, exactly. The conversion takes 32 bits, then 21 bits.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "32 and 21 bits")]
pub(crate) fn uniform_64(number: u64) -> f64 {
    let (upper, lower) = (number >> 32, number >> 11 & 0x1F_FFFF);
    f64_by_bits(upper as i64)
        .mul_add(exp2_neg_f64(32), f64_by_bits(lower as i64) * exp2_neg_f64(53))
}

/// Two normal numbers from two words: the radius from the upper 31 bits of the first, the angle
/// from the second.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "31 bits, and a distance to the nearest quadrant")]
pub(crate) fn pair_32(first: u32, second: u32) -> (f32, f32) {
    // u is the middle of an interval of length 2^-31, so it is never 0.
    let u = rounded_f32((first >> 1) as i32).mul_add(exp2_neg_f32(31), exp2_neg_f32(32));
    let radius = single::root(single::minus_two_log(u));
    let quadrant = second.wrapping_add(1 << 29) >> 30;
    let rest = second.wrapping_sub(quadrant << 30) as i32;
    let (cos, sin) = single::cos_sin(quadrant, rounded_f32(rest) * exp2_neg_f32(29));
    (radius * cos, radius * sin)
}

/// Two normal numbers from two 64-bit numbers: the radius from the upper 52 bits of the first, the
/// angle from the upper 54 of the second.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "52 bits, and a distance to the nearest quadrant")]
pub(crate) fn pair_64(first: u64, second: u64) -> (f64, f64) {
    const HALF: i64 = 1 << 51;
    // Subtracts half of the range, because `f64_by_bits` converts 52 bits including a sign.
    let step = f64_by_bits((first >> 12) as i64 - HALF);
    let u = step.mul_add(exp2_neg_f64(52), 0.5 + exp2_neg_f64(53));
    let radius = double::root(double::minus_two_log(u));
    let quadrant = second.wrapping_add(1 << 61) >> 62;
    let rest = second.wrapping_sub(quadrant << 62) as i64 >> 10;
    let (cos, sin) = double::cos_sin(quadrant, f64_by_bits(rest) * exp2_neg_f64(51));
    (radius * cos, radius * sin)
}

#[cfg(test)]
mod tests {
    //! Goal: the functions are accurate to the last places of their type. Method: comparison with
    //! the standard library's `f64` functions, at the ends of the ranges and many points between.
    #![expect(clippy::cast_possible_truncation, reason = "references are rounded")]

    use std::f64::consts::FRAC_PI_4;

    use super::*;

    const INTERVAL_COUNT: u32 = 50_000;

    /// Asserts that no error exceeds `units` units in the last place of the reference.
    fn is_close(name: &str, units: f64, epsilon: f64, pairs: impl Iterator<Item = (f64, f64)>) {
        let error = |(given, right): (f64, f64)| (given - right).abs() / (right.abs() * epsilon);
        let errors: Vec<_> = pairs.filter(|(_, right)| *right != 0.0).map(error).collect();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        assert!(errors.len() > 40_000 && worst <= units, "{name}: {worst} units of the last place");
    }

    /// Points from 2^-`powers`, exclusive, to 1, evenly spaced in the exponent.
    fn uniforms(powers: f64) -> impl Iterator<Item = f64> {
        (0..=INTERVAL_COUNT)
            .map(move |place| (-powers * f64::from(place) / f64::from(INTERVAL_COUNT)).exp2())
    }

    fn from_minus_one_to_one() -> impl Iterator<Item = f64> {
        (0..=INTERVAL_COUNT).map(|place| f64::from(place) / f64::from(INTERVAL_COUNT) * 2.0 - 1.0)
    }

    #[test]
    fn logarithms_are_accurate() {
        let single = uniforms(32.0).map(|u| u as f32);
        let single =
            single.map(|u| (f64::from(single::minus_two_log(u)), -2.0 * f64::from(u).ln()));
        is_close("single", 2.0, f64::from(f32::EPSILON), single);
        let double = uniforms(53.0).map(|u| (double::minus_two_log(u), -2.0 * u.ln()));
        is_close("double", 2.5, f64::EPSILON, double);
    }

    #[test]
    fn roots_are_accurate_and_that_of_zero_is_zero() {
        let squares = || uniforms(60.0).map(|u| u * 74.0);
        let single = squares().map(|it| it as f32);
        let single = single.map(|it| (f64::from(single::root(it)), f64::from(it).sqrt()));
        is_close("single", 1.0, f64::from(f32::EPSILON), single);
        is_close("double", 1.0, f64::EPSILON, squares().map(|it| (double::root(it), it.sqrt())));
        assert_eq!((single::root(0.0).abs(), double::root(0.0).abs()), (0.0, 0.0));
        assert_eq!((single::minus_two_log(1.0), double::minus_two_log(1.0)), (0.0, 0.0));
    }

    #[test]
    fn sines_and_cosines_are_accurate_in_every_quadrant() {
        for quadrant in 0..4_u32 {
            let right = |x: f64| {
                let (sin, cos) = (x * FRAC_PI_4).sin_cos();
                [(cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos)][quadrant as usize]
            };
            let single = || {
                from_minus_one_to_one().map(|x| x as f32).map(move |x| {
                    let ((cos, sin), right) = (single::cos_sin(quadrant, x), right(f64::from(x)));
                    [(f64::from(cos), right.0), (f64::from(sin), right.1)]
                })
            };
            is_close("single", 2.0, f64::from(f32::EPSILON), single().flatten());
            let double = from_minus_one_to_one().map(|x| {
                let ((cos, sin), right) = (double::cos_sin(u64::from(quadrant), x), right(x));
                [(cos, right.0), (sin, right.1)]
            });
            is_close("double", 2.5, f64::EPSILON, double.flatten());
        }
    }

    #[test]
    fn extreme_words_give_finite_numbers_and_the_extreme_ones() {
        let farthest = (2.0 * 32.0 * std::f64::consts::LN_2).sqrt();
        assert!((f64::from(pair_32(0, 0).0) - farthest).abs() < 1e-6);
        let farthest = (2.0 * 53.0 * std::f64::consts::LN_2).sqrt();
        assert!((pair_64(0, 0).0 - farthest).abs() < 1e-14);
        for direction in [0, 1 << 29, 3 << 29, 5 << 29, 7 << 29, u32::MAX] {
            let (cos, sin) = pair_32(u32::MAX, direction);
            assert_eq!((cos.abs(), sin.abs()), (0.0, 0.0), "u is 1");
            let wide = u64::from(direction) << 32;
            let ((cos, sin), radius) =
                (pair_64(u64::MAX, wide), (-2.0 * (-0.5_f64.powi(53)).ln_1p()).sqrt());
            assert!((cos.hypot(sin) - radius).abs() < 1e-15 * radius * 10.0, "{cos} {sin}");
        }
    }

    #[test]
    fn single_and_double_precision_agree_on_equivalent_words() {
        for place in 0..INTERVAL_COUNT {
            let words = [place.wrapping_mul(0x9E37_79B9) | 1, place.wrapping_mul(0x85EB_CA6B)];
            let (single, double) = (
                pair_32(words[0], words[1]),
                pair_64(u64::from(words[0]) << 32, u64::from(words[1]) << 32),
            );
            // An odd first word gives both precisions almost the same u.
            let distance = (f64::from(single.0) - double.0).hypot(f64::from(single.1) - double.1);
            let near_one = f64::from(u32::MAX - words[0]) < f64::from(1 << 12);
            assert!(near_one || distance < 2e-6, "{words:x?}: {single:?} and {double:?}");
        }
    }
}
