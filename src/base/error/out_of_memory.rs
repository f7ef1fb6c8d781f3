//! The message of an out-of-memory error.
//!
//! The text begins as PyTorch's message, which programs search for "out of memory".

use crate::base::device::Device;
use crate::base::shortage::Shortage;
use crate::base::size::display_bytes;

/// The size from which on PyTorch's message says `more than 1EB` in place of the size.
const EXBIBYTE: usize = 1 << 60;

/// Formats the message. Leaves out a capacity of 0 and a missing cache state: both are unknown.
pub(super) fn message(
    device: Device,
    requested_bytes: usize,
    (free_bytes, total_bytes): (usize, usize),
    cache: Option<&Shortage>,
) -> String {
    let kind = device.kind().name().to_uppercase();
    let requested = match requested_bytes {
        ..EXBIBYTE => display_bytes(requested_bytes),
        _ => "more than 1EB memory".to_owned(),
    };
    let is_pinned = cache.is_some_and(|cache| cache.is_pinned);
    let pinned = if is_pinned { ", pinned on the host" } else { "" };
    let whose = if is_pinned { "The host".to_owned() } else { device.to_string() };
    let segment = cache.and_then(|cache| cache.segment_bytes).map(|bytes| {
        let bytes = display_bytes(bytes);
        format!(", which takes a segment of {bytes}")
    });
    let segment = segment.unwrap_or_default();
    let mut text = format!("{kind} out of memory. Tried to allocate {requested}{pinned}{segment}.");
    if total_bytes > 0 {
        let [free, total] = [free_bytes, total_bytes].map(display_bytes);
        let capacity = format!(" {whose} has a total capacity of {total} of which {free} is free.");
        text.push_str(&capacity);
    }
    if let Some(cache) = cache {
        text.push(' ');
        text.push_str(&cache.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::MIB;

    #[test]
    fn a_message_begins_as_pytorchs_and_omits_unknown_numbers() {
        let device = Device::cpu(1);
        let known = message(device, 3 * MIB, (MIB, 2 * MIB), None);
        let capacity = "cpu:1 has a total capacity of 2.00 MiB of which 1.00 MiB is free.";
        assert_eq!(known, format!("CPU out of memory. Tried to allocate 3.00 MiB. {capacity}"));
        let unknown = message(device, EXBIBYTE, (0, 0), None);
        assert_eq!(unknown, "CPU out of memory. Tried to allocate more than 1EB memory.");
        let largest = message(device, EXBIBYTE - 1, (0, 0), None);
        assert_eq!(largest, "CPU out of memory. Tried to allocate 1073741823.99 GiB.");
    }

    #[test]
    fn a_larger_segment_is_named_in_the_message() {
        let cache =
            Shortage { is_pinned: true, segment_bytes: Some(8 * MIB), ..Shortage::default() };
        let text = message(Device::cpu(0), 1000, (0, 0), Some(&cache));
        let expected =
            "Tried to allocate 1000 B, pinned on the host, which takes a segment of 8.00 MiB. The ";
        assert!(text.contains(expected), "{text}");
    }
}
