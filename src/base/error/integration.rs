//! Other libraries: missing ones, and refused settings.

/// A refusal by another library in the process, or by the standard output.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum IntegrationError {
    /// A library that prints verbose lines and was not found.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    LibraryMissing { library: &'static str, searched: String },
    /// A verbose level that does not exist or that a library refused.
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
        /// The missing part, or oneMKL's behaviour.
        reason: String,
    },
    /// The system did not let the standard output be captured: which call, and why.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
}
