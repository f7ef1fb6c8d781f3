//! Requests for memory.

use crate::base::error::{ConfigError, Error, Result};
use crate::memory::allocator::pool::PoolId;

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The size; 0 gets no block.
    pub bytes: usize,
    /// The stream that uses the memory: a later request of this stream may get it at once after the
    /// free.
    pub stream: u64,
    /// The pool that serves the request.
    pub pool: PoolId,
    /// The alignment of the address: a power of two.
    pub align_bytes: usize,
}

impl Request {
    /// A request for a stream from the default pool, aligned to 512 bytes on devices and 64 on the
    /// host.
    #[must_use]
    #[inline]
    pub fn new(bytes: usize, stream: u64) -> Self {
        Self { bytes, stream, pool: PoolId::DEFAULT, align_bytes: 1 }
    }

    /// The same request for a private pool.
    #[must_use]
    pub fn from_pool(self, pool: PoolId) -> Self {
        Self { pool, ..self }
    }

    /// True for the default pool and an alignment of at most `most_align_bytes`, a power of two.
    #[inline]
    pub(super) fn is_plain(&self, most_align_bytes: usize) -> bool {
        let PoolId(first, second) = self.pool;
        let below = self.align_bytes.wrapping_sub(1);
        let is_odd = self.align_bytes & below | below & !(most_align_bytes - 1); // zero when not
        first | second | is_odd as u64 == 0
    }

    /// Fails for an alignment that is no power of two.
    pub(super) fn check(&self) -> Result<()> {
        if self.align_bytes.is_power_of_two() {
            return Ok(());
        }
        let (name, value) = ("alignment", self.align_bytes.to_string());
        Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed: "a power of two" }))
    }

    /// The same request with an alignment. A number that is no power of two makes the request fail.
    #[must_use]
    pub fn aligned_to(self, align_bytes: usize) -> Self {
        Self { align_bytes, ..self }
    }
}
