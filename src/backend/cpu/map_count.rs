//! Accounting of kernel mappings: the process's limit, and the number that virtual memory uses.

use std::sync::OnceLock;

use crate::base::device::DeviceKind;
use crate::base::error::{Error, Result};
use crate::base::sync::{Ordering, unmodelled};

/// Counts the mappings that the virtual memory of all devices uses, up to a limit.
///
/// At the kernel's limit, any `mmap` and even `munmap` in the process can fail, so an eighth is
/// left to other code. `used` may be too high, because the kernel merges neighbouring mappings.
/// `used` excludes the extra mappings of ranges that the kernel refused to make inaccessible.
#[derive(Debug)]
pub(super) struct MapCount {
    kernel_limit: usize,
    limit: usize,
    used: unmodelled::AtomicUsize,
}

impl MapCount {
    pub(super) fn of_process() -> &'static Self {
        static COUNT: OnceLock<MapCount> = OnceLock::new();
        COUNT.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
            Self::new(kernel_limit(text.ok().as_deref()))
        })
    }

    pub(super) fn new(kernel_limit: usize) -> Self {
        let limit = kernel_limit - kernel_limit / 8;
        Self { kernel_limit, limit, used: unmodelled::AtomicUsize::new(0) }
    }

    /// Counts `mappings` as used. If the sum exceeds the limit, counts nothing and fails.
    pub(super) fn take(&self, mappings: usize) -> Result<()> {
        let sum = |used: usize| used.checked_add(mappings).filter(|sum| *sum <= self.limit);
        // Relaxed: a count only; it publishes nothing.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        taken.map(drop).map_err(|used| {
            let message = format!(
                "{mappings} more mappings of pages are needed while {used} are in use: of \
                 vm.max_map_count = {}, {} are for devices and the rest for the process",
                self.kernel_limit, self.limit
            );
            Error::refused(DeviceKind::CPU, "mmap", libc::ENOMEM, message)
        })
    }

    /// Counts `mappings` as free again.
    pub(super) fn release(&self, mappings: usize) {
        // Relaxed: a count only; it publishes nothing.
        let used = self.used.fetch_sub(mappings, Ordering::Relaxed);
        assert!(used >= mappings, "{mappings} mappings come back while {used} are out");
    }
}

/// Parses the kernel's limit. An unreadable limit yields the kernel's default.
fn kernel_limit(text: Option<&str>) -> usize {
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::{LockRank, Mutex};

    impl MapCount {
        /// Leaks a counter for one test; a static list keeps it reachable for leak checkers.
        pub(in super::super) fn for_test(kernel_limit: usize) -> &'static MapCount {
            static KEPT: Mutex<Vec<&'static MapCount>> = Mutex::new(LockRank::Backend, Vec::new());
            let counter = Box::leak(Box::new(MapCount::new(kernel_limit)));
            KEPT.lock().push(counter);
            counter
        }

        pub(in super::super) fn used(&self) -> usize {
            // Relaxed: the reading test counts on the same thread.
            self.used.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_last_eighth_is_refused_with_the_numbers() {
        let count = MapCount::new(80);
        count.take(69).unwrap();
        let message = count.take(2).unwrap_err().to_string();
        for part in ["2 more", "69 are in use", "vm.max_map_count = 80", "70 are for"] {
            assert!(message.contains(part), "{message}");
        }
        count.take(1).unwrap();
        count.release(70);
        assert_eq!(count.used(), 0);
    }

    #[test]
    fn an_unreadable_limit_is_the_kernels_default() {
        assert_eq!(kernel_limit(Some("262144\n")), 262_144);
        for odd in [None, Some(""), Some("-1"), Some("many")] {
            assert_eq!(kernel_limit(odd), 65_530);
        }
        assert!(MapCount::of_process().kernel_limit > 0);
    }
}
