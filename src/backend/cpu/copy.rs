//! Copies and fills: by libc if they fit the last-level cache, else by streaming stores.
//!
//! A store to an uncached line first reads the line; a streaming (non-temporal) store of a whole
//! line does not. This saves a third of a large copy's traffic and leaves the caches to other data.
//! A streaming store always goes to memory, so libc is faster for sizes that fit the cache. Only
//! `sfence` orders streaming stores before a later release store. The streaming loops end with an
//! `sfence`, so a thread that then publishes completion also publishes the bytes.
#![expect(unsafe_code, reason = "moves bytes between raw addresses, with vector instructions")]

use std::sync::OnceLock;

use super::properties;
use crate::base::size::MIB;

/// Copies `bytes` from `from` to `to`. A later release store also publishes the copied bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`. The ranges do not overlap. Until the return,
/// no other thread writes to either range or reads from `to`.
pub(crate) unsafe fn copy_nonoverlapping_streaming(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller upholds this function's conditions, which are those of `copy`.
    unsafe { Engine::get().copy(to, from, bytes) }
}

/// Sets `bytes` bytes at `to` to `byte`. A later release store also publishes them.
///
/// # Safety
/// `to` is writable for `bytes`. Until the return, no other thread reads or writes the range.
pub(crate) unsafe fn fill_streaming(to: *mut u8, byte: u8, bytes: usize) {
    // SAFETY: the caller upholds this function's conditions, which are those of `fill`.
    unsafe { Engine::get().fill(to, byte, bytes) }
}

/// Instruction sets with streaming stores, from the narrowest vectors to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// No known streaming stores: libc copies and fills all sizes.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Width {
    /// The widths that this processor executes, from the narrowest to the widest.
    fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2");
        #[cfg(target_arch = "x86_64")]
        return [
            Some(Self::Sse2),
            has_avx2.then_some(Self::Avx2),
            (has_avx2 && is_x86_feature_detected!("avx512f")).then_some(Self::Avx512),
        ]
        .into_iter()
        .flatten()
        .collect();
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self::Plain]
    }
}

/// How this machine copies and fills. `width` must be one of [`Width::available`]: to execute
/// instructions that the processor lacks is undefined behaviour.
#[derive(Clone, Copy, Debug)]
struct Engine {
    width: Width,
    /// Copies of this size and above bypass the caches.
    copy_threshold_bytes: usize,
    /// Fills of this size and above bypass the caches.
    fill_threshold_bytes: usize,
}

impl Engine {
    const LINE_BYTES: usize = 64;
    /// Bytes per iteration of the widest loop; libc copies the remainder.
    const STEP_BYTES: usize = 256;

    fn get() -> &'static Self {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        ENGINE.get_or_init(|| {
            let width = *Width::available().last().expect("at least one width");
            Self::for_cache(width, properties::last_cache_bytes())
        })
    }

    /// Creates an engine that streams fills from the size of the last-level cache on, and copies
    /// from half of it on. The clamp bounds misreported sizes, and caches that very many cores
    /// share.
    fn for_cache(width: Width, last_cache_bytes: Option<usize>) -> Self {
        let cache_bytes = last_cache_bytes.unwrap_or(32 * MIB).clamp(8 * MIB, 64 * MIB);
        Self { width, copy_threshold_bytes: cache_bytes / 2, fill_threshold_bytes: cache_bytes }
    }

    /// # Safety
    /// As [`copy_nonoverlapping_streaming`].
    unsafe fn copy(self, to: *mut u8, from: *const u8, bytes: usize) {
        if bytes < self.copy_threshold_bytes || self.width == Width::Plain {
            // SAFETY: the caller upholds that the ranges are valid and disjoint.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            return;
        }
        let (head, body, tail) = Self::split(to, bytes);
        // SAFETY: the head is a part of the caller's valid, disjoint ranges.
        unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
        // SAFETY: the body is a part of the caller's ranges, in whole lines and steps by `split`.
        unsafe { self.copy_steps(to.wrapping_add(head), from.wrapping_add(head), body) };
        let done = head + body;
        // SAFETY: the tail is the last part of the caller's ranges.
        unsafe {
            std::ptr::copy_nonoverlapping(from.wrapping_add(done), to.wrapping_add(done), tail);
        };
    }

    /// # Safety
    /// As [`fill_streaming`].
    unsafe fn fill(self, to: *mut u8, byte: u8, bytes: usize) {
        if bytes < self.fill_threshold_bytes || self.width == Width::Plain {
            // SAFETY: the caller upholds that the range is valid.
            unsafe { std::ptr::write_bytes(to, byte, bytes) };
            return;
        }
        let (head, body, tail) = Self::split(to, bytes);
        // SAFETY: the head is a part of the caller's valid range.
        unsafe { std::ptr::write_bytes(to, byte, head) };
        // SAFETY: the body is a part of the caller's range, in whole lines and steps by `split`.
        unsafe { self.fill_steps(to.wrapping_add(head), byte, body) };
        // SAFETY: the tail is the last part of the caller's range.
        unsafe { std::ptr::write_bytes(to.wrapping_add(head + body), byte, tail) };
    }

    /// Splits a range into a head up to the first whole line, a body of whole steps, and the tail.
    fn split(to: *mut u8, bytes: usize) -> (usize, usize, usize) {
        let head = (to.addr().wrapping_neg() % Self::LINE_BYTES).min(bytes);
        let body = (bytes - head) / Self::STEP_BYTES * Self::STEP_BYTES;
        (head, body, bytes - head - body)
    }

    /// # Safety
    /// As [`copy_nonoverlapping_streaming`]. `to` is line-aligned, and `bytes` is in whole steps.
    unsafe fn copy_steps(self, to: *mut u8, from: *const u8, bytes: usize) {
        match self.width {
            Width::Plain => unreachable!("plain copies have no steps"),
            // SAFETY: `width` is available (see `Engine`). The caller vouches for the ranges.
            #[cfg(target_arch = "x86_64")]
            Width::Sse2 => unsafe { streaming::copy_sse2(to, from, bytes) },
            // SAFETY: `width` is available (see `Engine`). The caller vouches for the ranges.
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => unsafe { streaming::copy_avx2(to, from, bytes) },
            // SAFETY: `width` is available (see `Engine`). The caller vouches for the ranges.
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => unsafe { streaming::copy_avx512(to, from, bytes) },
        }
    }

    /// # Safety
    /// As [`fill_streaming`]. `to` is line-aligned, and `bytes` is in whole steps.
    unsafe fn fill_steps(self, to: *mut u8, byte: u8, bytes: usize) {
        let byte = byte.cast_signed();
        match self.width {
            Width::Plain => unreachable!("plain fills have no steps"),
            // SAFETY: `width` is available (see `Engine`). The caller vouches for the range.
            #[cfg(target_arch = "x86_64")]
            Width::Sse2 => unsafe { streaming::fill_sse2(to, byte, bytes) },
            // SAFETY: `width` is available (see `Engine`). The caller vouches for the range.
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 | Width::Avx512 => unsafe { streaming::fill_avx2(to, byte, bytes) },
        }
    }
}

/// Loops of streaming stores, one for each width. Each loop ends with a fence.
#[cfg(target_arch = "x86_64")]
mod streaming {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_set1_epi8,
        _mm_sfence, _mm_stream_si128, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_stream_si256,
        _mm512_loadu_si512, _mm512_stream_si512,
    };

    /// Prefetch distance of the copies. Measured: any distance from 1 KiB to 4 KiB is as fast, and
    /// a quarter faster than the hardware prefetcher alone.
    const AHEAD_BYTES: usize = 2048;
    const VECTORS: usize = 4;

    #[inline]
    fn prefetch(line: *const u8) {
        // SAFETY: every 64-bit x86 has SSE; a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }

    #[inline]
    fn fence() {
        // SAFETY: every 64-bit x86 has SSE.
        unsafe { _mm_sfence() };
    }

    macro_rules! copy_loop {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $stream:ident) => {
            /// # Safety
            /// The processor has the feature. The ranges are valid and disjoint. `to` is
            /// line-aligned, and `bytes` is in whole steps.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(to: *mut u8, from: *const u8, bytes: usize) {
                const BYTES: usize = size_of::<$vector>();
                for at in (0..bytes).step_by(VECTORS * BYTES) {
                    for line in (0..VECTORS * BYTES).step_by(super::Engine::LINE_BYTES) {
                        prefetch(from.wrapping_add(at + line + AHEAD_BYTES));
                    }
                    let (to, from) = (to.wrapping_add(at), from.wrapping_add(at));
                    let vectors = [0, 1, 2, 3].map(|index| {
                        // SAFETY: the caller upholds that `from` is readable.
                        unsafe { $load(from.wrapping_add(index * BYTES).cast()) }
                    });
                    for (index, vector) in vectors.into_iter().enumerate() {
                        // SAFETY: the caller upholds that `to` is writable and line-aligned.
                        unsafe { $stream(to.wrapping_add(index * BYTES).cast(), vector) };
                    }
                }
                fence();
            }
        };
    }

    copy_loop!(copy_sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
    copy_loop!(copy_avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
    copy_loop!(copy_avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512);

    macro_rules! fill_loop {
        ($name:ident, $feature:literal, $vector:ty, $set:ident, $stream:ident) => {
            /// # Safety
            /// The processor has the feature. The range is valid. `to` is line-aligned, and
            /// `bytes` is in whole steps.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(to: *mut u8, byte: i8, bytes: usize) {
                const BYTES: usize = size_of::<$vector>();
                let vector = $set(byte);
                for at in (0..bytes).step_by(VECTORS * BYTES) {
                    for index in 0..VECTORS {
                        let to = to.wrapping_add(at + index * BYTES);
                        // SAFETY: the caller upholds that `to` is writable and line-aligned.
                        unsafe { $stream(to.cast(), vector) };
                    }
                }
                fence();
            }
        };
    }

    // There is no AVX-512 variant, because measured fills were no faster than with AVX2.
    fill_loop!(fill_sse2, "sse2", __m128i, _mm_set1_epi8, _mm_stream_si128);
    fill_loop!(fill_avx2, "avx2", __m256i, _mm256_set1_epi8, _mm256_stream_si256);
}

#[cfg(all(test, not(loom), target_os = "linux", target_arch = "x86_64"))]
#[path = "copy_fence_tests.rs"]
mod fence_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const GUARD_BYTES: usize = 128;

    /// Engines that stream from 1 KiB, one for each width of this machine.
    fn engines() -> Vec<Engine> {
        let engine =
            |width| Engine { width, copy_threshold_bytes: 1024, fill_threshold_bytes: 1024 };
        Width::available().into_iter().map(engine).collect()
    }

    /// Sizes around the threshold, the line and the step, and two large ones.
    fn sizes() -> impl Iterator<Item = usize> {
        let near = |size: usize| size.saturating_sub(2)..size + 3;
        (0..4).chain(near(1024)).chain(near(1280)).chain(near(1344)).chain([4096, 9999])
    }

    /// Bytes with a prime period, which shows an offset that is wrong by a power of two.
    fn pattern(bytes: usize) -> Vec<u8> {
        let block: Vec<u8> = (0..4093_u32).map(|index| (index * 40_503).to_be_bytes()[2]).collect();
        let mut pattern = block.repeat(bytes / block.len() + 1);
        pattern.truncate(bytes);
        pattern
    }

    /// Calls `write` on a target between guard bytes, then compares the target and the guard bytes.
    fn check(offset: usize, expected: &[u8], write: impl Fn(*mut u8)) {
        let mut memory = vec![0xA5; offset + expected.len() + 2 * GUARD_BYTES];
        let start = offset + GUARD_BYTES;
        write(memory[start..].as_mut_ptr());
        assert!(memory[..start] == vec![0xA5; start], "written before the target");
        let end = start + expected.len();
        assert!(memory[end..].iter().all(|byte| *byte == 0xA5), "written behind the target");
        assert!(memory[start..end] == *expected, "{} bytes at {offset}", expected.len());
    }

    #[test]
    fn copies_of_every_size_and_alignment_move_exactly_their_bytes() {
        let source = pattern(20_000);
        for engine in engines() {
            for bytes in sizes() {
                for to_offset in 0..64 {
                    let from_offset = to_offset * 7 % 64;
                    let from = &source[from_offset..from_offset + bytes];
                    check(to_offset, from, |to| {
                        // SAFETY: `from` and `to` are separate allocations of at least `bytes`.
                        unsafe { engine.copy(to, from.as_ptr(), bytes) }
                    });
                }
            }
        }
    }

    #[test]
    fn fills_of_every_size_and_alignment_write_exactly_their_bytes() {
        for engine in engines() {
            for bytes in sizes() {
                for offset in 0..64 {
                    check(offset, &vec![0xC3; bytes], |to| {
                        // SAFETY: `to` is writable for at least `bytes`.
                        unsafe { engine.fill(to, 0xC3, bytes) }
                    });
                }
            }
        }
    }

    #[test]
    fn the_machines_own_engine_copies_and_fills_around_its_thresholds() {
        let engine = Engine::get();
        for threshold in [engine.copy_threshold_bytes, engine.fill_threshold_bytes] {
            for bytes in [threshold - 1, threshold, threshold + 321] {
                let source = pattern(bytes);
                check(13, &source, |to| {
                    // SAFETY: `source` and `to` are separate allocations of at least `bytes`.
                    unsafe { copy_nonoverlapping_streaming(to, source.as_ptr(), bytes) }
                });
                check(13, &vec![7; bytes], |to| {
                    // SAFETY: `to` is writable for at least `bytes`.
                    unsafe { fill_streaming(to, 7, bytes) }
                });
            }
        }
    }

    #[test]
    fn thresholds_follow_the_last_cache_within_bounds() {
        let width = *Width::available().last().unwrap();
        let thresholds = |cache_bytes| {
            let engine = Engine::for_cache(width, cache_bytes);
            (engine.copy_threshold_bytes / MIB, engine.fill_threshold_bytes / MIB)
        };
        assert_eq!(thresholds(Some(32 * MIB)), (16, 32));
        assert_eq!(thresholds(Some(1)), (4, 8));
        assert_eq!(thresholds(Some(usize::MAX)), (32, 64));
        assert_eq!(thresholds(None), (16, 32));
    }
}
