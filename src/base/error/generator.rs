//! Random numbers: invalid generators, offsets and buffers.

use crate::base::device::DeviceKind;

/// A call that a random generator refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum GeneratorError {
    /// A generator of one kind that is to fill a buffer of another.
    #[error("Expected a '{expected}' device type for generator but found '{generator}'")]
    KindMismatch { expected: DeviceKind, generator: DeviceKind },
    /// An offset into a generator's sequence that is not the start of a block of words.
    #[error("The offset of a generator must be a multiple of 4: {offset} is not")]
    InvalidOffset {
        /// The offset that was given, or found in a state.
        offset: u64,
    },
    /// A buffer that does not hold whole numbers of a type at their addresses.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment { address: u64, bytes: usize, item_bytes: usize },
}
