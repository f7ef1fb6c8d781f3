//! Engine `native`: the least memory for what is in use, in a bounded number of steps.
//!
//! * `slab`, `plan`: how a request is rounded, and what it needs
//! * `core`: the state; `ids`, `block`, `tiles` (the blocks of an arena), `free_blocks` (those that
//!   are free), `area`, `pages` (addresses and mapped pages), `heap` (one stream's memory), `slab`
//!   (small blocks)
//! * `piece`, `marks`: what programs have
//! * `search`, `growth`, `page_work`, `fallback`, `shrink`: free memory, pages and addresses for
//!   requests, and back to the device
//! * `caches`, `thread_cache`, `bins`: pieces that threads keep, to take them without a lock;
//!   `addresses`: the host heap's pieces by address
//! * `cell`, `amounts`, `tally`: counts
//! * `serve`: the steps of requests and frees; `inspect`: snapshots and invariants

mod addresses;
mod amounts;
mod area;
mod bins;
#[cfg(all(test, not(loom)))]
mod bins_tests;
mod block;
pub(super) mod caches;
pub(super) mod cell;
pub(super) mod core;
mod fallback;
mod free_blocks;
mod growth;
mod heap;
mod ids;
mod inspect;
#[cfg(all(test, not(loom)))]
mod leaving_tests;
#[cfg(all(test, loom))]
mod loom_tests;
pub(super) mod marks;
mod page_work;
mod pages;
pub(super) mod piece;
mod plan;
#[cfg(all(test, not(loom)))]
mod pressure_tests;
mod search;
mod serve;
mod shrink;
mod slab;
pub(super) mod tally;
pub(super) mod thread_cache;
mod tiles;
