//! Settings: values and keys that are not allowed.

/// A setting, in the environment or in the code, that is not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An environment variable or setting with a value that is not allowed.
    #[error("{name}={value:?} is not valid: allowed is {allowed}")]
    InvalidSetting {
        /// The variable or setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        allowed: &'static str,
    },
    /// An allocator's setting with a value that is not allowed.
    #[error("Allocator setting {key:?} with value {value:?} is not valid: allowed is {allowed}")]
    InvalidAllocatorSetting {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The accepted values.
        allowed: String,
    },
    /// A key that allocators do not have.
    #[error("Unrecognized key '{key}' in allocator settings: allowed are {allowed}")]
    UnknownAllocatorSetting {
        /// The key.
        key: String,
        /// The known keys.
        allowed: String,
    },
    /// A key of PyTorch's for a feature that does not exist or is not optional here.
    #[error("Allocator setting '{key}' would have no effect: {reason}. Leave it out")]
    AllocatorSettingWithoutEffect {
        /// The key.
        key: String,
        /// The reason.
        reason: &'static str,
    },
    /// An environment variable whose text is read as settings and is not valid.
    #[error("{name}: {source}")]
    InvalidVariable {
        /// The variable.
        name: &'static str,
        /// The error in its text.
        source: Box<ConfigError>,
    },
}
