//! Errors of streams: failed tasks, unknown ids, and waits that would never end.

use std::sync::Arc;

use super::StreamFailure;
use crate::base::device::Device;

/// A failure of a stream's work, or an invalid use of a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum StreamError {
    /// One stream failed. A synchronise that waits for the failed task raises this error.
    #[error(transparent)]
    Failed(Arc<StreamFailure>),
    /// Several streams of one device failed.
    #[error("{}", message_of_several(errors, *num_forgotten))]
    SeveralFailed {
        /// One error per stream.
        errors: Arc<[Arc<StreamFailure>]>,
        /// The number of further failures without an entry in `errors`. The runtime retains only
        /// the newest errors of streams that were dropped before a synchronise raised them.
        num_forgotten: u64,
    },
    /// An id that this device never issued, or of a dedicated stream without handles and tasks.
    #[error(
        "Device {device} has no stream with id {stream_id}: ids are given out by this runtime and \
         never reused"
    )]
    NotFound { device: Device, stream_id: u64 },
    /// A task waits for its own stream, or for a stream of an outer task of the same thread.
    #[error(
        "A task cannot wait for its own stream ({device}, stream {stream_id}): the wait would \
         never end"
    )]
    WaitInsideTask { device: Device, stream_id: u64 },
}

fn message_of_several(errors: &[Arc<StreamFailure>], num_forgotten: u64) -> String {
    let (count, first) = (errors.len(), &errors[0]);
    let more = match num_forgotten {
        0 => String::new(),
        count => format!(", and {count} more that were dropped, whose errors are not kept"),
    };
    format!("{count} streams failed{more}; the first: {first}")
}
