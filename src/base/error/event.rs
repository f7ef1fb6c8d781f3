//! Events: records and times that are not possible.

use crate::base::device::DeviceKind;

/// A record or an elapsed time that events cannot have.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum EventError {
    /// An event and a stream of different kinds.
    #[error("Event device type {event} does not match {role} stream's device type {stream}.")]
    KindMismatch {
        event: DeviceKind,
        /// `recording` or `blocking`.
        role: &'static str,
        stream: DeviceKind,
    },
    /// An event that was recorded on one device is recorded on another.
    #[error("Event device index {event} does not match recording stream's device index {stream}.")]
    DeviceMismatch { event: usize, stream: usize },
    /// Elapsed time between events of two kinds.
    #[error("Event device type {this} does not match other's device type {other}.")]
    ElapsedKindMismatch { this: DeviceKind, other: DeviceKind },
    /// Elapsed time of an event without timing.
    #[error("Both events must be created with timing.")]
    WithoutTiming,
    /// Elapsed time of an event that was never recorded.
    #[error("Both events must be recorded before calculating elapsed time.")]
    NotRecorded,
    /// Elapsed time of an event that the device has not reached.
    #[error("Both events must be completed before calculating elapsed time.")]
    NotComplete,
}
