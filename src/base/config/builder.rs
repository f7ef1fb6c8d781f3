//! The builder of [`Config`]: one method per setting, and a check of all settings at the end.

use std::time::Duration;

use super::Config;
use crate::base::device::DeviceKind;
use crate::base::error::Result;

/// Collects settings for a [`Config`]. [`Config::builder`] and [`Config::into_builder`] create a
/// builder; [`ConfigBuilder::build`] checks the settings and returns the [`Config`].
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
