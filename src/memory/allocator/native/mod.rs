//! The native policy: the least memory for what is live, in a bounded number of steps.
//!
//! * `size_class`: which sizes share slabs, and which requests have pages of their own
//! * `core`: what is known, and how pieces change hands: `block` and `index` (one arena's free
//!   blocks), `area` and `pages` (addresses and the memory behind them), `heap` (what one stream
//!   has), `slab` (small blocks), `piece`, `marks` (what was handed out, and for how much, in
//!   `chunks`) and `handle` (what programs have of it)
//! * `growth`: memory for blocks: `idle` pages are moved before the device is asked
//! * `fallback`: any free memory, for requests that neither their own arena nor the device serves
//! * `by_address`: a heap's pieces by their addresses alone, which `addresses` finds without a lock
//! * `caches`: what threads keep of what they freed, to have it without a lock: `local` (how a
//!   thread finds its cache), `thread_cache` (how others reach into it), `bins` (what is in it)
//! * `cell`, `amounts`, `tally`: what is counted, by whom, and the sums of it; `split`: of free
//!   memory, what cannot go back as it is
//! * `plan`, `serve`: requests and frees, in which steps they are answered
//! * `shrink`: memory that goes back to the device, and pools that are looked at for it
//! * `describe`, `invariants`: what it holds as plain values, and the laws, checked

mod addresses;
mod amounts;
mod area;
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
mod fallback;
mod free_blocks;
mod grid;
mod growth;
pub(super) mod handle;
mod heap;
mod index;
mod invariants;
mod local;
#[cfg(all(test, loom))]
mod loom_tests;
mod marks;
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
mod want;
