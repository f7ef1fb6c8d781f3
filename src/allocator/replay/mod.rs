//! Replaying recorded requests against an allocator.

mod operation;
mod recorded;

pub use operation::{Figures, Operation};
pub use recorded::operations;
