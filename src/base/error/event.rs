//! Errors of events: invalid records, waits and times.

use crate::base::device::DeviceKind;

/// An invalid record of an event, wait for an event, or time between two events.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum EventError {
    /// A record or a wait that joins an event to a stream of another kind.
    #[error("Event device type {event} does not match {role} stream's device type {stream}.")]
    KindMismatch {
        event: DeviceKind,
        /// `recording` for a record, `blocking` for a wait.
        role: &'static str,
        stream: DeviceKind,
    },
    /// A call recorded the event on another device than that of the event's first record.
    #[error("Event device index {event} does not match recording stream's device index {stream}.")]
    DeviceMismatch { event: usize, stream: usize },
    /// A call asked for the time between events of two kinds.
    #[error("Event device type {this} does not match other's device type {other}.")]
    ElapsedKindMismatch { this: DeviceKind, other: DeviceKind },
    /// A call asked for the time of an event without timing.
    #[error("Both events must be created with timing.")]
    WithoutTiming,
    /// A call asked for the time of an event without a record.
    #[error("Both events must be recorded before calculating elapsed time.")]
    NotRecorded,
    /// A call asked for the time of an event that the device has not reached.
    #[error("Both events must be completed before calculating elapsed time.")]
    NotComplete,
}
