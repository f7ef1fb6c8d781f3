//! Generators, through the public API: states, fills on every kind, defaults and their seeds.
//!
//! Goal: a number depends on seed and place alone: not on threads, chunks, addresses, streams or
//! kinds; and a fill is a task as others are. Method: fills beside the same numbers taken otherwise
//! (in parts, by `random_raw`, on one core, on a driver), random programs against a model of the
//! state, and a null kind that notes what reached it.

#[path = "../../../../tests/common/seed.rs"]
mod seed;

mod defaults;
mod fills;
mod kernels;
mod states;
mod support;
mod unordered;
