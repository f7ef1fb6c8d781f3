//! Policies: how requests are rounded, which free block serves one, and what is split.
//!
//! The engine asks the policy at every request, so new settings apply to the next one.

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
    /// The size with the unmapped block behind it.
    pub(super) room_bytes: usize,
}

pub(super) type Candidates<'a> = &'a mut dyn Iterator<Item = Candidate>;

/// The decisions for an allocator. Sizes of requests are rounded, except in `round`.
pub(super) trait Policy {
    /// Returns the least size of the block for a request.
    fn round(&self, bytes: usize) -> usize;

    fn class(&self, bytes: usize) -> PoolClass;

    /// Returns the size of a new segment for a request.
    fn segment_bytes(&self, bytes: usize) -> usize;

    fn page_bytes(&self, class: PoolClass) -> usize;

    /// True when a request splits a block of this class.
    fn splits(&self, class: PoolClass, block_bytes: usize, bytes: usize) -> bool;

    /// Chooses a block for a request. Candidates come smallest first, then by address.
    fn choose(&self, bytes: usize, candidates: Candidates<'_>) -> Option<BlockId>;
}

#[derive(Debug)]
pub(super) enum AnyPolicy<'a> {
    Torch(TorchDecisions<'a>),
    Pinned(Pinned<'a>),
}

/// Returns the policy of the settings; pinned host memory has its own.
pub(super) fn policy(config: &AllocatorConfig, is_host: bool) -> AnyPolicy<'_> {
    match config.policy {
        _ if is_host => AnyPolicy::Pinned(Pinned(config)),
        // Under policy `native`, pools with `no_split` and restored segments follow PyTorch's.
        PolicyName::Torch | PolicyName::Native => AnyPolicy::Torch(TorchDecisions(config)),
    }
}

/// The sizes that PyTorch's allocator chooses under some settings, for replays of its recordings.
#[derive(Debug)]
pub struct TorchSizes<'a>(TorchDecisions<'a>);

impl<'a> TorchSizes<'a> {
    /// The smallest block, in bytes.
    pub const LEAST_BLOCK_BYTES: usize = torch::LEAST_BLOCK_BYTES;

    /// The sizes under `config`.
    #[must_use]
    pub fn new(config: &'a AllocatorConfig) -> Self {
        Self(TorchDecisions(config))
    }

    /// The size of the block for a request of `bytes`.
    #[must_use]
    pub fn round(&self, bytes: usize) -> usize {
        self.0.round(bytes)
    }

    /// The size of a new segment for a rounded request.
    #[must_use]
    pub fn segment_bytes(&self, bytes: usize) -> usize {
        self.0.segment_bytes(bytes)
    }

    /// The size of the pages of an expandable segment.
    #[must_use]
    pub fn page_bytes(&self, class: PoolClass) -> usize {
        self.0.page_bytes(class)
    }

    /// True when a rounded request splits a block of this class.
    #[must_use]
    pub fn splits(&self, class: PoolClass, block_bytes: usize, bytes: usize) -> bool {
        self.0.splits(class, block_bytes, bytes)
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
