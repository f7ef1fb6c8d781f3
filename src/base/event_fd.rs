//! An `eventfd(2)`: a descriptor that threads raise and that an event loop polls.
#![expect(unsafe_code, reason = "eventfd is the C library's")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicBool;

/// Readable from [`EventFd::raise`] to [`EventFd::lower`].
#[derive(Debug)]
pub struct EventFd {
    file: File,
    is_raised: AtomicBool,
}

impl EventFd {
    /// Creates a descriptor whose count is 0.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call has no pre-condition.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system has just opened the descriptor, so nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self { file, is_raised: AtomicBool::new(false) })
    }

    /// The number of the descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Makes the descriptor readable. While it is, this is no system call.
    pub fn raise(&self) {
        // AcqRel: pairs with the swap in `lower`. A thread that finds the flag set leaves what it
        // wrote before to the reader, whose swap comes later.
        if !self.is_raised.swap(true, Ordering::AcqRel) {
            // The result is ignored: a counter of at most 1 takes the write.
            let _ = (&self.file).write(&1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable. What threads wrote before their [`EventFd::raise`] is
    /// visible then, or the descriptor is raised again.
    pub fn lower(&self) {
        // The result is ignored: the counter may be 0, if another thread has lowered it. The read
        // comes before the swap, because it must not take a later raise away.
        let _ = (&self.file).read(&mut [0; size_of::<u64>()]);
        // AcqRel: pairs with the swap in `raise`.
        self.is_raised.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// The number of unread raises, which this takes away.
    fn taken(event_fd: &EventFd) -> Option<u64> {
        let mut bytes = [0; 8];
        (&event_fd.file).read(&mut bytes).ok().map(|_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn raises_while_one_is_pending_are_no_system_calls() {
        let event_fd = EventFd::new().unwrap();
        assert_eq!(taken(&event_fd), None);
        for _ in 0..3 {
            (0..10).for_each(|_| event_fd.raise());
            assert_eq!(taken(&event_fd), Some(1));
            event_fd.lower();
            assert_eq!(taken(&event_fd), None);
        }
    }

    #[test]
    fn no_raise_is_lost_beside_a_reader() {
        // Goal: the reader sees the last write. Method: it lowers, then reads the number that the
        // other thread wrote before each raise; it stops looking only while nothing is raised.
        const LAST: u64 = 100_000;
        let (event_fd, number) = (EventFd::new().unwrap(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for next in 1..=LAST {
                    number.store(next, Ordering::Relaxed);
                    event_fd.raise();
                }
            });
            let mut poll =
                libc::pollfd { fd: event_fd.descriptor(), events: libc::POLLIN, revents: 0 };
            let mut seen = 0;
            while seen < LAST {
                // SAFETY: one structure is given, which lives during the call.
                let count = unsafe { libc::poll(&raw mut poll, 1, 60_000) };
                assert_eq!(count, 1, "a raise was lost at {seen}");
                event_fd.lower();
                seen = number.load(Ordering::Relaxed);
            }
        });
    }
}
