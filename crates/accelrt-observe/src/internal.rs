//! What the other crates of this workspace need beside the public API.
//!
//! These items are exempt from semantic versioning, as those of `accelrt::internal`.

pub use crate::callers::{Act, CallerScope};
pub use crate::profiler::environment::{Captures, watch_environment_with};
pub use crate::profiler::library_calls;
pub use crate::profiler::profile::{OpenRange, begin_range};
pub use crate::profiler::timeline::set_function_names;
pub use crate::sanitizer::finding::{Found, FoundUse};
pub use crate::sanitizer::watch;
pub use crate::sanitizer::watch::{OpenAccess, Sanitizer};
pub use crate::{callers, output_file, task_lines};
