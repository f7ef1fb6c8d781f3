//! The heap that allocators use themselves (A12, and A4's): bytes a live block, calls a buffer.
#![expect(unsafe_code, reason = "stands in front of the program's allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use accelrt::{Device, Runtime};

use super::model::{MODEL, Model};
use super::pairs::Churn;
use super::{Memory, Numbers, Size, accounting};
use crate::measure::{Figure, number};
use crate::table::Table;

/// The system's allocator, with its calls counted where that is asked for.
pub(crate) struct Counting;

// Relaxed, all of them: one thread works while something is counted.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicIsize = AtomicIsize::new(0);

fn note(calls: usize, bytes: usize, freed_bytes: usize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        CALLS.fetch_add(calls, Ordering::Relaxed);
        BYTES.fetch_add(bytes.cast_signed() - freed_bytes.cast_signed(), Ordering::Relaxed);
    }
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(1, bytes, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Calls of the heap while `work` ran, and bytes that it has more afterwards.
fn counted(work: impl FnOnce()) -> (usize, isize) {
    CALLS.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Relaxed);
    work();
    IS_COUNTING.store(false, Ordering::Relaxed);
    (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// A12: the heap that live blocks take, without the array that names them.
pub(super) fn measure(table: &mut Table) -> io::Result<()> {
    let sizes: [(&str, usize, Size); 2] =
        [("A12", 1_000_000, small), ("A12.other", 200_000, other)];
    for (name, blocks, size) in sizes {
        let (ours, model) = (accounting(), Model::new());
        let of_ours = bytes_per_block(&ours, blocks, size);
        let of_model = bytes_per_block(&model, blocks, size);
        let peer = (MODEL, Some(Figure::exact(of_model)));
        table.row_in("bytes", name, Figure::exact(of_ours))?;
        table.against_in("bytes", &format!("{name}.model"), Figure::exact(of_ours), peer)?;
    }
    Ok(())
}

fn small(_: &mut Numbers) -> usize {
    512
}

/// Above 32 KiB, up to a mebibyte.
fn other(numbers: &mut Numbers) -> usize {
    512 * (65 + numbers.below(1_983))
}

fn bytes_per_block(memory: &impl Memory, blocks: usize, size: Size) -> f64 {
    let mut churn = None;
    let (_, bytes) = counted(|| churn = Some(Churn::new(memory, blocks, size)));
    let names_bytes = churn.as_ref().map_or(0, Churn::names_bytes);
    number(bytes.unsigned_abs().saturating_sub(names_bytes)) / number(blocks)
}

/// A4: calls of the heap for a buffer of the process's runtime and its drop.
pub(super) fn measure_heap(_: &Runtime, table: &mut Table) -> io::Result<()> {
    const BUFFERS: usize = 1_000;
    let runtime = Runtime::global().expect("the settings are right");
    let make = || (0..BUFFERS).for_each(|_| drop(runtime.empty(512, Device::cpu(0))));
    make(); // the memory, and what the thread keeps
    let (calls, _) = counted(make);
    table.row_in("calls", "A4.heap", Figure::exact(number(calls) / number(BUFFERS)))
}
