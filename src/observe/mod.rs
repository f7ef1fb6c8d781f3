//! L3, observe: subscribers of what streams do.
//!
//! * [`task_lines`]: one line per task, while the runtime's verbose level is 1

pub(crate) mod task_lines;
