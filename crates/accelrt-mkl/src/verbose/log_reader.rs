//! The calls of a log that was written earlier, read with the rules of a capture.

use crate::verbose::records::{VerboseLine, VerboseParser, VerboseRecord};
use crate::verbose::splitter::{EVERY, Piece, Splitter};

/// Reads a log in parts of any size. Holds at most one line of a library.
#[derive(Debug, Default)]
pub struct VerboseLogReader {
    splitter: Splitter,
    parser: VerboseParser,
}

impl VerboseLogReader {
    /// Reads the next part; returns the calls of the lines that end in it.
    pub fn feed(&mut self, part: &[u8]) -> Vec<VerboseRecord> {
        let pieces = self.splitter.feed(part, &EVERY);
        self.calls(pieces)
    }

    /// Ends the log; returns the call of a last line without an end.
    pub fn finish(&mut self) -> Vec<VerboseRecord> {
        let pieces = self.splitter.finish(&EVERY);
        self.calls(pieces)
    }

    fn calls(&mut self, pieces: Vec<Piece>) -> Vec<VerboseRecord> {
        let mut calls = Vec::new();
        for piece in pieces {
            if let Piece::Line(_, line) = piece {
                let lines = self.parser.read(&String::from_utf8_lossy(&line));
                calls.extend(lines.into_iter().filter_map(VerboseLine::call));
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbose::records::MAX_LINE_BYTES;

    const CALL: &str = "accelrt_verbose,cpu,0,1,fill,64,0.5";

    /// The calls of a log that arrives in parts of `size` bytes.
    fn calls(log: &str, size: usize) -> usize {
        let mut reader = VerboseLogReader::default();
        let parts = log.as_bytes().chunks(size);
        let calls: usize = parts.map(|part| reader.feed(part).len()).sum();
        calls + reader.finish().len()
    }

    #[test]
    fn calls_same_in_parts_of_any_size() {
        let log = format!("text\n{CALL}\r\nother {CALL}\n\n{CALL}{CALL}\n{CALL}");
        for size in 1..log.len() {
            assert_eq!(calls(&log, size), 4, "{size}");
        }
    }

    #[test]
    fn line_above_limit_is_no_call() {
        let head = "accelrt_verbose,";
        for (more, count) in [(0, 2), (1, 1)] {
            let name = "c".repeat(MAX_LINE_BYTES + more - CALL.len() + "cpu".len());
            let line = CALL.replacen("cpu", &name, 1);
            assert_eq!(line.len(), MAX_LINE_BYTES + more);
            assert!(line.starts_with(head));
            let mut parser = VerboseParser::default();
            let read = parser.read(&format!("{line}\n"));
            assert_eq!(read.into_iter().filter_map(VerboseLine::call).count(), count - 1);
            for size in [1 << 16, line.len()] {
                assert_eq!(calls(&format!("{line}\n{CALL}\n"), size), count, "{more} {size}");
                // Of a line that is too long, the last part is a line.
                assert_eq!(calls(&format!("{line}{CALL}\n"), size), 1, "{more} {size}");
            }
        }
    }

    #[test]
    fn call_after_limit_is_found() {
        for begin in MAX_LINE_BYTES - 20..MAX_LINE_BYTES + 3 {
            let head = "accelrt_verbose,";
            let line = format!("{head}{}{CALL}", "c".repeat(begin - head.len()));
            assert_eq!(calls(&line, 1 << 16), 1, "{begin}");
            let read = VerboseParser::default().read(&line);
            assert_eq!(read.into_iter().filter_map(VerboseLine::call).count(), 1);
        }
    }

    #[test]
    fn endless_line_is_not_held() {
        let mut reader = VerboseLogReader::default();
        let mut calls = reader.feed(b"accelrt_verbose,");
        for _ in 0..3 * (MAX_LINE_BYTES >> 10) {
            calls.extend(reader.feed(&[b'c'; 1024]));
            assert!(reader.splitter.held_bytes() <= MAX_LINE_BYTES + 1024);
        }
        assert_eq!(calls, []);
    }
}
