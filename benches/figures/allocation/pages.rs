//! Pages of the cpu device (A13, A14): the first touch of fresh ones, and moving resident ones.
#![expect(unsafe_code, reason = "touches memory by its address, and maps some beside the product")]

use std::fs;
use std::io;
use std::ptr;
use std::time::Instant;

use accelrt::allocator::{CachingAllocator, Request};
use accelrt::backend::contract::{Address, Backend, VirtualMemory};
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, Device, Runtime};

use super::{PAGE_BYTES, settings};
use crate::measure::{Figure, in_turns, ns_each};
use crate::table::Table;
use accelrt_testing::trusted::TrustedPages;

const BLOCKS: usize = 32;
const SMALL_PAGE_BYTES: usize = 4 << 10;
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub(super) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    if fs::read_to_string(HUGE_PAGES).map_or(true, |text| text.contains("[never]")) {
        for row in ["A13", "A13.huge", "A13.kernel"] {
            table.unmeasured(row, "huge pages are not enabled")?;
        }
    } else {
        let mut of_kernel = Vec::new();
        let [ours, small, huge] = in_turns([
            &mut |watch| {
                watch.once(|| {
                    let [first_ns, again_ns] = touches_ns(runtime);
                    of_kernel.push(100.0 * (1.0 - again_ns / first_ns));
                    first_ns
                })
            },
            &mut |watch| watch.once(|| mapping_ns(libc::MADV_NOHUGEPAGE, false)),
            &mut |watch| watch.once(|| mapping_ns(libc::MADV_HUGEPAGE, false)),
        ]);
        table.against("A13", ours, ("4 KiB pages", Some(small)))?;
        table.against("A13.huge", ours, ("huge pages", Some(huge)))?;
        table.row_in("%", "A13.kernel", Figure::of(of_kernel))?;
    }
    let cpu = CpuBackend::new(&Config::default()).expect("the default settings are right");
    let Some(pages) = cpu.virtual_memory(0) else {
        return table.unmeasured("A14", "the device has no virtual memory");
    };
    let [moved, refault] =
        in_turns([&mut |watch| watch.once(|| moved_ns(TrustedPages(pages))), &mut |watch| {
            watch.once(|| mapping_ns(libc::MADV_NOHUGEPAGE, true))
        }]);
    table.against("A14", moved, ("give back, fault again", Some(refault)))
}

/// Writes one byte of each small page.
fn touch(address: u64, bytes: usize) {
    let first = usize::try_from(address).expect("an address of the host");
    for offset in (0..bytes).step_by(SMALL_PAGE_BYTES) {
        let place = ptr::with_exposed_provenance_mut::<u8>(first + offset);
        // SAFETY: the callers' memory, which nothing else uses.
        unsafe { place.write_volatile(1) };
    }
}

/// Per 2 MiB that nobody has touched before, from a new allocator; and the same once more, where
/// the kernel has nothing to do.
fn touches_ns(runtime: &Runtime) -> [f64; 2] {
    let allocator: CachingAllocator =
        runtime.separate_allocator(Device::cpu(0), settings()).expect("an allocator");
    let request = Request::new(PAGE_BYTES, 0);
    let blocks = [(); BLOCKS].map(|()| allocator.allocate(request).expect("memory"));
    let times = [(); 2].map(|()| {
        let started = Instant::now();
        for block in &blocks {
            touch(block.address(), PAGE_BYTES);
        }
        ns_each(started.elapsed(), BLOCKS)
    });
    for block in blocks {
        allocator.free(block).expect("it is its own");
    }
    times
}

/// Per 2 MiB of a mapping of the bench's own with this advice: their first touch, or giving
/// resident ones back and touching them.
fn mapping_ns(advice: libc::c_int, is_resident: bool) -> f64 {
    let bytes = (BLOCKS + 1) * PAGE_BYTES; // one more, as it begins anywhere
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, wherever there is room.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "there is memory");
    let address = (mapped.expose_provenance() as u64).next_multiple_of(PAGE_BYTES as u64);
    // SAFETY: the mapping that was just made.
    unsafe { libc::madvise(mapped, bytes, advice) };
    if is_resident {
        touch(address, BLOCKS * PAGE_BYTES);
    }
    let started = Instant::now();
    if is_resident {
        // SAFETY: as above; nobody has use for the contents.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTNEED) };
    }
    touch(address, BLOCKS * PAGE_BYTES);
    let ns = ns_each(started.elapsed(), BLOCKS);
    // SAFETY: as above, and nothing points there any more.
    unsafe { libc::munmap(mapped, bytes) };
    ns
}

/// Per resident 2 MiB that moves into another range.
fn moved_ns(pages: TrustedPages<&dyn VirtualMemory>) -> f64 {
    let page_bytes = pages.granularity_bytes();
    let bytes = BLOCKS * page_bytes;
    let [from, to] = [(); 2].map(|()| pages.reserve(bytes).expect("addresses"));
    let at = |range: Address, place: usize| range.offset(place * page_bytes);
    let physical: Vec<_> = (0..BLOCKS)
        .map(|place| {
            let physical = pages.create(page_bytes).expect("memory");
            pages.map(at(from, place), physical).expect("a mapping");
            touch(at(from, place).0, page_bytes);
            physical
        })
        .collect();
    let started = Instant::now();
    for (place, page) in physical.iter().enumerate() {
        // In another order: neighbours do not stay neighbours.
        pages.relocate(*page, at(to, place * 5 % BLOCKS)).expect("a move");
    }
    let ns = ns_each(started.elapsed(), BLOCKS);
    for page in physical {
        pages.unmap(page).expect("it is mapped");
        pages.release(page).expect("it is there");
    }
    for range in [from, to] {
        pages.unreserve(range, bytes).expect("it is empty");
    }
    ns
}
