//! Devices by name: a kind and an index, written `cpu:0`.

use std::fmt;
use std::str::FromStr;

mod kind;

pub use self::kind::DeviceKind;
use crate::base::error::{DeviceError, Error, Result};

/// The largest index that a [`Device`] can have. A machine may have fewer devices.
pub const MAX_DEVICE_INDEX: u8 = 127;

/// One device: a kind and an index from 0 to [`MAX_DEVICE_INDEX`].
///
/// The value is a name only: the call that uses it fails if the machine has no such device.
///
/// ```
/// use accelrt::{Device, DeviceKind};
/// let device: Device = "cpu:1".parse()?;
/// assert_eq!((device.kind(), device.index()), (DeviceKind::CPU, 1));
/// assert_eq!(device.to_string(), "cpu:1");
/// assert!("cpu:128".parse::<Device>().is_err());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    kind: DeviceKind,
    index: u8,
}

impl Device {
    /// The device `index` of `kind`. Fails when the index is over [`MAX_DEVICE_INDEX`].
    pub fn new(kind: DeviceKind, index: usize) -> Result<Self> {
        match u8::try_from(index) {
            Ok(index) if index <= MAX_DEVICE_INDEX => Ok(Self { kind, index }),
            _ => Err(Error::Device(DeviceError::IndexTooLarge { kind, index })),
        }
    }

    /// The device `cpu:index`, for callers that know that the index is in range.
    ///
    /// # Panics
    /// When the index is over [`MAX_DEVICE_INDEX`].
    #[must_use]
    pub const fn cpu(index: u8) -> Self {
        assert!(index <= MAX_DEVICE_INDEX, "a device index is at most 127");
        Self { kind: DeviceKind::CPU, index }
    }

    /// The kind: `cpu` for the device `cpu:1`.
    #[must_use]
    pub const fn kind(self) -> DeviceKind {
        self.kind
    }

    /// The index within the kind: 1 for the device `cpu:1`.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The device as a number, for records.
    pub(crate) const fn to_bits(self) -> u16 {
        u16::from_le_bytes([self.kind.type_code(), self.index])
    }

    /// The device of [`Device::to_bits`].
    pub(crate) const fn of_bits(bits: u16) -> Self {
        let [code, index] = bits.to_le_bytes();
        Self { kind: DeviceKind::of_code(code), index }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `kind` (index 0) or `kind:index`; the index has no sign and no leading zeros.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, index) = parse_device(text)?;
        Self::new(kind, index.unwrap_or(0))
    }
}

/// Splits a device string into its kind and its index; `None` for a string without an index.
///
/// Fails as torch does for an empty string, an unknown kind, and an index that is not a plain
/// decimal number (`cuda:`, `cuda:-1`, `cuda:01`, `cuda:1:2`). Accepts any index that fits `usize`.
pub fn parse_device(text: &str) -> Result<(DeviceKind, Option<usize>)> {
    if text.is_empty() {
        return Err(Error::Device(DeviceError::EmptyString));
    }
    let (name, digits) = match text.split_once(':') {
        None => (text, None),
        Some((name, digits)) => (name, Some(digits)),
    };
    let kind = name.parse()?;
    let Some(digits) = digits else { return Ok((kind, None)) };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.len() > 1 && digits.starts_with('0')) {
        return Err(Error::Device(DeviceError::InvalidString { given: text.to_owned() }));
    }
    let index = digits.parse().map_err(|_| {
        Error::Device(DeviceError::UnparsableIndex {
            digits: digits.to_owned(),
            given: text.to_owned(),
        })
    })?;
    Ok((kind, Some(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for kind in DeviceKind::registered() {
            for index in [0, 1, 127] {
                let device = Device::new(kind, index).unwrap();
                assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
                assert_eq!(Device::of_bits(device.to_bits()), device);
            }
            assert_eq!(DeviceKind::from_type_code(i64::from(kind.type_code())), Some(kind));
        }
        assert_eq!("cuda".parse::<Device>().unwrap().index(), 0);
        assert_eq!(DeviceKind::from_type_code(99), None);
    }

    #[test]
    fn a_device_has_two_bytes_also_where_it_is_optional() {
        assert_eq!([size_of::<Device>(), size_of::<Option<Device>>()], [2; 2]);
        assert_eq!([size_of::<DeviceKind>(), size_of::<Option<DeviceKind>>()], [1; 2]);
    }

    #[test]
    fn malformed_names_say_what_is_wrong() {
        for (text, expected) in [
            ("", "Device string must not be empty"),
            ("cuda:-1", "Invalid device string: 'cuda:-1'"),
            ("cuda:", "Invalid device string: 'cuda:'"),
            ("cuda:01", "Invalid device string: 'cuda:01'"),
            ("cuda:1:2", "Invalid device string: 'cuda:1:2'"),
            ("CUDA", "Expected one of cpu, cuda, xpu"),
            ("foo", "foo"),
            ("cuda:128", "128"),
            ("cuda:99999999999999999999", "Could not parse device index '99999999999999999999'"),
        ] {
            let message = text.parse::<Device>().unwrap_err().to_string();
            assert!(message.contains(expected), "{text:?} gave {message:?}");
        }
    }
}
