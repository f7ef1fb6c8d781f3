//! Why a pass over a trace ended early.

use std::io;
use std::path::PathBuf;

use crate::base::error::Error;

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
