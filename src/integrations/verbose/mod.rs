//! L3, verbose: what libraries of this process print about each of their calls, for a while.
//!
//! * [`actions`]: the lines of this runtime itself
//! * [`library`]: oneMKL and oneDNN, found in the process or loaded, and their levels
//! * [`levels`]: the scopes that are open, since neither library can be asked for its level
//! * [`environment`]: the levels that the environment's variables ask for
//! * [`capture`]: descriptor 1 as a pipe, for a while; [`drain`] reads it, on a thread of its own,
//!   [`splitter`] tells whose line is whose, [`descriptor`] calls the system

mod actions;
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
