//! Builds a [`Config`] from settings by name.

use std::time::Duration;

use super::Config;
use crate::base::device::DeviceKind;
use crate::base::error::Result;

/// Builds a [`Config`]: created by [`Config::builder`] or [`Config::into_builder`], finished by
/// [`ConfigBuilder::build`].
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct ConfigBuilder {
    pub(super) config: Config,
    /// The error in the allocators' settings, if any.
    pub(super) allocator: Result<()>,
}

/// A method for each setting: its name, its parameter, and the field's value.
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
    }

    /// Sets [`Config::allocator`] by its text. [`ConfigBuilder::build`] fails when the text is
    /// malformed.
    pub fn allocator_settings(mut self, text: &str) -> Self {
        self.allocator = text.parse().map(|settings| self.config.allocator = settings);
        self
    }

    /// Builds the settings. Fails when a setting is out of range. The error names the setting, its
    /// value and the allowed values.
    pub fn build(self) -> Result<Config> {
        self.allocator?;
        self.config.validate()?;
        Ok(self.config)
    }
}
