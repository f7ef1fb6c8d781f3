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
    /// A request of more words than follow the offset in the sequence of 2^64 words.
    #[error(
        "Cannot take {words} words of random numbers at offset {offset}: the offset afterwards \
         must be at most {last}", last = u64::MAX - 3
    )]
    SequenceEnd {
        /// The generator's offset, in words of 32 bits.
        offset: u64,
        /// The requested words, rounded up to a multiple of 4.
        words: u128,
    },
    /// A fill of a buffer whose size or address is not a multiple of the number type's size.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment { address: u64, bytes: usize, item_bytes: usize },
}
