//! Tables of events in files, read a piece at a time.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::base::error::{Error, MemoryError};
use crate::memory::allocator::replay::Operation;
use crate::traces::events::BATCH;
use crate::traces::line::{check_header, event_at, event_of_line};
use crate::traces::{Events, TraceError, Visitor};

/// How much is read at once, and the most that one line may have.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// A file of lines `t,op,id,size,stream`: `op` a allocates `size` bytes, f frees `id`.
///
/// Each visit reads the file again, from its beginning. Errors name the file and the line.
///
/// ```
/// use accelrt::traces::{EventTable, survey};
///
/// let table = EventTable::open("tests/data/own_gpt_fixed.ops.csv")?;
/// assert_eq!(survey(&table)?.peak_live_bytes, 88_068_184);
/// # Ok::<(), accelrt::traces::TraceError>(())
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
