//! Errors of devices and drivers: refused calls, lost devices, missing capabilities.

use super::Error;
use crate::base::device::{Device, DeviceKind};

/// An error from a device, its driver or the operating system.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DriverError {
    /// A driver or the operating system refused a call.
    #[error("{call} failed on {kind} with code {code}: {message}")]
    Refused { kind: DeviceKind, call: &'static str, code: i64, message: String },
    /// The driver reported that the device is permanently lost.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost { device: Device, reason: String },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported { kind: DeviceKind, capability: &'static str },
}

impl Error {
    /// Creates [`DriverError::Refused`] from the driver's or the operating system's error code.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(
        kind: DeviceKind,
        call: &'static str,
        code: impl Into<i64>,
        message: impl Into<String>,
    ) -> Self {
        let (code, message) = (code.into(), message.into());
        Self::Driver(DriverError::Refused { kind, call, code, message })
    }
}
