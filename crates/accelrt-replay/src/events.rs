//! Events: the requests and frees of a recorded program, visited in batches.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use accelrt::Error;

/// An event of a recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request.
    Allocate {
        /// The number that its free names: any that no block in use has.
        id: u64,
        /// The requested size.
        bytes: usize,
        /// The stream of the request.
        stream: u64,
    },
    /// A completed free: no stream uses the block any more.
    Free {
        /// The number of the request.
        id: u64,
    },
}

/// Takes a batch of events; breaks when it needs no more.
pub type Visitor<'a> = dyn FnMut(&[Operation]) -> Result<ControlFlow<()>, TraceError> + 'a;

/// The events in a batch: few enough for the cache of a core, enough that a batch's own cost does
/// not show.
pub(crate) const BATCH: usize = 1024;

/// Recorded events, which may be visited any number of times.
pub trait Events {
    /// Hands all events to `visitor`, in their order and in batches, until it breaks or fails.
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError>;
}

impl Events for [Operation] {
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError> {
        for batch in self.chunks(BATCH) {
            if visitor(batch)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Why a pass over a trace ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line of a table is none, or contradicts the lines before it.
    #[error("cannot read {}: line {line}{text}", path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with the line, behind its number.
        text: String,
    },
    /// A file cannot be opened or read.
    #[error("cannot read {}: {}", path.display(), reason(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The allocator or its device failed, or events in memory contradict themselves.
    #[error(transparent)]
    Replay(#[from] Error),
    /// The visitor asked for the end, for a reason of its own.
    #[error("The pass over the trace was interrupted")]
    Interrupted,
}

/// The system's words without the number that the standard library appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
