//! L3, kinds from outside: libraries with a table of functions, and the variable that names them.
//!
//! A library exports `accelrt_backend_table`, as `include/accelrt_backend.h` says. It is opened
//! once and never closed. The faces load what `ACCELRT_KINDS` names before they make the process's
//! runtime; a Rust program opens a [`KindLibrary`] itself.

mod environment;
mod library;

pub use environment::load_environment;
pub use library::{KindLibrary, register_table};
