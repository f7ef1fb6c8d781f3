//! L3, observe: subscribers to the streams' actions.
//!
//! * [`task_lines`]: one line per task at verbose level 1

pub(crate) mod task_lines;
