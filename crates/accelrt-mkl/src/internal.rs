//! What the other crates of this workspace need beside the public API.
//!
//! These items are exempt from semantic versioning, as those of `accelrt::internal`.

pub use crate::host_heap;
pub use crate::host_heap::Functions;
pub use crate::mkl_allocator::MklAllocator;
pub use crate::verbose::library::{cudnn_version, openmp};
pub use crate::verbose::log_reader::VerboseLogReader;
pub use crate::verbose::records::{VerboseLine, VerboseParser, VerboseRecord};
