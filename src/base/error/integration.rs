//! Other libraries: what they do not take.

/// What another library in the process, or the standard output, does not take.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntegrationError {
    /// A library that prints verbose lines and was not found.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    LibraryMissing {
        /// The library's name.
        library: &'static str,
        /// Where it was searched for.
        searched: String,
    },
    /// A verbose level that does not exist or that a library did not take.
    #[error("{library} does not take the verbose level {level}: {reason}")]
    VerboseLevel {
        /// Its name.
        library: &'static str,
        /// The level asked for.
        level: i32,
        /// The refusing component, or what would be accepted.
        reason: String,
    },
    /// An allocator that cannot be oneMKL's, or that it does not use.
    #[error("oneMKL does not get its memory from {allocator}: {reason}")]
    MklAllocator {
        /// The allocator's name.
        allocator: &'static str,
        /// What is missing, or what oneMKL did.
        reason: String,
    },
    /// The system did not let the standard output be captured: which call, and why.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
}
