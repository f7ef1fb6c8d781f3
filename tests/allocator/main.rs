//! The caching allocator on devices of numbers: its decisions, its laws, its recordings.
//!
//! Goal: policy `torch` decides as PyTorch 2.13 does, `native` wastes nothing, and nothing that an
//! allocator is asked, in whatever order, breaks its laws. Method: vectors written by hand, each
//! naming its line of the specification of PyTorch's allocator; recordings that are made and
//! reproduced; random programs against a model that knows every byte. `check_all` looks at
//! everything after each step.

#[path = "../common/hang.rs"]
mod hang;
#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/scheduled.rs"]
mod scheduled;
#[path = "../common/seed.rs"]
mod seed;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod addresses;
mod compiled;
mod defaults;
mod driver;
mod expandable;
mod free_memory;
mod inactive_splits;
mod lifetimes;
mod model;
mod native;
mod pinned;
mod pools;
mod shortage;
mod small_pages;
mod strange;
mod support;
mod thread_caches;
mod threads;
mod victims;
