//! What is asked of an allocator.

use crate::base::error::{ConfigError, Error, Result};
use crate::memory::allocator::pool::PoolId;

/// What is asked of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// How many bytes; 0 gets no block.
    pub bytes: usize,
    /// The stream that the memory is for: what it frees it may use again at once.
    pub stream: u64,
    /// The pool that serves it.
    pub pool: PoolId,
    /// What its address is a multiple of: a power of two.
    pub align_bytes: usize,
}

impl Request {
    /// For a stream, from the default pool, aligned to 512 bytes on devices and 64 on the host.
    #[must_use]
    #[inline]
    pub fn new(bytes: usize, stream: u64) -> Self {
        Self { bytes, stream, pool: PoolId::DEFAULT, align_bytes: 1 }
    }

    /// From a private pool.
    #[must_use]
    pub fn from_pool(self, pool: PoolId) -> Self {
        Self { pool, ..self }
    }

    /// True when it names no pool, and no more of an alignment than `most_align_bytes`, which is a
    /// power of two.
    #[inline]
    pub(super) fn is_plain(&self, most_align_bytes: usize) -> bool {
        let PoolId(first, second) = self.pool;
        let below = self.align_bytes.wrapping_sub(1);
        let is_odd = self.align_bytes & below | below & !(most_align_bytes - 1); // zero when not
        first | second | is_odd as u64 == 0
    }

    /// Fails when no address is aligned so.
    pub(super) fn check(&self) -> Result<()> {
        if self.align_bytes.is_power_of_two() {
            return Ok(());
        }
        let (name, value) = ("alignment", self.align_bytes.to_string());
        Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed: "a power of two" }))
    }

    /// Aligned to a power of two as well; a request with any other number fails.
    #[must_use]
    pub fn aligned_to(self, align_bytes: usize) -> Self {
        Self { align_bytes, ..self }
    }
}
