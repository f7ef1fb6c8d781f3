//! System calls that map, commit, move and unmap pages of this process.
//!
//! *Committed* pages are readable and writable, and huge where the kernel supports it.
//! *Inaccessible* pages only reserve addresses. `MADV_DONTDUMP` flags them in the kernel's table,
//! which distinguishes them from mappings of other code.
//!
//! The owner of a range may replace its mappings with `MAP_FIXED`. The unsafe functions of this
//! file require that the caller owns the range and that nothing uses it.
#![expect(unsafe_code, reason = "maps, moves and unmaps pages by system calls")]

use std::io::BufRead;
use std::sync::OnceLock;

use libc::{c_int, c_void};

use super::reservation::{Refusal, Span};
use crate::base::size::MIB;

/// Alignment and minimum size of huge pages.
pub(super) const HUGE_PAGE_BYTES: usize = 2 * MIB;

/// Converts the base of a span for system calls. This process never dereferences the pointer.
fn pointer(span: Span) -> *mut c_void {
    std::ptr::without_provenance_mut(span.base)
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: the call has no pre-condition, and only reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Maps readable and writable pages at a multiple of `align_bytes`, a power of two.
pub(super) fn map_committed(bytes: usize, align_bytes: usize) -> Result<Span, Refusal> {
    let span = map_aligned(bytes, align_bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
    advise(span, libc::MADV_HUGEPAGE);
    Ok(span)
}

/// Reserves addresses, as inaccessible pages, at a multiple of `align_bytes`, a power of two.
pub(super) fn reserve(bytes: usize, align_bytes: usize) -> Result<Span, Refusal> {
    let span = map_aligned(bytes, align_bytes, libc::PROT_NONE, libc::MAP_NORESERVE)?;
    advise(span, libc::MADV_DONTDUMP);
    Ok(span)
}

fn map_aligned(bytes: usize, align: usize, access: c_int, flags: c_int) -> Result<Span, Refusal> {
    let too_large = Refusal { call: "mmap", code: libc::ENOMEM };
    let page_bytes = page_bytes();
    let bytes = bytes.checked_next_multiple_of(page_bytes).ok_or(too_large)?;
    // Tries the exact size first, because newer kernels align large mappings to huge pages.
    let exact = map_anywhere(bytes, access, flags)?;
    if exact.base.is_multiple_of(align) {
        return Ok(exact);
    }
    // SAFETY: newly mapped and not published: only this call uses the pages.
    unsafe { unmap(exact) }?;
    let wide = map_anywhere(bytes.checked_add(align).ok_or(too_large)?, access, flags)?;
    let span = Span { base: wide.base.next_multiple_of(align), bytes };
    let before = Span { base: wide.base, bytes: span.base - wide.base };
    let behind = Span { base: span.end(), bytes: wide.end() - span.end() };
    for rest in [before, behind] {
        // SAFETY: newly mapped and not published: only this call uses the pages.
        if let Err(refusal) = unsafe { unmap(rest) } {
            // SAFETY: newly mapped and not published. The call leaves out the range before `span`,
            // which may be unmapped already.
            let _ = unsafe { unmap(Span { base: span.base, bytes: wide.end() - span.base }) };
            return Err(refusal);
        }
    }
    Ok(span)
}

fn map_anywhere(bytes: usize, access: c_int, flags: c_int) -> Result<Span, Refusal> {
    // SAFETY: the kernel chooses vacant addresses.
    let base = unsafe { map_at(Span { base: 0, bytes }, access, flags) }?;
    // Exposes the provenance, because users recreate pointers from the address.
    Ok(Span { base: base.expose_provenance(), bytes })
}

/// Maps new pages. Without `MAP_FIXED` or `MAP_FIXED_NOREPLACE`, the base of `span` is a hint.
///
/// # Safety
/// With `MAP_FIXED` among the flags, the caller owns `span`.
unsafe fn map_at(span: Span, access: c_int, flags: c_int) -> Result<*mut c_void, Refusal> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mut base = libc::MAP_FAILED;
    system_call("mmap", || {
        // SAFETY: replaces only pages that the caller owns.
        base = unsafe { libc::mmap(pointer(span), span.bytes, access, flags, -1, 0) };
        base != libc::MAP_FAILED
    })?;
    assert!(
        span.base == 0 || base.addr() == span.base,
        "a fixed mapping is where it was asked for"
    );
    Ok(base)
}

/// Unmaps pages. An empty span needs no call.
///
/// # Safety
/// The caller owns every mapping in `span`, and nothing uses the pages any more.
pub(super) unsafe fn unmap(span: Span) -> Result<(), Refusal> {
    if span.bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller upholds that it owns the pages and that nothing uses them.
    system_call("munmap", || unsafe { libc::munmap(pointer(span), span.bytes) } == 0)
}

/// Frees the resident memory of committed pages. The pages then read as zero.
///
/// # Safety
/// The caller owns the committed pages of `span` and no longer needs their contents.
pub(super) unsafe fn discard(span: Span) {
    // SAFETY: the caller owns the pages and no longer needs their contents. The call cannot fail.
    unsafe { libc::madvise(pointer(span), span.bytes, libc::MADV_DONTNEED) };
}

/// Makes inaccessible pages readable and writable. A failure may leave some of them writable.
///
/// # Safety
/// The caller owns the pages of `span`.
pub(super) unsafe fn commit(span: Span) -> Result<(), Refusal> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller owns the pages.
    system_call("mprotect", || unsafe { libc::mprotect(pointer(span), span.bytes, access) } == 0)?;
    advise(span, libc::MADV_DODUMP);
    advise(span, libc::MADV_HUGEPAGE);
    Ok(())
}

/// Makes pages inaccessible and drops their contents. After a failure, the caller still owns them.
///
/// Maps new pages over the old ones. Their attributes are new too, so the kernel can merge them
/// with inaccessible neighbours. If the kernel refuses the mapping, the old pages are still there;
/// this function then revokes the access to them and returns their memory.
///
/// # Safety
/// The caller owns the pages of `span`, and nothing uses them any more.
pub(super) unsafe fn decommit(span: Span) -> Result<(), Refusal> {
    let (access, flags) = (libc::PROT_NONE, libc::MAP_NORESERVE | libc::MAP_FIXED);
    // SAFETY: `MAP_FIXED` replaces only pages that the caller owns.
    let mapped = unsafe { map_at(span, access, flags) };
    if let Err(refusal) = mapped {
        // SAFETY: the caller owns the pages, and nothing uses their contents any more.
        unsafe { discard(span) };
        // SAFETY: the caller owns the pages.
        let protect = || unsafe { libc::mprotect(pointer(span), span.bytes, access) } == 0;
        system_call("mprotect", protect).map_err(|_| refusal)?;
    }
    advise(span, libc::MADV_DONTDUMP);
    Ok(())
}

/// Moves committed pages with their contents. With `keeps_range`, the old addresses stay mapped,
/// committed and empty; without, the kernel unmaps them. After a failure the pages are at `from`,
/// but the range at `to` may be lost: see [`reclaim`].
///
/// A user's `madvise` may have split the pages into several mappings. Older kernels then fail.
/// Newer kernels move one mapping at a time; after a failure, the first mappings may be at `to`.
///
/// # Safety
/// The caller owns `from` and the range of the same size at `to`. The ranges do not overlap, and
/// nothing uses them.
pub(super) unsafe fn move_pages(from: Span, to: usize, keeps_range: bool) -> Result<(), Refusal> {
    let keeping = if keeps_range { libc::MREMAP_DONTUNMAP } else { 0 };
    let flags = keeping | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let to: *mut c_void = std::ptr::without_provenance_mut(to);
    system_call("mremap", || {
        // SAFETY: replaces the pages at `to` and moves those of `from`; the caller owns both.
        let base = unsafe { libc::mremap(pointer(from), from.bytes, from.bytes, flags, to) };
        base != libc::MAP_FAILED
    })
}

/// Reserves `span`, the target of a failed move, again. False when other pages are there.
///
/// The kernel may unmap the target of a move and then fail. Other code may have mapped pages there
/// since; this function never replaces them.
pub(super) fn reclaim(span: Span) -> bool {
    let (access, flags) = (libc::PROT_NONE, libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: without `MAP_FIXED`, the call maps only vacant addresses.
    if unsafe { map_at(span, access, flags) }.is_ok() {
        advise(span, libc::MADV_DONTDUMP);
        return true;
    }
    is_inaccessible(span)
}

/// True when the kernel lists all of `span` as inaccessible pages that this file has mapped.
pub(super) fn is_inaccessible(span: Span) -> bool {
    let table = std::fs::File::open("/proc/self/smaps");
    table.is_ok_and(|table| is_inaccessible_in(std::io::BufReader::new(table), span))
}

/// Parses `table`, the text of `/proc/self/smaps`. True when it lists all of `span` as inaccessible
/// and flagged: such an entry begins `1000-2000 ---p …` and has a line `VmFlags: … dd …`.
fn is_inaccessible_in(table: impl BufRead, span: Span) -> bool {
    let mut next = span.base;
    let mut entry: Option<(usize, usize, bool)> = None;
    for line in table.lines().map_while(Result::ok) {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let Some((start, end, has_no_access)) = entry.take() else { return false };
            if start > next {
                return false;
            }
            if end > next {
                if !has_no_access || !flags.split_whitespace().any(|flag| flag == "dd") {
                    return false;
                }
                next = end;
            }
            if next >= span.end() {
                return true;
            }
        } else if let Some((start, rest)) = line.split_once('-')
            && let Some((end, rest)) = rest.split_once(' ')
            && let Ok(start) = usize::from_str_radix(start, 16)
            && let Ok(end) = usize::from_str_radix(end, 16)
        {
            entry = Some((start, end, rest.starts_with("---p ")));
        }
    }
    false
}

/// True when this kernel can move pages and keep the old addresses mapped (Linux 5.7).
pub(super) fn can_move_pages() -> bool {
    static CAN_MOVE: OnceLock<bool> = OnceLock::new();
    *CAN_MOVE.get_or_init(|| {
        let page_bytes = page_bytes();
        let Ok(both) = map_anywhere(2 * page_bytes, libc::PROT_READ, 0) else { return false };
        let from = Span { base: both.base, bytes: page_bytes };
        // SAFETY: newly mapped and not published: only this call uses the pages.
        let can = unsafe { move_pages(from, both.base + page_bytes, true) }.is_ok();
        // Both pages are mapped: a kernel without `MREMAP_DONTUNMAP` fails before it unmaps any.
        // SAFETY: newly mapped and not published: only this call uses the pages.
        let unmapped = unsafe { unmap(both) };
        can && unmapped.is_ok()
    })
}

/// Advises the kernel about owned pages. Ignores the result: rejected advice changes no contents.
fn advise(span: Span, advice: c_int) {
    let is_harmless = [libc::MADV_HUGEPAGE, libc::MADV_DONTDUMP, libc::MADV_DODUMP];
    assert!(is_harmless.contains(&advice), "advice {advice} may change contents");
    // SAFETY: the advice changes no contents, as asserted above.
    unsafe { libc::madvise(pointer(span), span.bytes, advice) };
}

/// Runs `make`, which makes a system call; false fails with `errno`. Tests can plan a failure.
fn system_call(call: &'static str, make: impl FnOnce() -> bool) -> Result<(), Refusal> {
    #[cfg(all(test, not(loom)))]
    if super::faults::should_fail() {
        return Err(Refusal { call, code: libc::ENOMEM });
    }
    if make() {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Err(Refusal { call, code })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bytes_of(span: Span) -> &'static mut [u8] {
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(span.base);
        // SAFETY: committed pages of the calling test, which holds one such slice at a time.
        unsafe { std::slice::from_raw_parts_mut(pointer, span.bytes) }
    }

    #[test]
    fn pages_have_any_alignment_and_the_surplus_is_unmapped() {
        for align in [page_bytes(), HUGE_PAGE_BYTES, 64 * MIB] {
            let span = map_committed(3 * page_bytes() - 1, align).unwrap();
            assert_eq!((span.base % align, span.bytes), (0, 3 * page_bytes()));
            bytes_of(span).fill(1);
            // SAFETY: mapped above; the slice is no longer used.
            unsafe { unmap(span) }.unwrap();
        }
        for (bytes, align) in [(usize::MAX, 4096), (1 << 60, 4096), (4096, 1 << 63)] {
            assert_eq!(map_committed(bytes, align).unwrap_err().code, libc::ENOMEM);
        }
    }

    /// The size of this process's address space in bytes.
    fn mapped_bytes() -> usize {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').next().unwrap().parse::<usize>().unwrap() * page_bytes()
    }

    #[test]
    fn aligned_spans_leave_nothing_else_mapped() {
        // Goal: the surplus on both sides of an aligned span is unmapped. Method: the surplus of
        // 64 spans would be 64 GiB, far more than the threads of other tests map meanwhile.
        const ALIGN: usize = 1 << 30;
        type Map = fn(usize, usize) -> Result<Span, Refusal>;
        for map in [map_committed as Map, reserve as Map] {
            let before = mapped_bytes();
            let spans: Vec<_> = (0..64).map(|_| map(page_bytes(), ALIGN).unwrap()).collect();
            let growth = mapped_bytes().saturating_sub(before);
            for span in spans {
                assert_eq!((span.base % ALIGN, span.bytes), (0, page_bytes()));
                // SAFETY: mapped above, and never used.
                unsafe { unmap(span) }.unwrap();
            }
            assert!(growth < 8 * ALIGN, "{growth} bytes are mapped for 64 pages");
        }
    }

    #[test]
    fn moved_pages_retain_their_contents_and_closed_pages_are_recognised() {
        let range = reserve(2 * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        let [low, high] = [0, 1]
            .map(|at| Span { base: range.base + at * HUGE_PAGE_BYTES, bytes: range.bytes / 2 });
        assert!(is_inaccessible(range));
        // SAFETY: mapped above, and not used yet.
        unsafe { commit(low) }.unwrap();
        assert!(!is_inaccessible(range) && !is_inaccessible(low) && is_inaccessible(high));
        bytes_of(low).fill(7);
        assert!(can_move_pages());
        // SAFETY: two halves of the range above, and no slice of them is in use.
        unsafe { move_pages(low, high.base, true) }.unwrap();
        assert!(bytes_of(high).iter().all(|byte| *byte == 7));
        assert!(bytes_of(low).iter().all(|byte| *byte == 0));
        // SAFETY: part of the range above, and no slice of it is in use.
        unsafe { decommit(low) }.unwrap();
        assert!(is_inaccessible(low) && reclaim(low) && !is_inaccessible(high));
        // SAFETY: two halves of the range above, and no slice of them is in use.
        unsafe { move_pages(high, low.base, false) }.unwrap();
        assert!(bytes_of(low).iter().all(|byte| *byte == 7));
        assert!(!reclaim(low), "committed pages are not what a refused move leaves");
        // The old addresses are vacant now, so another test may have mapped pages there.
        let is_reclaimed = reclaim(high);
        assert!(!is_reclaimed || is_inaccessible(high));
        for span in [Some(low), is_reclaimed.then_some(high)].into_iter().flatten() {
            // SAFETY: the test owns these pages, and no slice of them is in use.
            unsafe { unmap(span) }.unwrap();
        }
    }

    #[test]
    fn malformed_kernel_tables_are_not_closed() {
        let span = Span { base: 0x3000, bytes: 0x2000 };
        let inaccessible_in = |table: &str| is_inaccessible_in(table.as_bytes(), span);
        let low = "1000-4000 ---p 00000000 00:00 0 \nRss: 0 kB\nVmFlags: mr mw dd nr \n";
        let high = "4000-6000 ---p 00000000 00:00 0 \nRss: 0 kB\nVmFlags: mr dd\n";
        assert!(inaccessible_in(&format!("{low}{high}")));
        assert!(
            !inaccessible_in(low)
                && !inaccessible_in(high)
                && !inaccessible_in("")
                && !inaccessible_in("VmFlags: dd")
        );
        assert!(!inaccessible_in(&format!("{low}{}", high.replace("---p", "rw-p"))));
        assert!(!inaccessible_in(&format!("{low}{}", high.replace(" dd", ""))));
        assert!(!inaccessible_in(&format!("{low}{}", high.replace("4000-", "5000-"))));
    }
}
