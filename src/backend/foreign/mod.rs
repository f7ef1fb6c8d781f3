//! Kinds given as a table of C functions: a driver in another language is a backend.
//!
//! `include/accelrt_backend.h` declares the table; [`table`] is its layout in Rust. The adapter is
//! a driver kind: the thread that enqueues runs the tasks, which call the driver's functions, and
//! resume threads of its own run what callbacks resume. A driver sees streams, marks, memory,
//! copies, fills and kernels, and nothing of the engine.

mod adapter;
mod capabilities;
mod check;
mod instance;
pub mod table;

pub use adapter::ForeignBackend;
pub use check::check_table;
