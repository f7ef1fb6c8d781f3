//! Private pools: segments that serve only the requests made for them.

/// The name of a pool: `(0, 0)` is where requests go that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// Where requests go that name no pool.
    pub const DEFAULT: Self = Self(0, 0);
}
