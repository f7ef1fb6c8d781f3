//! oneMKL's pointers to memory functions, and a probe that makes oneMKL call them.
//!
//! `libmkl_rt` has its own pointers, and loads `libmkl_core` at its first call. oneMKL uses the
//! core's pointers, unless the loader's global scope already contained `libmkl_rt`. This file sets
//! the pointers of every loaded library. The core reads its pointers once, at its first allocation.
#![expect(unsafe_code, reason = "accesses symbols found at run time")]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use accelrt::internal::dylib::{FoundLibrary, Library, LoadedLibraries};
use accelrt::size::to_usize;

/// oneMKL's names of the pointers. A library that exports the first name exports all four.
const NAMES: [&str; 4] = ["i_malloc", "i_calloc", "i_realloc", "i_free"];

pub(super) struct Pointers([&'static AtomicPtr<c_void>; 4]);

impl Pointers {
    pub(super) fn in_loaded_copies() -> Vec<Self> {
        let found = LoadedLibraries::now().definitions(NAMES[0]);
        found.iter().filter_map(|one| Self::of(one.library)).collect()
    }

    fn of(library: Library) -> Option<Self> {
        let place = |name| {
            let address = library.symbol(name)?.cast::<*mut c_void>();
            // SAFETY: oneMKL's variables of these names are aligned pointers, which oneMKL reads as
            // single words. They live as long as the library, which is never closed.
            Some(unsafe { AtomicPtr::from_ptr(address.as_ptr()) })
        };
        let [malloc, calloc, realloc, free] = NAMES.map(place);
        Some(Self([malloc?, calloc?, realloc?, free?]))
    }

    pub(super) fn read(&self) -> [*mut c_void; 4] {
        // Relaxed, here and below: the functions exist before any store of their addresses.
        self.0.map(|place| place.load(Ordering::Relaxed))
    }

    pub(super) fn write(&self, functions: [*mut c_void; 4]) {
        for (place, function) in self.0.iter().zip(functions) {
            place.store(function, Ordering::Relaxed);
        }
    }
}

/// Rows and columns of the probe's matrices. The product allocates memory and takes milliseconds.
const PROBE_ROW_COUNT: i64 = 320;

/// `cblas_dgemm`. Its integers have 32 or 64 bits, depending on oneMKL's interface. The calling
/// convention passes small numbers of both types in the same way.
type Gemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    i64,
    i64,
    i64,
    f64,
    *const f64,
    i64,
    *const f64,
    i64,
    f64,
    *mut f64,
    i64,
);

/// The functions that a probe calls, of one copy of oneMKL.
pub(super) struct Probe {
    gemm: NonNull<c_void>,
    free_buffers: Option<NonNull<c_void>>,
}

impl Probe {
    pub(super) fn of(found: &FoundLibrary) -> Option<Self> {
        let gemm = found.library.symbol("cblas_dgemm")?;
        Some(Self { gemm, free_buffers: found.library.symbol("MKL_Free_Buffers") })
    }

    /// Makes oneMKL free its unused memory, then multiplies two zero matrices, which allocates.
    pub(super) fn run(&self) {
        if let Some(function) = self.free_buffers {
            // SAFETY: oneMKL's function of this name has this type in every version.
            let free_buffers =
                unsafe { transmute::<NonNull<c_void>, unsafe extern "C" fn()>(function) };
            // SAFETY: any thread may call `MKL_Free_Buffers`, which frees only unused memory.
            unsafe { free_buffers() };
        }
        // SAFETY: `cblas_dgemm` has the type `Gemm`, whose documentation explains the integers.
        let gemm = unsafe { transmute::<NonNull<c_void>, Gemm>(self.gemm) };
        let [a, b, mut c] = [(); 3]
            .map(|()| vec![0.0; to_usize((PROBE_ROW_COUNT * PROBE_ROW_COUNT).unsigned_abs())]);
        let (row_major, plain, n) = (101, 111, PROBE_ROW_COUNT);
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: three square matrices of that many rows; only this call uses the third one.
        unsafe { gemm(row_major, plain, plain, n, n, n, 1.0, a, n, b, n, 0.0, c, n) };
    }
}
