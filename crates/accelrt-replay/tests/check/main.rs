//! `check` and `rewind`: recordings that are reproduced, and wrong ones that are refused.

#[path = "../../../../tests/common/hang.rs"]
mod hang;
#[path = "../../../../tests/common/numbers.rs"]
mod numbers;
#[path = "../../../../tests/common/seed.rs"]
mod seed;
#[path = "../../../../tests/allocator/support.rs"]
#[expect(dead_code, reason = "the suite of the allocator uses the rest")]
mod support;

mod recordings;
mod snapshots;
