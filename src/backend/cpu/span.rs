//! Page-aligned address ranges, and the errors of system calls on them.

use crate::backend::contract::Address;
use crate::base::device::DeviceKind;
use crate::base::error::Error;

/// The address range of `bytes` from `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) base: usize,
    pub(super) bytes: usize,
}

impl Span {
    pub(super) fn new(base: Address, bytes: usize) -> Self {
        Self { base: usize::try_from(base.0).expect("an address of this machine"), bytes }
    }

    pub(super) fn address(self) -> Address {
        Address(self.base as u64)
    }

    /// The address after the last byte. May saturate, since no mapping reaches the last page.
    pub(super) fn end(self) -> usize {
        self.base.saturating_add(self.bytes)
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.base <= other.base && other.end() <= self.end()
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) call: &'static str,
    pub(super) code: i32,
}

impl Refusal {
    /// An error whose text contains the failed system call, the system's reason and `attempt`.
    pub(super) fn error(self, attempt: &str) -> Error {
        let reason = std::io::Error::from_raw_os_error(self.code);
        Error::refused(DeviceKind::CPU, self.call, self.code, format!("{reason}, {attempt}"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spans_touch_without_overlapping() {
        let span = |base, bytes| Span { base, bytes };
        assert!(!span(10, 10).overlaps(span(20, 10)) && !span(20, 10).overlaps(span(10, 10)));
        assert!(span(10, 11).overlaps(span(20, 10)) && span(0, 100).overlaps(span(20, 10)));
        assert!(span(10, 10).contains(span(10, 10)) && !span(10, 10).contains(span(11, 10)));
        assert!(!span(10, 10).contains(span(usize::MAX, 10)));
        assert_eq!(Span::new(Address(4096), 1).address(), Address(4096));
    }

    #[test]
    fn a_refusal_explains_itself() {
        let refusal = Refusal { call: "mremap", code: libc::ENOMEM };
        let message = refusal.error("moving 2.00 MiB").to_string();
        for part in ["mremap failed on cpu", "code 12", "Cannot allocate", "moving 2.00 MiB"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
