//! What devices and drivers answer: refusals, a loss, what they cannot do.

use crate::base::device::{Device, DeviceKind};

/// What a device, its driver or the operating system answered.
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
        /// The driver's words.
        message: String,
    },
    /// The device is gone for good.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost {
        /// The device.
        device: Device,
        /// What the driver said.
        reason: String,
    },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported {
        /// The kind asked.
        kind: DeviceKind,
        /// What was asked for.
        capability: &'static str,
    },
}
