//! L3, observe: subscribers that streams report their executed tasks to.
//!
//! * [`task_lines`]: one line per task at verbose level 1

pub(crate) mod task_lines;
