//! The embedded cpu device: the machine's own cores, caches, memory and pages.

pub(crate) mod clock;
