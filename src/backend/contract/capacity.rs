//! Accounting of a device's memory: the capacity and the bytes in use.

use crate::backend::contract::MemoryInfo;
use crate::base::device::Device;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::sync::{AtomicUsize, Ordering};

/// The error of a request for more memory than the device has free.
#[must_use]
pub fn out_of_memory(device: Device, requested_bytes: usize, info: MemoryInfo) -> Error {
    let (MemoryInfo { free_bytes, total_bytes }, cache) = (info, None);
    MemoryError::OutOfMemory { device, requested_bytes, free_bytes, total_bytes, cache }.into()
}

/// The capacity of one device, shared by all its allocators.
///
/// `used_bytes` is the sum of the sizes of all live allocations and of all live physical memory of
/// the device; it never exceeds `total_bytes`.
#[derive(Debug)]
pub struct Capacity {
    device: Device,
    total_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Capacity {
    /// Creates the counter of a device of `total_bytes`, all of them free.
    #[must_use]
    pub fn new(device: Device, total_bytes: usize) -> Self {
        Self { device, total_bytes, used_bytes: AtomicUsize::new(0) }
    }

    /// Counts `counted_bytes` as used, for a request of `requested_bytes`. If fewer bytes are free,
    /// counts nothing and fails with `OutOfMemory`.
    pub fn take(&self, requested_bytes: usize, counted_bytes: usize) -> Result<()> {
        let sum =
            |used: usize| used.checked_add(counted_bytes).filter(|sum| *sum <= self.total_bytes);
        // Relaxed: a count only; the code that allocates publishes the memory.
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        taken.map(drop).map_err(|used| self.refusal(requested_bytes, used))
    }

    /// Counts `bytes` of an earlier [`Self::take`] as free again.
    ///
    /// # Panics
    /// When fewer bytes were taken.
    pub fn release(&self, bytes: usize) {
        // Relaxed: a count only; it publishes no memory.
        let used = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(used >= bytes, "{} gets {bytes} B back while {used} B are out", self.device);
    }

    /// The bytes of the device, and those that are free.
    #[must_use]
    pub fn info(&self) -> MemoryInfo {
        // Relaxed: a count only. Other threads may change it before the caller reads the result.
        let free_bytes = self.total_bytes - self.used_bytes.load(Ordering::Relaxed);
        MemoryInfo { free_bytes, total_bytes: self.total_bytes }
    }

    /// The error of an allocation of `bytes` that the operating system refused.
    #[must_use]
    pub fn out_of_memory(&self, bytes: usize) -> Error {
        self.refusal(bytes, self.total_bytes - self.info().free_bytes)
    }

    fn refusal(&self, requested_bytes: usize, used_bytes: usize) -> Error {
        let free_bytes = self.total_bytes - used_bytes;
        let info = MemoryInfo { free_bytes, total_bytes: self.total_bytes };
        out_of_memory(self.device, requested_bytes, info)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_counts_nothing_and_reports_the_numbers() {
        let capacity = Capacity::new(Device::cpu(3), 100);
        capacity.take(60, 60).unwrap();
        for requested in [41, usize::MAX] {
            let Err(Error::Memory(MemoryError::OutOfMemory {
                device,
                requested_bytes,
                free_bytes,
                total_bytes,
                ..
            })) = capacity.take(requested, requested)
            else {
                panic!("{requested} of 40 bytes were given")
            };
            assert_eq!((device, requested_bytes), (Device::cpu(3), requested));
            assert_eq!((free_bytes, total_bytes), (40, 100));
        }
        capacity.take(40, 40).unwrap();
        assert_eq!(capacity.info(), MemoryInfo { free_bytes: 0, total_bytes: 100 });
        capacity.release(100);
        assert_eq!(capacity.info(), MemoryInfo { free_bytes: 100, total_bytes: 100 });
    }

    #[test]
    fn concurrent_requests_never_exceed_the_capacity() {
        let capacity = Capacity::new(Device::cpu(0), 1_000);
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if capacity.take(1, 1).is_ok() {
                            // Relaxed: a count only; the scope joins the threads before the load.
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // Relaxed: the joins above order the load after the additions.
        assert_eq!(taken.load(Ordering::Relaxed), 1_000);
        assert_eq!(capacity.info().free_bytes, 0);
    }

    #[test]
    #[should_panic(expected = "gets 1 B back while 0 B are out")]
    fn releasing_more_than_was_taken_panics() {
        Capacity::new(Device::cpu(0), 10).release(1);
    }
}
