//! Sizes in bytes: units, rounding, and text for messages.

/// One kibibyte.
pub const KIB: usize = 1 << 10;
/// One mebibyte.
pub const MIB: usize = 1 << 20;
/// One gibibyte.
pub const GIB: usize = 1 << 30;

/// A 64-bit number as a size or an index of this machine.
#[expect(clippy::cast_possible_truncation, reason = "lib.rs refuses machines below 64 bits")]
pub(crate) const fn to_usize(number: u64) -> usize {
    number as usize
}

/// `bytes` rounded up to a multiple of `granule_bytes`; `None` when that overflows.
///
/// # Panics
/// When the granule is zero: that is a mistake of ours, not an input.
#[must_use]
pub const fn round_up(bytes: usize, granule_bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(granule_bytes)
}

/// A size as people read it, with two decimals: `"1.50 GiB"`, `"512 B"`.
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
    fn sizes_read_well() {
        assert_eq!(display_bytes(511), "511 B");
        assert_eq!(display_bytes(1536 * MIB), "1.50 GiB");
        assert_eq!(display_bytes(GIB - 1), "1023.99 MiB");
        assert_eq!(display_bytes(usize::MAX), "17179869183.99 GiB");
    }
}
