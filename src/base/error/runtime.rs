//! Errors of the runtime as a whole: a fork, a shutdown, an interrupt, handles of two runtimes.

use std::time::Duration;

/// A reason for which the runtime refuses a call on any device.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum RuntimeError {
    /// One call received handles of two runtimes. Runtimes share no handles.
    #[error("{what} of runtime {given} was given to runtime {own}: runtimes do not share handles")]
    OtherRuntime {
        what: &'static str,
        /// The [id](crate::Runtime::id) of the handle's runtime.
        given: u64,
        /// The id of the runtime that received the handle.
        own: u64,
    },
    /// The runtime is used in a child that was forked from an initialised process.
    #[error(
        "The runtime was initialised before this process was forked: it works in the parent, and \
         in a program that the child executes"
    )]
    BadFork,
    /// A call came after the shutdown, or the shutdown cancelled the work that a call waited for.
    #[error("The runtime is shut down: it takes no new work")]
    ShutDown,
    /// A wait ended because its interrupt check returned true. The work continues.
    #[error("The wait was interrupted; the work goes on")]
    Interrupted,
    /// A wait with a limit ended before the work was done. The work continues.
    #[error("The wait ended after its limit of {timeout:?}; the work is not done and goes on")]
    TimedOut { timeout: Duration },
}
