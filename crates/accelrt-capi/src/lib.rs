//! The C API of accelrt: the functions of `include/accelrt.h`.
//!
//! They take handles and integers; docs/c.md has the rules.
//!
//! A function checks its arguments, calls the runtime inside of a guard that catches panics, and
//! returns a `Status`. Its documentation is that of the header, which cbindgen
//! makes of these files (`make header`).
//!
//! * `status`, `last_error`: what functions return, the thread's last error, the guard
//! * `handle`: handles with generations, and the slots that they name
//! * `arguments`: texts, arrays, places for results, structs that begin with their size
//! * `runtime`, `device`: settings and the process's runtime; devices by kind and index
//! * `stream`, `event`: streams and events; `launch`, `deferred`,
//!   `description`: functions as tasks, those with a name and addresses of their own
//! * `buffer`, `transfer`, `memory`: memory by handle, copies and fills, memory by address
//! * `pool`, `observer`: private pools, tags of memory, who is told of shortages
//! * `allocator`, `snapshot`, `history`, `log`: what allocators have and did, what ran
//! * `generator`, `program`: random numbers, kernels
//! * [`table`]: all functions as one table

#![expect(unreachable_pub, reason = "what cbindgen reads; C reaches it by name")]

mod allocator;
mod arguments;
mod buffer;
mod deferred;
mod description;
mod device;
mod event;
mod generator;
mod handle;
mod history;
mod last_error;
mod launch;
mod log;
mod memory;
mod observer;
mod pool;
mod program;
mod runtime;
mod snapshot;
mod status;
mod stream;
pub mod table;
mod transfer;

#[cfg(test)]
#[path = "../../../tests/common/edges.rs"]
mod edges;
