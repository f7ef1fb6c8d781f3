//! A warning of a second copy of accelrt in the process.
//!
//! Each copy of this crate in a process, as a library for C beside Python's module, has a runtime
//! of its own: their streams and memory know nothing of each other. The first one leaves a mark, a
//! mapping whose name shows in the process's list of mappings; a later one that finds it warns. No
//! symbol and no variable is needed, so it does not matter how the copies were loaded.
#![expect(unsafe_code, reason = "makes a mapping with a name")]

use std::io::Write;
use std::ptr;
use std::sync::Once;

use crate::runtime::Runtime;
use crate::runtime::process::{ProcessHooks, register_process_hooks};

/// The name of the mapping, as the kernel shows it.
const MARK: &str = "/memfd:accelrt-runtime";
const NAME: &std::ffi::CStr = c"accelrt-runtime";

/// Lets the begin of the process's runtime warn of another one in the process. Later calls have no
/// effect.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register_process_hooks(ProcessHooks { begin, ..ProcessHooks::default() }));
}

fn begin(_runtime: &Runtime) {
    if is_marked() {
        let _ = writeln!(
            std::io::stderr(),
            "accelrt: another copy of accelrt has a runtime in this process, and the two share \
             neither streams nor memory: use one, in Python by accelrt._core._C_API"
        );
    } else {
        mark();
    }
}

/// False too where the list of mappings cannot be read.
fn is_marked() -> bool {
    let mappings = std::fs::read("/proc/self/maps").unwrap_or_default();
    mappings.windows(MARK.len()).any(|name| name == MARK.as_bytes())
}

/// Leaves the mark for the life of the process. Where the system refuses it there is none.
fn mark() {
    // SAFETY: the name ends with a zero.
    let file = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return;
    }
    // SAFETY: a new mapping, of a file that is there, at an address that the kernel chooses. It may
    // not be accessed, and is never unmapped.
    unsafe { libc::mmap(ptr::null_mut(), 1, libc::PROT_NONE, libc::MAP_PRIVATE, file, 0) };
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(file) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found() {
        assert!(!is_marked(), "no test of this process begins the process's runtime by a binding");
        mark();
        assert!(is_marked());
    }
}
