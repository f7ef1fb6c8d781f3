//! Engine `native`: the least memory for what is in use, in a bounded number of steps.
//!
//! * `size_class`, `plan`: how a request is rounded, and what it needs
//! * `core`: the state; `block`, `tiles`, `tiling` (the blocks of an arena), `free_blocks` by
//!   `index` (those that are free), `area`, `grid`, `pages` (addresses and mapped pages), `heap`
//!   (one stream's memory), `slab` (small blocks)
//! * `piece`, `marks` in `chunks`, `handle`: what programs have
//! * `search`, `elsewhere`, `growth`, `idle_pages`, `page_work`, `fallback`, `shrink`: free memory,
//!   pages and addresses for requests, and back to the device
//! * `caches`, `local`, `thread_cache`, `bins`, `batches`: pieces that threads keep, to take them
//!   without a lock; `by_address`, `addresses`: the host heap's pieces by address
//! * `cell`, `amounts`, `tally`, `split`: counts
//! * `serve`: the steps of requests and frees; `describe`, `invariants`

mod addresses;
mod amounts;
mod area;
mod batches;
mod bins;
#[cfg(all(test, not(loom)))]
mod bins_tests;
mod block;
#[cfg(not(loom))]
pub(super) mod by_address;
pub(super) mod caches;
pub(super) mod cell;
mod chunks;
pub(super) mod core;
mod describe;
mod elsewhere;
mod fallback;
mod free_blocks;
mod grid;
mod growth;
pub(super) mod handle;
mod heap;
mod idle_pages;
mod index;
mod invariants;
#[cfg(all(test, not(loom)))]
mod leaving_tests;
mod local;
#[cfg(all(test, loom))]
mod loom_tests;
mod marks;
mod page_work;
mod pages;
pub(super) mod piece;
mod plan;
#[cfg(all(test, not(loom)))]
mod pressure_tests;
mod search;
mod serve;
mod shrink;
mod size_class;
mod slab;
mod split;
pub(super) mod tally;
pub(super) mod thread_cache;
mod tiles;
mod tiling;
