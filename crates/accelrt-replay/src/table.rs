//! Tables of events in files, read a piece at a time.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use accelrt::{Error, MemoryError};

use crate::events::{BATCH, Events, Operation, TraceError, Visitor};

/// The first line of a table.
pub(crate) const HEADER: &str = "t,op,id,size,stream";

/// Numbers are below it: what a signed word holds, as other programs that read tables use.
const LIMIT: u64 = 1 << 63;
/// Any number of so many digits is below `LIMIT`.
const SAFE_DIGITS: usize = 18;
/// How much of a wrong line or value its error shows.
const SHOWN_BYTES: usize = 80;

/// Reads the line at the beginning of `text`, up to its newline; returns its event and how many
/// bytes it has. `None` for a line that is wrong or unusual, which [`event_of_line`] knows more of.
#[inline]
pub(crate) fn event_at(text: &[u8]) -> Option<(Operation, usize)> {
    let (_, at) = number(text, 0, b',')?;
    let op = *text.get(at)?;
    if *text.get(at + 1)? != b',' {
        return None;
    }
    let (id, at) = number(text, at + 2, b',')?;
    let (bytes, at) = number(text, at, b',')?;
    let (stream, at) = number(text, at, b'\n')?;
    match op {
        b'a' => Some((Operation::Allocate { id, bytes: usize::try_from(bytes).ok()?, stream }, at)),
        b'f' => Some((Operation::Free { id }, at)),
        _ => None,
    }
}

/// A number of at most `SAFE_DIGITS` digits with `end` behind it, and the place behind that.
#[inline]
fn number(text: &[u8], begin: usize, end: u8) -> Option<(u64, usize)> {
    let (mut value, mut at) = (0, begin);
    loop {
        let byte = *text.get(at)?;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_right = byte == end && at > begin && at - begin <= SAFE_DIGITS;
            return is_right.then_some((value, at + 1));
        }
        value = u64::wrapping_add(u64::wrapping_mul(value, 10), u64::from(digit));
        at += 1;
    }
}

/// Reads a whole line without its newline. The error says what is wrong, to stand behind the number
/// of the line.
pub(crate) fn event_of_line(line: &[u8]) -> Result<Operation, String> {
    let line = without_return(line);
    check_ascii(line)?;
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
    let &[time, op @ (b"a" | b"f"), id, size, stream] = fields.as_slice() else {
        let shown = quoted(line);
        return Err(format!(" is {shown}, not five values as {HEADER}, with op a or f"));
    };
    let whole = |field: &[u8]| {
        let digits =
            std::str::from_utf8(field).ok().filter(|_| field.iter().all(u8::is_ascii_digit));
        let value = digits.and_then(|digits| digits.parse().ok()).filter(|value| *value < LIMIT);
        value.ok_or_else(|| format!(" has {} for a whole number of at least 0", quoted(field)))
    };
    whole(time)?;
    let (id, bytes, stream) = (whole(id)?, whole(size)?, whole(stream)?);
    let bytes = usize::try_from(bytes).map_err(|_| format!(" has {} for a size", quoted(size)))?;
    Ok(if op == b"a" { Operation::Allocate { id, bytes, stream } } else { Operation::Free { id } })
}

/// Checks the first line, without its newline.
pub(crate) fn check_header(line: &[u8]) -> Result<(), String> {
    let line = without_return(line);
    check_ascii(line)?;
    if line == HEADER.as_bytes() {
        return Ok(());
    }
    Err(format!(" is {}, not '{HEADER}'", quoted(line)))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn check_ascii(line: &[u8]) -> Result<(), String> {
    match line.iter().position(|byte| !byte.is_ascii()) {
        Some(place) => Err(format!(": it is no table, byte {place} is no ASCII")),
        None => Ok(()),
    }
}

/// The beginning of what stands there, in one line whatever it is.
fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(SHOWN_BYTES)];
    format!("'{}'", shown.escape_ascii())
}

/// How much is read at once, and the most that one line may have.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// A file of lines `t,op,id,size,stream`: `op` a allocates `size` bytes, f frees `id`.
///
/// Each visit reads the file again, from its beginning. Errors name the file and the line.
///
/// ```
/// use accelrt_replay::{EventTable, survey};
///
/// let path = std::env::temp_dir().join("example.ops.csv");
/// std::fs::write(&path, "t,op,id,size,stream\n0,a,7,4096,0\n1,f,7,4096,0\n")?;
/// let table = EventTable::open(path)?;
/// assert_eq!(survey(&table)?.peak_live_bytes, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventTable {
    path: PathBuf,
}

impl EventTable {
    /// Names a table; looks at its first line only.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TraceError> {
        let table = Self { path: path.into() };
        table.visit(&mut |_| Ok(ControlFlow::Break(())))?;
        Ok(table)
    }

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Events for EventTable {
    fn visit(&self, visitor: &mut Visitor<'_>) -> Result<(), TraceError> {
        let file = File::open(&self.path);
        let file = file.map_err(|source| TraceError::File { path: self.path.clone(), source })?;
        let batch = Vec::with_capacity(BATCH);
        let mut pass = Pass { path: &self.path, lines: 0, batch, visitor };
        pass.read(file)
    }
}

/// A pass over a table.
struct Pass<'a, 'v> {
    path: &'a Path,
    /// How many lines were read, the first one included.
    lines: u64,
    /// The events that the visitor has not had.
    batch: Vec<Operation>,
    visitor: &'a mut Visitor<'v>,
}

impl Pass<'_, '_> {
    fn read(&mut self, mut file: File) -> Result<(), TraceError> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut kept = 0;
        loop {
            let count = self.read_some(&mut file, &mut piece[kept..])?;
            let text = &piece[..kept + count];
            let whole = if count == 0 {
                text.len()
            } else {
                text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
            };
            if self.take(&text[..whole])?.is_break() {
                return Ok(());
            }
            if count == 0 {
                break;
            }
            let end = text.len();
            piece.copy_within(whole..end, 0);
            kept = end - whole;
            if kept == PIECE_BYTES {
                return Err(self.wrong(format!(" has more than {PIECE_BYTES} bytes")));
            }
        }
        if self.lines == 0 {
            check_header(b"").map_err(|text| self.wrong(text))?;
        }
        self.hand_over().map(drop)
    }

    fn read_some(&self, file: &mut File, into: &mut [u8]) -> Result<usize, TraceError> {
        loop {
            match file.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::File { path: self.path.to_owned(), source }),
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Takes whole lines; the last one of a file may have no newline.
    fn take(&mut self, text: &[u8]) -> Result<ControlFlow<()>, TraceError> {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let is_first = self.lines == 0;
            let read = if is_first { None } else { event_at(rest) };
            if let Some((event, length)) = read {
                self.batch.push(event);
                at += length;
            } else {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let line = &rest[..end];
                let read = if is_first {
                    check_header(line).map(|()| None)
                } else {
                    event_of_line(line).map(Some)
                };
                match read {
                    Ok(event) => self.batch.extend(event),
                    // The lines before it may be wrong too.
                    Err(text) => {
                        let wrong = self.wrong(text);
                        let flow = self.hand_over()?;
                        return if flow.is_break() { Ok(flow) } else { Err(wrong) };
                    }
                }
                at += end + 1;
            }
            self.lines += 1;
            if self.batch.len() == BATCH || is_first {
                let flow = self.hand_over()?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Hands the batch to the visitor, whose complaint about an event becomes one about its line.
    fn hand_over(&mut self) -> Result<ControlFlow<()>, TraceError> {
        let result = (self.visitor)(&self.batch);
        let first_line = self.lines - self.batch.len() as u64 + 1;
        let result = result.map_err(|error| match error {
            TraceError::Replay(Error::Memory(MemoryError::InvalidEvents { index, id, .. })) => {
                // Line 1 is the head, so that event 0 stands in line 2.
                let line = index as u64 + 2;
                let place = line.checked_sub(first_line).and_then(|it| usize::try_from(it).ok());
                let event = place.and_then(|place| self.batch.get(place));
                let text = if matches!(event, Some(Operation::Allocate { .. })) {
                    format!(" allocates id {id}, which is live already")
                } else {
                    format!(" frees id {id}, which is not live")
                };
                TraceError::Line { path: self.path.to_owned(), line, text }
            }
            other => other,
        });
        self.batch.clear();
        result
    }

    /// The error of the line behind those that were read.
    fn wrong(&self, text: String) -> TraceError {
        TraceError::Line { path: self.path.to_owned(), line: self.lines + 1, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn both_parsers_read_the_same_or_the_short_one_leaves_it_to_the_other() {
        let mut numbers = Numbers::new(seed());
        let parts: [&[u8]; 14] = [
            b"0",
            b"1",
            b"9",
            b"17",
            b"999999999999999999",
            b"9223372036854775807",
            b"9223372036854775808",
            b"99999999999999999999",
            b"a",
            b"f",
            b",",
            b"-1",
            b" ",
            b"\r",
        ];
        let mut read = 0;
        for _ in 0..20_000 {
            let mut line: Vec<u8> = b"0,a,1,5,0".to_vec();
            for _ in 0..numbers.below(3) {
                let part = parts[numbers.below(parts.len())];
                let place = numbers.below(line.len());
                let end = (place + numbers.below(3)).min(line.len());
                line.splice(place..end, part.iter().copied());
            }
            let whole = event_of_line(&line);
            let ended = [&line[..], b"\n"].concat();
            let Some((event, length)) = event_at(&ended) else { continue };
            assert_eq!((Ok(event), length), (whole, ended.len()), "{}", line.escape_ascii());
            read += 1;
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn a_usual_line_is_read_at_once() {
        let event = Operation::Allocate { id: 7, bytes: 4096, stream: 2 };
        assert_eq!(event_at(b"12,a,7,4096,2\nrest"), Some((event, 14)));
        assert_eq!(event_at(b"12,f,7,4096,2\n"), Some((Operation::Free { id: 7 }, 14)));
        assert_eq!(event_at(b"12,a,7,4096,2"), None, "its end is not there yet");
        assert_eq!(event_at(b"0,a,3,9223372036854775808,0\n"), None, "it is above the limit");
    }

    #[test]
    fn numbers_go_up_to_the_limit_and_leading_zeros_change_nothing() {
        let bytes = usize::try_from(LIMIT - 1).unwrap();
        let event = Operation::Allocate { id: 3, bytes, stream: 0 };
        assert_eq!(event_of_line(b"0,a,0003,9223372036854775807,0\r"), Ok(event));
        let wrong = event_of_line(b"0,a,3,9223372036854775808,0").unwrap_err();
        assert_eq!(wrong, " has '9223372036854775808' for a whole number of at least 0");
    }

    #[test]
    fn each_number_of_a_line_is_checked_whether_it_counts_or_not() {
        for line in ["x,a,1,5,0", "0,a,x,5,0", "0,a,1,x,0", "0,a,1,5,x", "0,f,1,x,0", "0,f,1,5,x"] {
            assert_eq!(event_at(format!("{line}\n").as_bytes()), None, "{line}");
            let wrong = event_of_line(line.as_bytes()).unwrap_err();
            assert_eq!(wrong, " has 'x' for a whole number of at least 0", "{line}");
        }
    }

    #[test]
    fn what_is_shown_of_a_wrong_line_is_one_short_line() {
        let error = event_of_line(&[b'\0'; 1000]).unwrap_err();
        assert!(error.starts_with(r" is '\x00\x00") && error.len() < 450, "{error}");
        let error = check_header("t,op,\u{fe}".as_bytes()).unwrap_err();
        assert_eq!(error, ": it is no table, byte 5 is no ASCII");
    }
}
