//! Errors of other libraries in the process: missing libraries and refused settings.

/// A refusal by another library in the process, or by the standard output.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum IntegrationError {
    /// The search for a library with verbose lines found none.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    LibraryMissing { library: &'static str, searched: String },
    /// A verbose level that a library does not have or refused.
    #[error("{library} does not take the verbose level {level}: {reason}")]
    VerboseLevel {
        library: &'static str,
        level: i32,
        /// The refusing component, or the accepted levels.
        reason: String,
    },
    /// An allocator that oneMKL cannot use or does not use.
    #[error("oneMKL does not get its memory from {allocator}: {reason}")]
    MklAllocator {
        allocator: &'static str,
        /// The missing library or symbol, or the failed probe of oneMKL.
        reason: String,
    },
    /// The system refused a call that captures the standard output: the call and its error.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
}
