//! Devices: invalid names, and devices that do not exist.

use crate::base::device::{Device, DeviceKind};

/// An invalid name of a device, or a device that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DeviceError {
    /// An empty device string.
    #[error("Device string must not be empty")]
    EmptyString,
    /// A device string whose part after the colon is not a plain decimal number.
    #[error("Invalid device string: '{given}'")]
    InvalidString { given: String },
    /// A device index that does not fit into an integer.
    #[error("Could not parse device index '{digits}' in device string '{given}'")]
    UnparsableIndex { digits: String, given: String },
    /// A device kind that does not exist.
    #[error(
        "Expected one of {} device type at start of device string: {given}",
        DeviceKind::names()
    )]
    UnknownKind { given: String },
    /// A device kind that cannot be registered.
    #[error("Device kind {name:?} with type code {type_code} is refused: {reason}")]
    KindRefused { name: String, type_code: u8, reason: String },
    /// A second backend for a kind.
    #[error("A backend is registered for kind {kind}: a kind has one")]
    BackendRegistered { kind: DeviceKind },
    /// A device index above the maximum.
    #[error("Device index {index} of {kind} is out of range: an index is at most 127")]
    IndexTooLarge { kind: DeviceKind, index: usize },
    /// A device that does not exist.
    #[error(
        "Device {device} does not exist: there {}",
        devices(device.kind(), *count)
    )]
    NotFound { device: Device, count: usize },
    /// A kind that cannot be used here.
    #[error("No {kind} device is available: {reason}")]
    KindUnavailable { kind: DeviceKind, reason: String },
}

fn devices(kind: DeviceKind, count: usize) -> String {
    match count {
        0 => format!("are 0 {kind} devices"),
        1 => format!("is 1 {kind} device, index 0"),
        count => format!("are {count} {kind} devices, indices 0 to {}", count - 1),
    }
}
