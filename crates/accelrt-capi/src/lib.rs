//! The C API of accelrt: the functions of `include/accelrt.h`.
//!
//! They take handles and integers; docs/c.md has the rules.
//!
//! A function checks its arguments, calls the runtime inside of a guard that catches panics, and
//! returns a `Status`. Its documentation is that of the header, which cbindgen
//! makes of these files (`make header`).
//!
//! * `status`: what functions return, the thread's last error, the guard
//! * `handle`: handles with generations, and the slots that they name
//! * `arguments`: texts, arrays, places for results, structs that begin with their size, data that
//!   the caller frees
//! * `runtime`, `device`: settings and the process's runtime; devices by kind and index
//! * `stream`, `event`, `launch`: streams and events; functions as tasks, also deferred ones and
//!   those with a name and addresses of their own
//! * `buffer`, `memory`: memory by handle, copies and fills; memory by address, allocators
//! * `pool`: private pools, tags of memory, who is told of shortages
//! * `history`, `log`: what allocators have and did, what ran
//! * `compute`: random numbers, kernels
//! * [`table`]: all functions as one table

#![expect(unreachable_pub, reason = "what cbindgen reads; C reaches it by name")]

mod arguments;
mod buffer;
mod compute;
mod device;
mod event;
mod handle;
mod history;
mod launch;
mod log;
mod memory;
mod pool;
mod runtime;
mod status;
mod stream;
pub mod table;

#[cfg(test)]
#[path = "../../../tests/common/edges.rs"]
mod edges;
