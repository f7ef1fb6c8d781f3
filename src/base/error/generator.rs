//! Errors of random generators: invalid devices, offsets and buffers.

use crate::base::device::DeviceKind;

/// A call that a random generator refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum GeneratorError {
    /// A fill of a buffer by a generator of another kind of device.
    #[error("Expected a '{expected}' device type for generator but found '{generator}'")]
    KindMismatch { expected: DeviceKind, generator: DeviceKind },
    /// An offset that is not a multiple of 4, the number of words in a block.
    #[error("The offset of a generator must be a multiple of 4: {offset} is not")]
    InvalidOffset {
        /// The offset that the caller passed, directly or inside a state.
        offset: u64,
    },
    /// A fill of a buffer whose size or address is not a multiple of the number type's size.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment { address: u64, bytes: usize, item_bytes: usize },
}
