//! A stranger's kind of device: `npu`, a pool of threads with memory that the host cannot read.
//!
//! It is here to be read by makers of devices, and to prove that the contract is enough for one who
//! knows nothing else of accelrt: [`register`] is all that a program calls. The pool stands for a
//! driver: [`queue`] executes commands of streams later, on threads of its own, and [`memory`]
//! gives out addresses that no processor can dereference. [`Npu`] is what a maker writes: each
//! method of the contract in terms of the driver.

mod backend;
mod memory;
mod queue;

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{DeviceKind, Result};

pub use backend::Npu;

/// The type code: outside kinds have 64 to 127.
pub const TYPE_CODE: u8 = 64;

/// Devices of this kind.
pub const DEVICE_COUNT: usize = 2;

/// The capacity of each device.
pub const CAPACITY_BYTES: usize = 256 << 20;

/// Gives the kind `npu` to every runtime that is made from now on, that of the process too.
pub fn register() -> Result<DeviceKind> {
    accelrt::backend::register("npu", TYPE_CODE, |kind, _config| Ok(Npu::new(kind)))
}

/// A backend of the kind, for one runtime or for the conformance kit.
pub fn backend() -> Arc<dyn Backend> {
    let kind = DeviceKind::register("npu", TYPE_CODE).expect("no other kind has the name or code");
    Npu::new(kind)
}
