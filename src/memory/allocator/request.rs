//! Requests for memory, the private pools that serve some, and the streams of an allocator.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::base::error::{ConfigError, Error, Result};
use crate::engine::frontier::Progress;
use crate::engine::stream::core::StreamCore;
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

/// The name of a pool; `(0, 0)` is the default pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pool of requests that name none.
    pub const DEFAULT: Self = Self(0, 0);
}

/// The properties of a private pool.
///
/// ```
/// use accelrt::{MemPool, PoolOptions};
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let options = PoolOptions::default().use_on_oom(true);
/// let pool = MemPool::new(&runtime, accelrt::Device::cpu(0), options)?;
/// # drop(pool);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The pool serves requests of the default pool before the allocator reports a shortage.
    pub use_on_oom: bool,
    /// A request gets a whole block: engine `torch` serves such a pool under policy `native` too.
    pub no_split: bool,
}

impl PoolOptions {
    /// Sets [`PoolOptions::use_on_oom`].
    #[must_use]
    pub const fn use_on_oom(self, use_on_oom: bool) -> Self {
        Self { use_on_oom, ..self }
    }

    /// Sets [`PoolOptions::no_split`].
    #[must_use]
    pub const fn no_split(self, no_split: bool) -> Self {
        Self { no_split, ..self }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The number of users that may still request memory. At zero the pool's memory may go back to
    /// the device.
    pub(super) users: usize,
    pub(super) options: PoolOptions,
    /// The pool's segments. A pool without users and segments is forgotten.
    pub(super) segments: usize,
}

/// All pools of an allocator. The default pool always exists. A request may also name a pool that
/// was never made: it has no users, so its memory goes back when the cache is emptied.
#[derive(Debug)]
pub(super) struct Pools(BTreeMap<PoolId, Pool>);

impl Pools {
    pub(super) fn new() -> Self {
        Self(BTreeMap::from([(PoolId::DEFAULT, Pool::default())]))
    }

    /// Adds a user; the first one makes the pool.
    pub(super) fn retain(&mut self, id: PoolId, options: PoolOptions) {
        let pool = self.0.entry(id).or_default();
        pool.users += 1;
        pool.options = options;
    }

    /// Removes all users of all pools.
    pub(super) fn end_all(&mut self) {
        self.0.values_mut().for_each(|pool| pool.users = 0);
    }

    /// Removes a user, if there is one.
    pub(super) fn release(&mut self, id: PoolId) {
        if let Some(pool) = self.0.get_mut(&id) {
            pool.users = pool.users.saturating_sub(1);
        }
        self.forget_if_gone(id);
    }

    pub(super) fn add_segment(&mut self, id: PoolId) {
        self.0.entry(id).or_default().segments += 1;
    }

    /// Removes a segment; true for the pool's last.
    pub(super) fn remove_segment(&mut self, id: PoolId) -> bool {
        let pool = self.0.get_mut(&id).expect("it has one");
        pool.segments -= 1;
        let was_last = pool.segments == 0;
        self.forget_if_gone(id);
        was_last
    }

    fn forget_if_gone(&mut self, id: PoolId) {
        let is_gone = |pool: &Pool| pool.users == 0 && pool.segments == 0;
        if id != PoolId::DEFAULT && self.0.get(&id).is_some_and(is_gone) {
            self.0.remove(&id);
        }
    }

    pub(super) fn keeps_whole(&self, id: PoolId) -> bool {
        self.0.get(&id).is_some_and(|pool| pool.options.no_split)
    }

    /// True for a private pool with users, whose memory serves no other requests.
    pub(super) fn is_reserved(&self, id: PoolId) -> bool {
        id != PoolId::DEFAULT && self.0.get(&id).is_some_and(|pool| pool.users > 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.0.iter().map(|(id, pool)| (*id, pool))
    }
}

#[derive(Debug)]
pub(super) struct KnownStream {
    pub(super) progress: Arc<Progress>,
    /// For waits only: the counter says how far the stream is, even after its end.
    pub(super) core: Weak<StreamCore>,
}

impl KnownStream {
    pub(super) fn of(stream: &Arc<StreamCore>) -> Self {
        Self { progress: Arc::clone(&stream.progress), core: Arc::downgrade(stream) }
    }
}
