//! L3, verbose: lines that libraries of this process print about each of their calls, in scopes.
//!
//! The runtime's own lines stand in `observe`.
//!
//! * [`library`]: oneMKL and oneDNN, found in the process or loaded, and their levels
//! * [`levels`]: the open scopes, because neither library can report its level
//! * [`environment`]: the levels in the environment's variables
//! * [`capture`]: replaces descriptor 1 by a pipe; [`drain`] reads that on a thread of its own,
//!   [`splitter`] finds each library's lines, [`descriptor`] calls the system

mod capture;
mod descriptor;
mod drain;
mod environment;
mod levels;
pub(crate) mod library;
mod splitter;

pub use capture::VerboseCapture;

pub use levels::VerboseScope;
pub use library::VerboseLibrary;
