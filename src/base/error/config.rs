//! Errors of settings: keys and values that are not allowed.

/// A setting, in the environment or in the code, that is not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum ConfigError {
    /// An environment variable or setting whose value is malformed or out of range.
    #[error("{name}={value:?} is not valid: allowed is {allowed}")]
    InvalidSetting { name: &'static str, value: String, allowed: &'static str },
    /// An allocator's setting that is malformed, out of range or repeated.
    #[error("Allocator setting {key:?} with value {value:?} is not valid: allowed is {allowed}")]
    InvalidAllocatorSetting { key: String, value: String, allowed: String },
    /// A key in an allocator's settings that neither PyTorch nor this runtime has.
    #[error("Unrecognized key '{key}' in allocator settings: allowed are {allowed}")]
    UnknownAllocatorSetting { key: String, allowed: String },
    /// A key that would change nothing: the runtime or the selected policy never reads it.
    #[error("Allocator setting '{key}' would have no effect: {reason}. Leave it out")]
    AllocatorSettingWithoutEffect { key: String, reason: &'static str },
    /// An environment variable whose text contains an invalid setting: `ACCELRT_ALLOC_CONF`.
    #[error("{name}: {source}")]
    InvalidVariable { name: &'static str, source: Box<ConfigError> },
}
