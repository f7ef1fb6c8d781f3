//! Devices and kinds from names and numbers, and what is refused: `cpu:0`, a kind's registration.

use std::str::FromStr;

use crate::base::device::{Device, DeviceKind, MAX_DEVICE_INDEX};
use crate::base::error::{DeviceError, Error, Result};

impl Device {
    /// The device `index` of `kind`. Fails when the index is over [`MAX_DEVICE_INDEX`].
    pub fn new(kind: DeviceKind, index: usize) -> Result<Self> {
        match u8::try_from(index) {
            Ok(index) if index <= MAX_DEVICE_INDEX => Ok(Self::of_parts(kind, index)),
            _ => Err(Error::Device(DeviceError::IndexTooLarge { kind, index })),
        }
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

impl DeviceKind {
    /// Registers a kind of another crate, for the lifetime of the process. A second registration
    /// with the same name and code returns the same kind.
    ///
    /// Fails when the name is no lower-case identifier of at most 32 ASCII characters, when another
    /// kind has the name or the code, and when the code is outside 64 to 127.
    pub fn register(name: &str, type_code: u8) -> Result<Self> {
        Self::enter(name, type_code).map_err(|reason| {
            let name = name.to_owned();
            Error::Device(DeviceError::KindRefused { name, type_code, reason })
        })
    }
}

impl FromStr for DeviceKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::from_name(name)
            .ok_or_else(|| Error::Device(DeviceError::UnknownKind { given: name.to_owned() }))
    }
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
