//! The crate's error type: one family of errors per component, with the values of the failed call.
//!
//! The runtime detects its own bugs by assertions, which panic.

use std::fmt;

mod config;
mod device;
mod driver;
mod event;
mod failure;
mod generator;
mod integration;
mod memory;
mod out_of_memory;
mod program;
mod runtime;
mod stream;

pub use config::ConfigError;
pub use device::DeviceError;
pub use driver::DriverError;
pub use event::EventError;
pub use failure::{FailureCause, StreamFailure};
pub use generator::GeneratorError;
pub use integration::IntegrationError;
pub use memory::MemoryError;
pub use program::ProgramError;
pub use runtime::RuntimeError;
pub use stream::StreamError;

/// The result of every call that can fail. A bug of the runtime panics instead.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error that a user's task returns. The stream then fails with [`FailureCause::Returned`].
pub type TaskError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// An error of the runtime. Each variant holds the errors of one component.
///
/// ```
/// use accelrt::{Config, Device, DeviceError, Error, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// match runtime.empty(1, Device::cpu(7)) {
///     Err(Error::Device(DeviceError::NotFound { count, .. })) => assert_eq!(count, 1),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
/// As debug text it is its sentence, which a `main` that returns [`Result`] prints.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// An invalid device name, or a missing device.
    Device(#[from] DeviceError),
    /// A call that a device, its driver or the operating system refused, or does not support.
    Driver(#[from] DriverError),
    /// A setting that is not allowed.
    Config(#[from] ConfigError),
    /// A forked or shut down runtime, an object of another runtime, or an interrupted wait.
    Runtime(#[from] RuntimeError),
    /// Failed work of a stream, or an invalid use of a stream.
    Stream(#[from] StreamError),
    /// An invalid record of an event, wait for an event, or time between events.
    Event(#[from] EventError),
    /// Missing memory, or an invalid use of memory.
    Memory(#[from] MemoryError),
    /// An invalid use of a random generator.
    Generator(#[from] GeneratorError),
    /// A program, a kernel or a native function that cannot be built or launched.
    Program(#[from] ProgramError),
    /// A refusal by another library of the process.
    Integration(#[from] IntegrationError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_ends_main_is_a_sentence() {
        let (name, allowed) = ("exit_timeout", "up to 86400000 ms");
        let error = ConfigError::InvalidSetting { name, value: "soon".to_owned(), allowed };
        let error = Error::from(error);
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("exit_timeout=\"soon\" is not valid"), "{error}");
    }
}
