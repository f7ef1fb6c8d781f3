//! Lines that libraries of this process print per call, controlled by scopes.
//!
//! The runtime's own lines are made by `accelrt-observe`.
//!
//! * [`library`]: oneMKL and oneDNN, found in the process or loaded, and their levels
//! * [`levels`]: the open scopes, recorded because oneMKL and oneDNN cannot report their levels
//! * [`environment`]: the levels that environment variables set
//! * [`capture`]: replaces descriptor 1 by a pipe; [`drain`]: reads the pipe on a separate thread
//! * [`splitter`]: finds each library's lines; [`descriptor`]: wraps the system calls
//! * [`log_reader`]: reads logs that were written earlier
//! * [`records`]: what a line says of a call; [`told_calls`]: the calls as profiles have them

mod capture;
mod descriptor;
mod drain;
mod environment;
mod levels;
pub(crate) mod library;
pub(crate) mod log_reader;
mod profile;
pub(crate) mod records;
mod splitter;
mod told_calls;

pub use capture::VerboseCapture;
pub use levels::VerboseScope;
pub use library::VerboseLibrary;
pub use profile::watch_environment;
