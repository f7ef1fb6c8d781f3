//! OpenCL devices for accelrt: the kind `xpu`, such as Intel's GPUs.
//!
//! The devices need unified shared memory. Call [`register`] before the first use of a runtime:
//!
//! ```
//! use accelrt::{DeviceKind, Runtime};
//!
//! accelrt_opencl::register()?;
//! let runtime = Runtime::global()?;
//! match runtime.device_count(DeviceKind::XPU) {
//!     Ok(count) => println!("{count} OpenCL devices"),
//!     Err(reason) => println!("{reason}"),
//! }
//! # Ok::<(), accelrt::Error>(())
//! ```
//!
//! * `backend`: [`XpuBackend`], the contract's methods
//! * `probe`: finds the devices; `device`: one device; `session`: the context of all devices
//! * `stream`, `event`, `memory`, `program`: the contract's objects; `handle`: their handles
//! * `driver`, `compiler`: typed wrappers of OpenCL's functions
//! * `sys`: OpenCL's types, constants and function tables
//!
//! The first query about devices opens the ICD loader, which loads the vendors' libraries. The
//! first use of a device creates the context; most drivers start their threads only then.

mod backend;
mod compiler;
mod device;
mod driver;
mod event;
mod handle;
mod memory;
mod probe;
mod program;
mod session;
mod stream;
mod sys;
use std::sync::OnceLock;

use accelrt::backend::registry::register_backend;
use accelrt::{DeviceKind, Result};

pub use backend::XpuBackend;

/// Gives every runtime that is created from now on the devices of the kind `xpu`.
///
/// Does not block, opens no library and starts no thread. Later calls have no effect. Fails when
/// the kind has another backend.
pub fn register() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    let register = || register_backend(DeviceKind::XPU, |config| Ok(XpuBackend::new(config)));
    REGISTERED.get_or_init(register).clone()
}
