//! Sizes in bytes: units, rounding, and text for messages.
//!
//! ```
//! use accelrt::size::{GIB, KIB, MIB, display_bytes, parse_bytes, round_up};
//! assert_eq!(parse_bytes("8GiB"), Some(8 * GIB));
//! assert_eq!(parse_bytes("8GB"), None); // which often means another number
//! assert_eq!(round_up(5 * KIB, MIB), Some(MIB));
//! assert_eq!(display_bytes(3 * MIB / 2), "1.50 MiB");
//! ```

/// 1024 bytes.
pub const KIB: usize = 1 << 10;
/// 1024 KiB in bytes.
pub const MIB: usize = 1 << 20;
/// 1024 MiB in bytes.
pub const GIB: usize = 1 << 30;

/// Converts a 64-bit number to `usize`, without loss on the supported 64-bit machines.
#[expect(clippy::cast_possible_truncation, reason = "lib.rs refuses machines below 64 bits")]
#[doc(hidden)]
#[must_use]
pub const fn to_usize(number: u64) -> usize {
    number as usize
}

/// `bytes` rounded up to a multiple of `granule_bytes`; `None` when the result overflows.
///
/// # Panics
/// When the granule is zero, which is a bug of the caller.
#[must_use]
pub const fn round_up(bytes: usize, granule_bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(granule_bytes)
}

/// Parses a size with an optional unit: `"1048576"`, `"512B"`, `"256M"`, `"8GiB"`. Units are powers
/// of 1024, in either case. `None` for any other text, also for `KB`, `MB`, `GB` and `TB`, which
/// often mean powers of 1000.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => GIB << 10,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(unit_bytes)
}

/// Formats a size for messages, with two decimals, rounded down: `"1.50 GiB"`, `"512 B"`.
#[must_use]
pub fn display_bytes(bytes: usize) -> String {
    let (unit_bytes, unit) = match bytes {
        0..KIB => return format!("{bytes} B"),
        KIB..MIB => (KIB, "KiB"),
        MIB..GIB => (MIB, "MiB"),
        _ => (GIB, "GiB"),
    };
    // Integer arithmetic: a message must not round 1023.999 MiB up to a full GiB.
    let hundredths = (bytes % unit_bytes) as u128 * 100 / unit_bytes as u128;
    format!("{}.{hundredths:02} {unit}", bytes / unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_stops_at_overflow() {
        assert_eq!(round_up(0, 512), Some(0));
        assert_eq!(round_up(1, 512), Some(512));
        assert_eq!(round_up(512, 512), Some(512));
        assert_eq!(round_up(usize::MAX, 512), None);
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", MIB),
            ("512B", 512),
            ("4k", 4 * KIB),
            ("256M", 256 * MIB),
            ("8GiB", 8 * GIB),
            ("2t", 2048 * GIB),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "M", "-1", "+1", "1.5G", "8 GiB", "8GB", "1KB", "0x10", "16777216T"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(display_bytes(511), "511 B");
        assert_eq!(display_bytes(1536 * MIB), "1.50 GiB");
        assert_eq!(display_bytes(GIB - 1), "1023.99 MiB");
        assert_eq!(display_bytes(usize::MAX), "17179869183.99 GiB");
    }
}
