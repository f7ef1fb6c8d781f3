//! Rounds numbers to the nearest float of 8 or 16 bits, with ties to even.
//!
//! The formats have DLPack's names. `fn` has no infinities, and one NaN of each sign. `fnuz` has no
//! infinities, no negative zero, and one NaN, which has the bits of a negative zero.

/// Which infinities and NaNs a format has; the comment of this module describes `Fn` and `Fnuz`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaNs with the highest exponent.
    Ieee,
    Fn,
    Fnuz,
}

/// A format of a sign bit, then exponent bits, then mantissa bits.
#[derive(Clone, Copy)]
pub(crate) struct SmallFloat {
    exponent_bits: u32,
    mantissa_bits: u32,
    special: Special,
}

impl SmallFloat {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (exponent_bits, mantissa_bits, special) = match name {
            "float16" => (5, 10, Special::Ieee),
            "bfloat16" => (8, 7, Special::Ieee),
            "float8_e5m2" => (5, 2, Special::Ieee),
            "float8_e4m3fn" => (4, 3, Special::Fn),
            "float8_e4m3fnuz" => (4, 3, Special::Fnuz),
            "float8_e5m2fnuz" => (5, 2, Special::Fnuz),
            _ => return None,
        };
        Some(Self { exponent_bits, mantissa_bits, special })
    }

    /// The bits of the nearest number of this format. `None` for a number that is too large, and
    /// for an infinity in a format without infinities.
    pub(crate) fn bits(self, number: f64) -> Option<u16> {
        let Self { exponent_bits, mantissa_bits, special } = self;
        let highest_exponent = ((1_u64 << exponent_bits) - 1) << mantissa_bits;
        let sign = u64::from(number.is_sign_negative()) << (exponent_bits + mantissa_bits);
        let magnitude = match special {
            _ if number.is_nan() => match special {
                Special::Ieee => highest_exponent | 1 << (mantissa_bits - 1),
                Special::Fn => highest_exponent | ((1 << mantissa_bits) - 1),
                Special::Fnuz => return u16::try_from(1 << (exponent_bits + mantissa_bits)).ok(),
            },
            Special::Ieee if number.is_infinite() => highest_exponent,
            _ => self.finite(number.abs())?,
        };
        let has_sign = special != Special::Fnuz || magnitude > 0;
        u16::try_from(magnitude | if has_sign { sign } else { 0 }).ok()
    }

    fn finite(self, number: f64) -> Option<u64> {
        let Self { exponent_bits, mantissa_bits, special } = self;
        let bias = (1_i32 << (exponent_bits - 1)) - i32::from(special != Special::Fnuz);
        let largest = match special {
            Special::Ieee => (((1_u64 << exponent_bits) - 1) << mantissa_bits) - 1,
            Special::Fn => (1 << (exponent_bits + mantissa_bits)) - 2,
            Special::Fnuz => (1 << (exponent_bits + mantissa_bits)) - 1,
        };
        // A subnormal double gets exponent -1023. Such numbers round to 0 in every format.
        let exponent = i32::try_from(number.to_bits() >> 52).unwrap_or(i32::MAX) - 1023;
        let exponent = exponent.max(1 - bias);
        if exponent > 1 << exponent_bits {
            return None;
        }
        let scale = i32::try_from(mantissa_bits).ok()? - exponent;
        let units = (number * 2_f64.powi(scale)).round_ties_even();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most twice the mantissas there are"
        )]
        let units = units as u64;
        let hidden = 1_u64 << mantissa_bits;
        let found = if units < hidden {
            units // subnormal
        } else {
            // A mantissa that rounds up to the next power of two carries over into the exponent.
            (u64::try_from(exponent + bias).ok()? << mantissa_bits) + (units - hidden)
        };
        (found <= largest).then_some(found)
    }
}
