//! L3, observe: what is told of the tasks of streams.
//!
//! * [`task_lines`]: one line per task at verbose level 1
//! * [`profiler`]: what ran where and when, as tables and as a trace

pub(crate) mod profiler;
pub(crate) mod task_lines;
