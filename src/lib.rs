//! accelrt: devices, streams, events and stream-ordered memory with one API.

pub mod backend;
pub mod config;
pub mod device;
pub mod error;
mod queue;
pub mod size;
mod sync;

pub use config::Config;
pub use device::{Device, DeviceKind};
pub use error::{Error, FailureCause, Result, StreamError};
