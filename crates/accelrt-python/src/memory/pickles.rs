//! Refuses broken pickles that would make Python's unpickler allocate too much memory.
//!
//! The unpickler stores its memo in an array, which a single opcode can extend to any length. It
//! also allocates the bytes that an opcode announces before it reads them, even if the file is
//! shorter.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use pyo3::prelude::*;

/// The maximum by which an index of the memo may exceed the number of objects in the memo.
const MAX_SKIPPED_INDICES: u64 = 1 << 16;
/// The number of bytes of a line that the scan reads as an index of the memo. A valid index has
/// fewer digits.
const MAX_INDEX_BYTES: usize = 32;

const EXHAUSTED: &str = "pickle exhausted before end of frame";
const TRUNCATED: &str = "pickle data was truncated";

/// Returns the reason why the pickle in a regular file must not be loaded, or None. Finds only
/// faults by which the unpickler could take too much memory. The unpickler reports other faults.
#[pyfunction]
pub(crate) fn find_pickle_fault(py: Python<'_>, path: PathBuf) -> PyResult<Option<String>> {
    Ok(py.detach(|| {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        fault(BufReader::with_capacity(1 << 16, file), bytes)
    })?)
}

/// As [`find_pickle_fault`], for a pickle of a number of bytes.
fn fault(input: impl BufRead, bytes: u64) -> io::Result<Option<String>> {
    let mut scan = Scan { input, position: 0, bytes, frame_end: None, num_memoized: 0 };
    loop {
        match scan.step() {
            Ok(()) => {}
            Err(End::Here) => return Ok(None),
            Err(End::Fault(reason)) => return Ok(Some(reason)),
            Err(End::Failed(error)) => return Err(error),
        }
    }
}

struct Scan<R> {
    input: R,
    position: u64,
    bytes: u64,
    /// The end of the current frame, which no argument may cross. The unpickler would discard the
    /// rest of the frame, and then read from another position than this scan.
    frame_end: Option<u64>,
    num_memoized: u64,
}

enum End {
    /// The pickle ends, or the unpickler fails at this place.
    Here,
    Fault(String),
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// The length of an opcode's argument, for opcodes that always have the same.
fn fixed_length(opcode: u8) -> Option<u64> {
    Some(match opcode {
        0x81 | 0x85..=0x89 | 0x8f..=0x93 | 0x97 | 0x98 => 0,
        _ if b"()012NQR]abdelostu}".contains(&opcode) => 0,
        b'K' | b'h' | 0x80 | 0x82 => 1,
        b'M' | 0x83 => 2,
        b'J' | b'j' | 0x84 => 4,
        b'G' => 8,
        _ => return None,
    })
}

impl<R: BufRead> Scan<R> {
    /// Reads an opcode and its argument.
    fn step(&mut self) -> Result<(), End> {
        if self.position >= self.bytes {
            return Err(End::Here);
        }
        if self.frame_end == Some(self.position) {
            self.frame_end = None;
        }
        let [opcode] = self.read()?;
        if let Some(length) = fixed_length(opcode) {
            return self.skip(length);
        }
        match opcode {
            // Opcodes with the length of their argument.
            b'C' | b'U' | 0x8a | 0x8c => {
                let [length] = self.read()?;
                self.skip(length.into())
            }
            b'B' | b'T' | b'X' | 0x8b => {
                let length = u32::from_le_bytes(self.read()?);
                self.skip(length.into())
            }
            0x8d | 0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.read()?);
                self.skip(length)
            }
            // Opcodes whose argument is a line, or two.
            b'F' | b'I' | b'L' | b'P' | b'S' | b'V' | b'g' => self.line().map(drop),
            b'c' | b'i' => self.line().and_then(|_| self.line()).map(drop),
            0x95 => self.begin_frame(),
            0x94 => self.memoize(self.num_memoized),
            b'q' => {
                let [index] = self.read()?;
                self.memoize(index.into())
            }
            b'r' => {
                let index = u32::from_le_bytes(self.read()?);
                self.memoize(index.into())
            }
            b'p' => {
                let line = self.line()?;
                let index = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok());
                let shown = || String::from_utf8_lossy(&line).into_owned();
                let refused = || End::Fault(format!("{:?} is no index of the memo", shown()));
                self.memoize(index.ok_or_else(refused)?)
            }
            _ => Err(End::Here), // the end of the pickle, or an unknown opcode
        }
    }

    fn memoize(&mut self, index: u64) -> Result<(), End> {
        let num_memoized = self.num_memoized;
        if index > num_memoized + MAX_SKIPPED_INDICES {
            let reason = format!("index {index} in a memo of {num_memoized} objects");
            return Err(End::Fault(reason));
        }
        self.num_memoized += 1;
        Ok(())
    }

    fn begin_frame(&mut self) -> Result<(), End> {
        let length = u64::from_le_bytes(self.read()?);
        self.check(length)?;
        self.frame_end = Some(self.position + length);
        Ok(())
    }

    /// Checks that the pickle and the current frame have so many more bytes.
    fn check(&self, length: u64) -> Result<(), End> {
        let end = self.position.checked_add(length);
        let ends_by = |limit: u64| end.is_some_and(|end| end <= limit);
        let refused = |reason: &str| Err(End::Fault(reason.to_owned()));
        match self.frame_end {
            _ if !ends_by(self.bytes) => refused(TRUNCATED),
            Some(frame_end) if !ends_by(frame_end) => refused(EXHAUSTED),
            _ => Ok(()),
        }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], End> {
        self.check(N as u64)?;
        let mut read = [0; N];
        self.input.read_exact(&mut read)?;
        self.position += N as u64;
        Ok(read)
    }

    fn skip(&mut self, length: u64) -> Result<(), End> {
        self.check(length)?;
        let mut left = length;
        while left > 0 {
            let ready = self.input.fill_buf()?.len();
            let count = ready.min(usize::try_from(left).unwrap_or(ready));
            if count == 0 {
                return Err(End::Here); // the file has become shorter
            }
            self.input.consume(count);
            left -= count as u64;
        }
        self.position += length;
        Ok(())
    }

    /// Reads to the end of a line, and returns its beginning.
    fn line(&mut self) -> Result<Vec<u8>, End> {
        let mut beginning = Vec::new();
        loop {
            let ready = self.input.fill_buf()?;
            let end = ready.iter().position(|byte| *byte == b'\n');
            let part = &ready[..end.unwrap_or(ready.len())];
            let missing = MAX_INDEX_BYTES.saturating_sub(beginning.len());
            beginning.extend_from_slice(&part[..part.len().min(missing)]);
            let count = part.len() + usize::from(end.is_some());
            if count == 0 {
                return Err(End::Here);
            }
            self.check(count as u64)?;
            self.input.consume(count);
            self.position += count as u64;
            if end.is_some() {
                return Ok(beginning);
            }
        }
    }
}
