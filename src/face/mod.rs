//! The Rust face beside the core: what programs like to have, and the core does not need.
//!
//! * [`typed`]: plain data, buffers of it, and views of these buffers
//! * [`scope`]: tasks over views, tasks that borrow from the caller, and the retirement of tasks
//!   that have not begun

mod scope;
mod typed;

pub use scope::Scope;
pub use typed::{Plain, Reads, TypedBuffer, Uses, Writes};
