//! Errors of streams: failed tasks, unknown ids, and waits that would never end.

use std::collections::BTreeSet;
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
    /// Several failures of the streams of one device, or of one stream.
    #[error("{}", message_of_several(errors, *num_forgotten))]
    SeveralFailed {
        /// One error per failure.
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
    // A stream of a pool fails several times when its handles are dropped in between.
    let streams: BTreeSet<_> =
        errors.iter().map(|error| (error.device(), error.stream_id())).collect();
    let failures = format!("{count} failure{}", if count == 1 { "" } else { "s" });
    let what = match (streams.len(), num_forgotten) {
        (num_streams, 0) if num_streams == count => format!("{count} streams failed"),
        (1, _) => format!("{failures} of one stream"),
        (num_streams, _) => format!("{failures} of {num_streams} streams"),
    };
    let more = match num_forgotten {
        0 => String::new(),
        count => format!(", and {count} more that were dropped, whose errors are not kept"),
    };
    format!("{what}{more}; the first: {first}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::FailureCause;

    #[test]
    fn several_failures_are_counted_by_stream() {
        let text = |ids: &[u64], num_forgotten| {
            let cause = || FailureCause::Panicked("at once".to_owned());
            let failure = |id: &u64| StreamFailure::new(Device::cpu(0), *id, None, cause());
            let errors: Arc<[_]> = ids.iter().map(failure).collect();
            let text = StreamError::SeveralFailed { errors, num_forgotten }.to_string();
            text.split_once("; the first: Stream ").expect("it names the first").0.to_owned()
        };
        assert_eq!(text(&[1, 2, 3], 0), "3 streams failed");
        assert_eq!(text(&[7; 17], 0), "17 failures of one stream");
        assert_eq!(text(&[7, 8, 7], 0), "3 failures of 2 streams");
        let more = |num| format!("and {num} more that were dropped, whose errors are not kept");
        assert_eq!(text(&[7], 2), format!("1 failure of one stream, {}", more(2)));
        assert_eq!(text(&[7, 8], 1), format!("2 failures of 2 streams, {}", more(1)));
    }
}
