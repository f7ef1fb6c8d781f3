//! The builder of [`Config`]: one method per setting, and a check of all settings at the end.

use std::time::Duration;

use super::Config;
use crate::base::device::DeviceKind;
use crate::base::error::Result;

/// Collects settings for a [`Config`]. [`Config::builder`] and [`Config::into_builder`] create a
/// builder; [`ConfigBuilder::build`] checks the settings and returns the [`Config`].
///
/// ```
/// use std::time::Duration;
/// use accelrt::{Config, DeviceKind, Runtime};
/// let config = Config::builder()
///     .accelerator(DeviceKind::CPU)
///     .cpu_devices(2)
///     .cpu_threads(3) // of each device
///     .cpu_memory_bytes(256 << 20)
///     .xpu_memory_bytes(1 << 30)
///     .allocator_settings("policy:torch,max_split_size_mb:64")
///     .stream_task_limit(10_000)
///     .exit_timeout(Duration::from_millis(500))
///     .host_threads(4)
///     .tracebacks(true)
///     .build()?;
/// assert_eq!(Runtime::new(config)?.device_count(DeviceKind::CPU)?, 2);
/// assert!(Config::builder().cpu_devices(1000).build().is_err());
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// Files that it names are opened when they are needed:
///
/// ```no_run
/// # use accelrt::Config;
/// let config = Config::builder()
///     .opencl_library("/opt/vendor/libOpenCL.so.1".to_owned())
///     .mkl_library("libmkl_rt.so.2".to_owned())
///     .dnnl_library("libdnnl.so.3".to_owned())
///     .profile("trace.json".to_owned())
///     .memory_history("memory.pickle".to_owned())
///     .sanitizer("report".to_owned())
///     .build()?;
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct ConfigBuilder {
    pub(super) config: Config,
    /// The error of the last allocator text, which `build` returns.
    pub(super) allocator: Result<()>,
}

/// Defines one method per line. The method sets the field of its name to the expression.
macro_rules! setters {
    ($($name:ident($given:ident: $type:ty) = $value:expr;)*) => {
        $(
            #[doc = concat!("Sets [`Config::", stringify!($name), "`].")]
            pub fn $name(mut self, $given: $type) -> Self {
                self.config.$name = $value;
                self
            }
        )*
    };
}

impl ConfigBuilder {
    setters! {
        accelerator(kind: impl Into<Option<DeviceKind>>) = kind.into();
        cpu_devices(count: usize) = count;
        cpu_threads(count: usize) = Some(count);
        cpu_memory_bytes(bytes: usize) = Some(bytes);
        xpu_memory_bytes(bytes: usize) = Some(bytes);
        opencl_library(file: impl Into<Option<String>>) = file.into();
        mkl_library(file: impl Into<Option<String>>) = file.into();
        dnnl_library(file: impl Into<Option<String>>) = file.into();
        exit_timeout(timeout: Duration) = timeout;
        stream_task_limit(tasks: u64) = tasks;
        host_threads(count: usize) = Some(count);
        tracebacks(are_on: bool) = are_on;
        profile(file: impl Into<Option<String>>) = file.into();
        memory_history(file: impl Into<Option<String>>) = file.into();
        sanitizer(mode: impl Into<Option<String>>) = mode.into();
    }

    /// Sets [`Config::allocator`] from a text such as `"policy:torch"`. [`ConfigBuilder::build`]
    /// fails if the text is malformed.
    pub fn allocator_settings(mut self, text: &str) -> Self {
        self.allocator = text.parse().map(|settings| self.config.allocator = settings);
        self
    }

    /// Checks and returns the settings. Fails when a setting is out of range or malformed. The
    /// error names the setting and the allowed values.
    pub fn build(self) -> Result<Config> {
        self.allocator?;
        self.config.validate()?;
        Ok(self.config)
    }
}
