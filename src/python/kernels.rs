//! Native kernels of the demo: a byte histogram and a transform of bytes to floats.
#![expect(unsafe_code, reason = "native functions are given addresses")]

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

/// Adds how often each byte value occurs in `count` bytes to 256 numbers.
extern "C" fn byte_histogram(bytes: *const u8, count: usize, counts: *mut u64) {
    // SAFETY: the caller of a native function gives valid ranges: `count` bytes to read, which no
    // task writes meanwhile, in stream order.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    // SAFETY: as above, 256 aligned numbers that nobody else touches meanwhile.
    let counts = unsafe { std::slice::from_raw_parts_mut(counts, 256) };
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
}

/// Writes each of `count` bytes as a float from -1 up to 1, exactly: so do kernels of other kinds.
extern "C" fn bytes_to_floats(bytes: *const u8, count: usize, floats: *mut f32) {
    // SAFETY: as in `byte_histogram`.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    // SAFETY: as in `byte_histogram`: `count` aligned floats.
    let floats = unsafe { std::slice::from_raw_parts_mut(floats, count) };
    for (float, byte) in floats.iter_mut().zip(bytes) {
        *float = f32::from(*byte) / 128.0 - 1.0;
    }
}

/// Address of a native kernel of ours, for `Stream.launch`.
#[pyfunction]
pub(super) fn kernel_address(name: &str) -> PyResult<usize> {
    match name {
        "byte_histogram" => Ok(byte_histogram as *const () as usize),
        "bytes_to_floats" => Ok(bytes_to_floats as *const () as usize),
        _ => Err(PyKeyError::new_err(format!(
            "there is no kernel {name:?}: there are 'byte_histogram' and 'bytes_to_floats'"
        ))),
    }
}
