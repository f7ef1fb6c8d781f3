//! An asymmetric fence: nearly free for the frequent side, expensive for the rare side.
//!
//! Each side stores a value, then loads the value of the other side (Dekker), and needs a fence in
//! between. Where the kernel can run a fence on every thread of the process (`membarrier(2)`), the
//! rare side requests this fence, and the frequent side needs only a compiler fence. Elsewhere, and
//! in loom models, both sides use an ordinary fence.
#![expect(unsafe_code, reason = "asks the kernel for a fence on every thread")]

use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{Ordering, compiler_fence, fence};

/// True when the kernel runs fences on request. [`prepare`] decides this before the first fence.
static IS_EXPEDITED: AtomicBool = AtomicBool::new(false);

/// Decides which fences the sides use. The runtime calls this before any fence.
pub(crate) fn prepare() {
    static PREPARING: std::sync::Once = std::sync::Once::new();
    PREPARING.call_once(|| {
        let is_expedited = !cfg!(loom) && ask_kernel(MEMBARRIER_REGISTER);
        // Relaxed: no thread uses a fence before the runtime has called `prepare`.
        IS_EXPEDITED.store(is_expedited, Ordering::Relaxed);
    });
}

/// The fence of the frequent side: only a compiler fence where the kernel fences for [`heavy`].
#[inline]
pub(crate) fn light() {
    // Relaxed: written once, before the first fence.
    if IS_EXPEDITED.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst); // partner: `heavy`
    } else {
        fence(Ordering::SeqCst); // partner: `heavy`
    }
}

/// True when [`light`] is only a compiler fence. Call [`prepare`] first.
pub(crate) fn is_light_free() -> bool {
    // Relaxed: written once, before the first fence.
    IS_EXPEDITED.load(Ordering::Relaxed)
}

/// [`light`] unchecked. Unless [`is_light_free`], the caller must discard the values it loads next.
#[inline]
pub(crate) fn light_if_free() {
    compiler_fence(Ordering::SeqCst); // partner: `heavy`
}

/// The fence of the rare side. Costs about a microsecond for each other core.
pub(crate) fn heavy() {
    // Relaxed: written once, before the first fence.
    if IS_EXPEDITED.load(Ordering::Relaxed) {
        assert!(ask_kernel(FENCE), "the kernel grants what was registered");
    } else {
        fence(Ordering::SeqCst); // partner: `light`
    }
}

/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`: must precede the process's first [`FENCE`].
const MEMBARRIER_REGISTER: libc::c_int = 1 << 4;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`: runs a fence on every running thread of the process.
const FENCE: libc::c_int = 1 << 3;

#[cfg(target_os = "linux")]
fn ask_kernel(command: libc::c_int) -> bool {
    // SAFETY: the system call takes three numbers and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask_kernel(_: libc::c_int) -> bool {
    false
}
