//! The embedded cpu device: the machine's own cores, caches, memory and pages.

pub(crate) mod capacity;
pub(crate) mod clock;
pub(crate) mod copy;
#[cfg(all(test, not(loom)))]
mod faults;
mod map_count;
pub(crate) mod memory;
mod pages;
mod physical;
pub(crate) mod properties;
mod reservation;
mod span;
pub(crate) mod virtual_memory;
