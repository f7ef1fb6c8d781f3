//! `check` and `rewind`: recordings that are reproduced, and wrong ones that are refused.

#[path = "../../../../tests/common/numbers.rs"]
mod numbers;
#[path = "../../../../tests/common/seed.rs"]
mod seed;

mod recordings;
mod snapshots;
mod support;
