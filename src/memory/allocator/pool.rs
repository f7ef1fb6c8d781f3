//! Private pools: segments that serve only the requests made for them.

use std::collections::BTreeMap;

/// The name of a pool: `(0, 0)` is where requests go that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// Where requests go that name no pool.
    pub const DEFAULT: Self = Self(0, 0);
}

/// What is special about a private pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Requests that name no pool take from it before memory is said to be short.
    pub use_on_oom: bool,
    /// Its blocks are not split. Policy `native`, which splits all, leaves them to PyTorch's.
    pub no_split: bool,
}

/// One pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// How many may still make requests for it. At zero its memory may go back to the device.
    pub(super) users: usize,
    pub(super) options: PoolOptions,
    /// Segments that are its own; a pool without users and segments is forgotten.
    pub(super) segments: usize,
}

/// All pools of an allocator; the default one is always there. A request may name any other: one
/// that is not there is a pool without users, whose memory goes back when the cache is emptied.
#[derive(Debug)]
pub(super) struct Pools(BTreeMap<PoolId, Pool>);

impl Pools {
    pub(super) fn new() -> Self {
        Self(BTreeMap::from([(PoolId::DEFAULT, Pool::default())]))
    }

    /// Counts one more user, of a pool that may be new.
    pub(super) fn retain(&mut self, id: PoolId, options: PoolOptions) {
        let pool = self.0.entry(id).or_default();
        pool.users += 1;
        pool.options = options;
    }

    /// Counts no user any more: no request names them any more.
    pub(super) fn end_all(&mut self) {
        self.0.values_mut().for_each(|pool| pool.users = 0);
    }

    /// Counts one user less, where there is one.
    pub(super) fn release(&mut self, id: PoolId) {
        if let Some(pool) = self.0.get_mut(&id) {
            pool.users = pool.users.saturating_sub(1);
        }
        self.forget_if_gone(id);
    }

    /// Counts one segment more.
    pub(super) fn add_segment(&mut self, id: PoolId) {
        self.0.entry(id).or_default().segments += 1;
    }

    /// Counts one less; true when it was the last.
    pub(super) fn remove_segment(&mut self, id: PoolId) -> bool {
        let pool = self.0.get_mut(&id).expect("it has one");
        pool.segments -= 1;
        let was_last = pool.segments == 0;
        self.forget_if_gone(id);
        was_last
    }

    /// Forgets a private pool without users and segments.
    fn forget_if_gone(&mut self, id: PoolId) {
        let is_gone = |pool: &Pool| pool.users == 0 && pool.segments == 0;
        if id != PoolId::DEFAULT && self.0.get(&id).is_some_and(is_gone) {
            self.0.remove(&id);
        }
    }

    /// True when its blocks are not split.
    pub(super) fn keeps_whole(&self, id: PoolId) -> bool {
        self.0.get(&id).is_some_and(|pool| pool.options.no_split)
    }

    /// True for a private pool that has users: its memory serves no other requests.
    pub(super) fn is_reserved(&self, id: PoolId) -> bool {
        id != PoolId::DEFAULT && self.0.get(&id).is_some_and(|pool| pool.users > 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.0.iter().map(|(id, pool)| (*id, pool))
    }
}
