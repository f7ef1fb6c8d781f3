//! Threads by the system's numbers, which name them in `/proc`.

use std::fs;

/// A thread of this process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThreadId(pub(crate) u32);

impl ThreadId {
    /// The calling thread.
    pub(crate) fn current() -> Self {
        let link = fs::read_link("/proc/thread-self").expect("a thread has a folder");
        let number = link.file_name().and_then(|name| name.to_str()).expect("a number");
        Self(number.parse().expect("a number"))
    }
}
