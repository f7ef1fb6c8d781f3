//! What a policy decides: how requests are rounded, which free block serves one, what is split.
//!
//! The mechanism asks at every request, so a change of settings serves the next one. What was
//! handed out before goes back to the segment that it is a piece of.

pub(super) mod pinned;
pub(super) mod torch;

use std::ops::Deref;

use crate::base::config::{AllocatorConfig, PolicyName};
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::snapshot::PoolClass;
use pinned::Pinned;
use torch::TorchDecisions;

/// A free block that is large enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: BlockId,
    pub(super) bytes: usize,
    pub(super) is_expandable: bool,
    /// What it would have with the unmapped addresses behind it.
    pub(super) room_bytes: usize,
}

/// Free blocks that are large enough.
pub(super) type Candidates<'a> = &'a mut dyn Iterator<Item = Candidate>;

/// The decisions of an allocator. Sizes of requests are rounded ones, but in `round`.
pub(super) trait Policy {
    /// The size of the block that a request gets at least.
    fn round(&self, bytes: usize) -> usize;

    /// Which segments serve it.
    fn class(&self, bytes: usize) -> PoolClass;

    /// The size of a segment that is made for it.
    fn segment_bytes(&self, bytes: usize) -> usize;

    /// The size of the pages of an expandable segment.
    fn page_bytes(&self, class: PoolClass) -> usize;

    /// True when the rest of a block of this class goes back after a request was served from it.
    fn splits(&self, class: PoolClass, block_bytes: usize, bytes: usize) -> bool;

    /// The block that serves a request, of those that are large enough: smallest first, then by
    /// address.
    fn choose(&self, bytes: usize, candidates: Candidates<'_>) -> Option<BlockId>;
}

/// What decides for an allocator.
#[derive(Debug)]
pub(super) enum AnyPolicy<'a> {
    Torch(TorchDecisions<'a>),
    Pinned(Pinned<'a>),
}

/// The policy that settings name; host memory has its own.
pub(super) fn policy(config: &AllocatorConfig, is_host: bool) -> AnyPolicy<'_> {
    match config.policy {
        _ if is_host => AnyPolicy::Pinned(Pinned(config)),
        // What the native policy does not serve is what was restored, or was handed out before.
        PolicyName::Torch | PolicyName::Native => AnyPolicy::Torch(TorchDecisions(config)),
    }
}

impl<'a> Deref for AnyPolicy<'a> {
    type Target = dyn Policy + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Torch(torch) => torch,
            Self::Pinned(pinned) => pinned,
        }
    }
}
