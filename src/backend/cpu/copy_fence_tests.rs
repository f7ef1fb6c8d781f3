//! Tests only: streaming copies and fills end with a fence, checked instruction by instruction.
//!
//! Goal: a thread that publishes completion also publishes the bytes. A missing fence rarely shows
//! in the bytes. Method: the trap flag makes the processor trap after every instruction, and the
//! handler decodes the next one. This proves that the compiled code executes a fence after the last
//! streaming store, not that the processor implements fences as specified.
#![expect(unsafe_code, reason = "a trap handler, and the processor's trap flag")]

use std::arch::asm;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Serialises the tests, which share the counters and the signal.
static STEPPING: Mutex<()> = Mutex::new(());
/// Streaming stores since the last fence; `STORES` counts all. Relaxed, here and below: the handler
/// runs on the thread that reads the counters.
static UNFENCED: AtomicUsize = AtomicUsize::new(0);
static STORES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that [`kind`] decodes: the longest prefixes, the opcode and the operand byte.
const CODE_BYTES: usize = 7;

/// The instruction kinds that this test distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    StreamingStore,
    Fence,
    Other,
}

/// Decodes by Intel's manual, volume 2: `MOVNTDQ`, `MOVNTPS`, `MOVNTI`, `SFENCE`, `MFENCE`.
fn kind(code: [u8; CODE_BYTES]) -> Kind {
    let opcode = match code {
        [0x0F, 0xAE, 0xF8 | 0xF0, ..] => return Kind::Fence,
        // Rows: AVX-512, AVX with a three-byte and a two-byte prefix, then legacy prefixes.
        [0x62, _, _, _, opcode, ..]
        | [0xC4, _, _, opcode, ..]
        | [0xC5, _, opcode, ..]
        | [0x66, 0x40..=0x4F, 0x0F, opcode, ..]
        | [0x66 | 0x40..=0x4F, 0x0F, opcode, ..]
        | [0x0F, opcode, ..] => opcode,
        _ => return Kind::Other,
    };
    match opcode {
        0xE7 | 0x2B | 0xC3 => Kind::StreamingStore,
        _ => Kind::Other,
    }
}

/// The signal handler: runs after each instruction while the trap flag is set.
extern "C" fn on_trap(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    let place = usize::try_from(libc::REG_RIP).unwrap_or_default();
    // SAFETY: the system passes a valid context to a handler installed with `SA_SIGINFO`.
    let next = unsafe { (*context).uc_mcontext.gregs[place] };
    let next = usize::try_from(next.cast_unsigned()).unwrap_or_default();
    let next: *const u8 = std::ptr::with_exposed_provenance(next);
    // SAFETY: the next instruction lies in the code of this program or of libc, and neither ends
    // within a few bytes of its last page.
    let kind = kind(unsafe { next.cast::<[u8; CODE_BYTES]>().read_unaligned() });
    match kind {
        Kind::StreamingStore => {
            STORES.fetch_add(1, Ordering::Relaxed);
            UNFENCED.fetch_add(1, Ordering::Relaxed);
        }
        Kind::Fence => UNFENCED.store(0, Ordering::Relaxed),
        Kind::Other => {}
    }
}

/// Sets or clears the trap flag of this thread.
fn trap(on: bool) {
    const TRAP_FLAG: u64 = 1 << 8;
    let (set, keep) = if on { (TRAP_FLAG, u64::MAX) } else { (0, !TRAP_FLAG) };
    // SAFETY: pushes and pops the flags and changes only the trap flag; the trap's handler is
    // installed.
    unsafe {
        asm!(
            "pushfq",
            "and [rsp], {keep}",
            "or [rsp], {set}",
            "popfq",
            keep = in(reg) keep,
            set = in(reg) set,
        );
    }
}

/// Single-steps `steps`. Counts its streaming stores, and those without a later fence.
fn step_through(steps: impl FnOnce()) -> (usize, usize) {
    let _alone = STEPPING.lock().unwrap();
    STORES.store(0, Ordering::Relaxed);
    UNFENCED.store(0, Ordering::Relaxed);
    // SAFETY: a `sigaction` of zeroes is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_trap as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    let mut before = action;
    // SAFETY: both pointers are to valid actions; no other code of this program uses the signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before) }, 0);
    trap(true);
    steps();
    trap(false);
    // SAFETY: `before` is the valid action that the first call returned.
    unsafe { libc::sigaction(libc::SIGTRAP, &raw const before, std::ptr::null_mut()) };
    (STORES.load(Ordering::Relaxed), UNFENCED.load(Ordering::Relaxed))
}

#[test]
fn every_streaming_store_is_followed_by_a_fence() {
    const BYTES: usize = 2 * Engine::STEP_BYTES + 3;
    let source = vec![7_u8; BYTES];
    for width in Width::available() {
        let engine = Engine { width, copy_threshold_bytes: 0, fill_threshold_bytes: 0 };
        let mut target = vec![0_u8; BYTES];
        let to = target.as_mut_ptr();
        // SAFETY: `source` and `to` are separate allocations of `BYTES`.
        let copied = step_through(|| unsafe { engine.copy(to, source.as_ptr(), BYTES) });
        assert!(target == source);
        // SAFETY: `to` is writable for `BYTES`.
        let filled = step_through(|| unsafe { engine.fill(to, 9, BYTES) });
        assert!(target == vec![9; BYTES]);
        // At least one whole step is streamed, by stores of at most 64 bytes; libc copies the rest.
        for (what, (stores, unfenced)) in [("copy", copied), ("fill", filled)] {
            assert!(stores >= Engine::STEP_BYTES / 64, "{width:?} {what}: {stores} stores");
            assert_eq!(unfenced, 0, "{width:?} {what}: of {stores} stores");
        }
    }
}

#[test]
fn a_store_without_a_fence_is_detected() {
    let mut target = [0_u64; 2];
    let to = target.as_mut_ptr();
    let store = || {
        // SAFETY: the instruction stores eight bytes into the live target.
        unsafe { asm!("movnti [{to}], {value}", to = in(reg) to, value = in(reg) 5_u64) };
    };
    let fence = || {
        // SAFETY: every 64-bit x86 has SSE.
        unsafe { std::arch::x86_64::_mm_sfence() };
    };
    assert_eq!(step_through(store), (1, 1));
    assert_eq!(step_through(|| (store(), fence()).0), (1, 0));
    assert_eq!(step_through(|| (fence(), store()).1), (1, 1));
    assert_eq!(target[0], 5);
}
