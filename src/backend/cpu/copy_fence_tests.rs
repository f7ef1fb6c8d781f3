//! Tests only: streaming copies and fills end with a fence, seen instruction by instruction.
//!
//! Goal: a thread that publishes completion afterwards publishes the bytes too. A missing fence
//! shows on few machines and seldom. So the test has the processor trap after every instruction of
//! a copy (the trap flag), and the handler looks at the bytes of the next one. This proves that a
//! fence is executed after the last streaming store, in the code that this compiler made. It does
//! not prove that the processor does what its manual says of fences.
#![expect(unsafe_code, reason = "a trap handler, and the processor's trap flag")]

use std::arch::asm;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// One thread at a time is stepped through.
static STEPPING: Mutex<()> = Mutex::new(());
/// Streaming stores seen since the last fence, and in all. Relaxed, here and below: the handler
/// runs on the thread that reads them.
static UNFENCED: AtomicUsize = AtomicUsize::new(0);
static STORES: AtomicUsize = AtomicUsize::new(0);

/// The longest instruction that is looked for, up to its opcode and operand byte.
const LOOKED_AT: usize = 7;

/// The kind of an instruction, as far as this test distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    StreamingStore,
    Fence,
    Other,
}

/// Source: Intel's manual, volume 2: `MOVNTDQ`, `MOVNTPS`, `MOVNTI`, `SFENCE`, `MFENCE`.
fn kind(code: [u8; LOOKED_AT]) -> Kind {
    let opcode = match code {
        [0x0F, 0xAE, 0xF8 | 0xF0, ..] => return Kind::Fence,
        // By encoding: AVX-512, AVX with three bytes and with two, then after legacy prefixes.
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

/// Called by the system after each instruction of a thread that has the trap flag.
extern "C" fn look(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    let place = usize::try_from(libc::REG_RIP).unwrap_or_default();
    // SAFETY: the system hands a valid context to a handler of this kind.
    let next = unsafe { (*context).uc_mcontext.gregs[place] };
    let next = usize::try_from(next.cast_unsigned()).unwrap_or_default();
    let next: *const u8 = std::ptr::with_exposed_provenance(next);
    // SAFETY: the instruction that is executed next, in code of this program or of libc; neither
    // ends within a few bytes of its last page.
    let kind = kind(unsafe { next.cast::<[u8; LOOKED_AT]>().read_unaligned() });
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
    // SAFETY: the flags are pushed and popped again, with nothing but the trap flag changed; the
    // handler for what follows is installed.
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

/// Executes `steps` one instruction at a time: the streaming stores in all, and those of them that
/// no fence followed.
fn step_through(steps: impl FnOnce()) -> (usize, usize) {
    let _alone = STEPPING.lock().unwrap();
    STORES.store(0, Ordering::Relaxed);
    UNFENCED.store(0, Ordering::Relaxed);
    // SAFETY: all zeroes is a valid action: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = look as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    let mut before = action;
    // SAFETY: both are valid actions; nothing else in this program uses the signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before) }, 0);
    trap(true);
    steps();
    trap(false);
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGTRAP, &raw const before, std::ptr::null_mut()) };
    (STORES.load(Ordering::Relaxed), UNFENCED.load(Ordering::Relaxed))
}

#[test]
fn every_streaming_store_is_followed_by_a_fence() {
    const BYTES: usize = 2 * Engine::STEP_BYTES + 3;
    let source = vec![7_u8; BYTES];
    for width in Width::available() {
        let engine = Engine { width, copy_from_bytes: 0, fill_from_bytes: 0 };
        let mut target = vec![0_u8; BYTES];
        let to = target.as_mut_ptr();
        // SAFETY: two allocations of as many bytes.
        let copied = step_through(|| unsafe { engine.copy(to, source.as_ptr(), BYTES) });
        assert!(target == source);
        // SAFETY: the target has as many bytes.
        let filled = step_through(|| unsafe { engine.fill(to, 9, BYTES) });
        assert!(target == vec![9; BYTES]);
        // A vector has 64 bytes at most, and a head may be left to libc.
        for (what, (stores, unfenced)) in [("copy", copied), ("fill", filled)] {
            assert!(stores >= Engine::STEP_BYTES / 64, "{width:?} {what}: {stores} stores");
            assert_eq!(unfenced, 0, "{width:?} {what}: of {stores} stores");
        }
    }
}

#[test]
fn a_store_without_a_fence_is_seen() {
    let mut target = [0_u64; 2];
    let to = target.as_mut_ptr();
    let store = || {
        // SAFETY: a store of eight bytes into the target.
        unsafe { asm!("movnti [{to}], {value}", to = in(reg) to, value = in(reg) 5_u64) };
    };
    let fence = || {
        // SAFETY: SSE is part of every 64-bit x86.
        unsafe { std::arch::x86_64::_mm_sfence() };
    };
    assert_eq!(step_through(store), (1, 1));
    assert_eq!(step_through(|| (store(), fence()).0), (1, 0));
    assert_eq!(step_through(|| (fence(), store()).1), (1, 1));
    assert_eq!(target[0], 5);
}
