//! Errors of devices: invalid names, and devices that do not exist.

use crate::base::device::{Device, DeviceKind};

/// An invalid name of a device, or a device that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DeviceError {
    /// A device string without any character.
    #[error("Device string must not be empty")]
    EmptyString,
    /// A device string whose part after the colon is not a plain decimal number.
    #[error("Invalid device string: '{given}'")]
    InvalidString { given: String },
    /// A device index above `usize::MAX`.
    #[error("Could not parse device index '{digits}' in device string '{given}'")]
    UnparsableIndex { digits: String, given: String },
    /// A name under which no kind is registered.
    #[error(
        "Expected one of {} device type at start of device string: {given}",
        DeviceKind::names()
    )]
    UnknownKind { given: String },
    /// A registration of a kind whose name or type code is invalid or taken.
    #[error("Device kind {name:?} with type code {type_code} is refused: {reason}")]
    KindRefused { name: String, type_code: u8, reason: String },
    /// A library of a kind that cannot be used.
    #[error("{library} brings no kind of device: {reason}")]
    LibraryRefused { library: String, reason: String },
    /// A registration of a second backend for a kind.
    #[error("A backend is registered for kind {kind}: a kind has one")]
    BackendRegistered { kind: DeviceKind },
    /// A device index above [`MAX_DEVICE_INDEX`](crate::MAX_DEVICE_INDEX).
    #[error("Device index {index} of {kind} is out of range: an index is at most 127")]
    IndexTooLarge { kind: DeviceKind, index: usize },
    /// A device whose index is not below the number of devices of its kind.
    #[error(
        "Device {device} does not exist: there {}",
        devices(device.kind(), *count)
    )]
    NotFound { device: Device, count: usize },
    /// A kind without a usable backend, driver or device in this process.
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
