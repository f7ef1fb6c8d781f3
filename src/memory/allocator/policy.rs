//! Policies: how requests are rounded, which free block serves one, and what is split.
//!
//! The engine asks the policy at every request, so new settings apply to the next one.

use std::ops::Deref;

use crate::base::config::{AllocatorConfig, PolicyName, ROUNDUP_INTERVALS};
use crate::base::size::MIB;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::torch_blocks::BlockId;

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
    pub const LEAST_BLOCK_BYTES: usize = LEAST_BLOCK_BYTES;

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

/// The least size of a block, and the unit of all sizes.
pub(super) const LEAST_BLOCK_BYTES: usize = 512;
/// The largest request that small segments serve.
pub(super) const MOST_SMALL_BYTES: usize = MIB;
/// The size of a small segment, and of the pages of a small expandable one.
const SMALL_SEGMENT_BYTES: usize = 2 * MIB;
/// The least request that gets a segment of its own size.
const LEAST_OWN_SEGMENT_BYTES: usize = 10 * MIB;
/// Segments of a request's own size are a multiple of this.
const OWN_SEGMENT_GRANULE_BYTES: usize = 2 * MIB;
/// The largest rest of a block of a large segment that is not split off.
const MOST_UNSPLIT_REST_BYTES: usize = MIB;

#[derive(Debug)]
pub(super) struct TorchDecisions<'a>(pub(super) &'a AllocatorConfig);

impl TorchDecisions<'_> {
    fn most_split_bytes(&self) -> usize {
        self.0.max_split_bytes.unwrap_or(usize::MAX)
    }

    /// Returns the number of steps between two powers of two for a size.
    fn divisions(&self, bytes: usize) -> usize {
        let interval = bytes.ilog2().saturating_sub(MIB.ilog2()) as usize;
        self.0.roundup_power2_divisions[interval.min(ROUNDUP_INTERVALS - 1)]
    }
}

/// Rounds `bytes` up to the next of `divisions` steps between two powers of two.
fn round_to_division(bytes: usize, divisions: usize) -> usize {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor << 1,
        step => bytes.next_multiple_of(step),
    }
}

impl Policy for TorchDecisions<'_> {
    fn round(&self, bytes: usize) -> usize {
        if bytes < LEAST_BLOCK_BYTES {
            return LEAST_BLOCK_BYTES;
        }
        let divisions = self.divisions(bytes);
        if divisions > 1 && bytes > LEAST_BLOCK_BYTES.saturating_mul(divisions) {
            round_to_division(bytes, divisions)
        } else {
            bytes.next_multiple_of(LEAST_BLOCK_BYTES)
        }
    }

    fn class(&self, bytes: usize) -> PoolClass {
        if bytes <= MOST_SMALL_BYTES { PoolClass::Small } else { PoolClass::Large }
    }

    fn segment_bytes(&self, bytes: usize) -> usize {
        if bytes <= MOST_SMALL_BYTES {
            SMALL_SEGMENT_BYTES
        } else if bytes < LEAST_OWN_SEGMENT_BYTES {
            self.0.large_segment_bytes
        } else {
            bytes.next_multiple_of(OWN_SEGMENT_GRANULE_BYTES)
        }
    }

    fn page_bytes(&self, class: PoolClass) -> usize {
        match class {
            PoolClass::Small => SMALL_SEGMENT_BYTES,
            PoolClass::Large => self.0.large_segment_bytes,
        }
    }

    fn splits(&self, class: PoolClass, block_bytes: usize, bytes: usize) -> bool {
        let rest_bytes = block_bytes - bytes;
        if class == PoolClass::Small || self.0.expandable_segments {
            return rest_bytes >= LEAST_BLOCK_BYTES;
        }
        bytes < self.most_split_bytes() && rest_bytes > MOST_UNSPLIT_REST_BYTES
    }

    fn choose(&self, bytes: usize, mut candidates: Candidates<'_>) -> Option<BlockId> {
        let mut best = candidates.next()?;
        if best.is_expandable && self.0.expandable_segments {
            // The size of an expandable block counts with the unmapped block behind it.
            for next in candidates {
                if !best.is_expandable || next.room_bytes >= best.room_bytes {
                    break;
                }
                best = next;
            }
        } else if best.is_expandable {
            let plain = |candidate: &Candidate| !candidate.is_expandable;
            best = Iterator::find(&mut candidates, plain)?;
        }
        let most_split_bytes = self.most_split_bytes();
        if bytes < most_split_bytes {
            return (best.bytes < most_split_bytes).then_some(best.id);
        }
        let most_bytes = bytes.saturating_add(self.0.max_non_split_rounding_bytes);
        (best.bytes < most_bytes).then_some(best.id)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: PyTorch's sizes and splits. Method: the examples of the specification, and both sides
    //! of every constant.

    use super::*;
    use crate::base::size::{GIB, KIB};

    fn with_divisions(divisions: usize) -> AllocatorConfig {
        AllocatorConfig {
            roundup_power2_divisions: [divisions; ROUNDUP_INTERVALS],
            ..AllocatorConfig::default()
        }
    }

    #[test]
    fn requests_are_rounded_to_512_bytes() {
        let config = AllocatorConfig::default();
        let torch = TorchDecisions(&config);
        for (bytes, rounded) in [(1, 512), (511, 512), (512, 512), (513, 1024), (1200, 1536)] {
            assert_eq!(torch.round(bytes), rounded, "{bytes}");
        }
        assert_eq!(torch.round(311 * 411 * 4), 511_488);
    }

    #[test]
    fn divisions_round_to_steps_between_powers_of_two() {
        let config = with_divisions(4);
        let torch = TorchDecisions(&config);
        let pairs =
            [(1200, 1536), (2048, 2048), (2049, 2560), (5000, 5120), (MIB + 1, MIB + 256 * KIB)];
        for (bytes, rounded) in pairs {
            assert_eq!(torch.round(bytes), rounded, "{bytes}");
        }
        assert_eq!(round_to_division(1200, 4), 1280, "the specification's example");
        assert_eq!(round_to_division(5, 8), 8, "steps below a byte");
    }

    #[test]
    fn each_interval_has_its_divisions() {
        let mut config = AllocatorConfig::default();
        config.roundup_power2_divisions[1] = 2;
        config.roundup_power2_divisions[ROUNDUP_INTERVALS - 1] = 8;
        let torch = TorchDecisions(&config);
        assert_eq!(torch.round(2 * MIB + 1), 3 * MIB);
        assert_eq!(torch.round(4 * MIB + 1), 4 * MIB + 512, "the interval above is off");
        assert_eq!(torch.round(64 * GIB + 1), 72 * GIB);
    }

    #[test]
    fn segments_are_as_large_as_their_class_says() {
        let config = AllocatorConfig::default();
        let torch = TorchDecisions(&config);
        let rows = [
            (512, PoolClass::Small, 2 * MIB),
            (MIB, PoolClass::Small, 2 * MIB),
            (MIB + 512, PoolClass::Large, 20 * MIB),
            (10 * MIB - 512, PoolClass::Large, 20 * MIB),
            (10 * MIB, PoolClass::Large, 10 * MIB),
            (10 * MIB + 512, PoolClass::Large, 12 * MIB),
        ];
        for (bytes, class, segment_bytes) in rows {
            assert_eq!((torch.class(bytes), torch.segment_bytes(bytes)), (class, segment_bytes));
        }
    }

    #[test]
    fn what_is_left_decides_a_split() {
        let config =
            AllocatorConfig { max_split_bytes: Some(32 * MIB), ..AllocatorConfig::default() };
        let torch = TorchDecisions(&config);
        assert!(torch.splits(PoolClass::Small, 1024, 512));
        assert!(!torch.splits(PoolClass::Small, 512, 512));
        let splits = |block_bytes, bytes| torch.splits(PoolClass::Large, block_bytes, bytes);
        assert!(!splits(20 * MIB, 19 * MIB), "1 MiB is not more than 1 MiB");
        assert!(splits(20 * MIB, 19 * MIB - 512));
        assert!(!splits(64 * MIB, 32 * MIB), "from max_split_size_mb on nothing is split");
        let expandable = AllocatorConfig { expandable_segments: true, ..config };
        assert!(TorchDecisions(&expandable).splits(PoolClass::Large, 64 * MIB, 64 * MIB - 512));
    }
}

/// Segments are a multiple of this size.
const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct Pinned<'a>(pub(super) &'a AllocatorConfig);

impl Policy for Pinned<'_> {
    fn round(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(LEAST_BLOCK_BYTES)
    }

    fn class(&self, bytes: usize) -> PoolClass {
        if bytes <= self.0.pinned_segment_bytes { PoolClass::Small } else { PoolClass::Large }
    }

    fn segment_bytes(&self, bytes: usize) -> usize {
        bytes.max(self.0.pinned_segment_bytes).next_multiple_of(PAGE_BYTES)
    }

    fn page_bytes(&self, _class: PoolClass) -> usize {
        self.0.pinned_segment_bytes
    }

    fn splits(&self, _class: PoolClass, block_bytes: usize, bytes: usize) -> bool {
        block_bytes - bytes >= LEAST_BLOCK_BYTES
    }

    fn choose(&self, _bytes: usize, candidates: Candidates<'_>) -> Option<BlockId> {
        candidates.next().map(|best| best.id)
    }
}
