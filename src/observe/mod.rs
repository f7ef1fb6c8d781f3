//! L3, observe: what is told of the tasks of streams, and of memory.
//!
//! * [`callers`]: the stacks of threads that call functions of C
//! * [`task_lines`]: one line per task at verbose level 1
//! * [`memory_history`]: what allocators did, for snapshots
//! * [`memory_records`]: records of the log as what allocators did
//! * [`output_file`]: whether a file that is written at the end can be
//! * [`profiler`]: what ran where and when, as tables and as a trace
//! * [`sanitizer`]: uses of the same bytes that nothing orders

pub mod callers;
pub mod memory_history;
mod memory_records;
pub mod output_file;
pub(crate) mod profiler;
pub(crate) mod sanitizer;
pub(crate) mod task_lines;
