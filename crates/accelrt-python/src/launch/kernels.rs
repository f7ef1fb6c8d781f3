//! The demo's native functions: a checksum for each page, and a byte lookup table.
#![expect(unsafe_code, reason = "native functions are given addresses")]

use std::slice;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

const PAGE_BYTES: usize = 4096;

/// The polynomial of the CRC-32 in zlib, gzip and PNG, reflected (ISO 3309).
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The lookup table of CRC-32: the remainder of each byte value.
const REMAINDERS: [u32; 256] = {
    let mut table = [0_u32; 256];
    let mut value = 0_u32;
    while value < 256 {
        let mut remainder = value;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ (POLYNOMIAL * (remainder & 1));
            bit += 1;
        }
        table[value as usize] = remainder;
        value += 1;
    }
    table
};

/// Splits `count` bytes into pages, and writes the CRC-32 of each. The last page may be shorter.
extern "C" fn crc32_pages(bytes: *const u8, count: usize, checksums: *mut u32) {
    // SAFETY: the launch's caller passes `count` readable bytes. Stream order prevents writes
    // during the call.
    let bytes = unsafe { slice::from_raw_parts(bytes, count) };
    // SAFETY: the launch's caller passes one aligned number per page. Stream order prevents other
    // accesses during the call.
    let checksums = unsafe { slice::from_raw_parts_mut(checksums, count.div_ceil(PAGE_BYTES)) };
    for (checksum, page) in checksums.iter_mut().zip(bytes.chunks(PAGE_BYTES)) {
        *checksum = !page.iter().fold(!0, |remainder, byte| {
            let [low, ..] = remainder.to_le_bytes();
            (remainder >> 8) ^ REMAINDERS[usize::from(low ^ byte)]
        });
    }
}

/// Looks up each of `count` bytes in a table of 256 bytes, and writes the entries to `found`.
extern "C" fn look_up_bytes(bytes: *const u8, count: usize, table: *const u8, found: *mut u8) {
    // SAFETY: the launch's caller passes `count` readable bytes, not written during the call.
    let bytes = unsafe { slice::from_raw_parts(bytes, count) };
    // SAFETY: the launch's caller passes 256 readable bytes, not written during the call.
    let table = unsafe { slice::from_raw_parts(table, 256) };
    // SAFETY: the launch's caller passes `count` writable bytes, not accessed otherwise during the
    // call.
    let found = unsafe { slice::from_raw_parts_mut(found, count) };
    for (found, byte) in found.iter_mut().zip(bytes) {
        *found = table[usize::from(*byte)];
    }
}

/// The address of one of accelrt's native functions, for `Stream.launch`.
#[pyfunction]
pub(crate) fn kernel_address(name: &str) -> PyResult<usize> {
    match name {
        "crc32_pages" => Ok(crc32_pages as *const () as usize),
        "look_up_bytes" => Ok(look_up_bytes as *const () as usize),
        _ => Err(PyKeyError::new_err(format!(
            "there is no kernel {name:?}: there are 'crc32_pages' and 'look_up_bytes'"
        ))),
    }
}
