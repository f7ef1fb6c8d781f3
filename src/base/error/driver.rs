//! Answers of devices and drivers: refusals, a loss, missing capabilities.

use crate::base::device::{Device, DeviceKind};

/// An error from a device, its driver or the operating system.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A driver or the operating system refused a call.
    #[error("{call} failed on {kind} with code {code}: {message}")]
    Refused {
        /// The kind of device.
        kind: DeviceKind,
        /// The call that was refused.
        call: &'static str,
        /// The driver's number.
        code: i64,
        /// The driver's message.
        message: String,
    },
    /// The device is permanently lost.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost {
        /// The device.
        device: Device,
        /// The driver's reason.
        reason: String,
    },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported {
        /// The kind of device.
        kind: DeviceKind,
        /// The missing capability.
        capability: &'static str,
    },
}
