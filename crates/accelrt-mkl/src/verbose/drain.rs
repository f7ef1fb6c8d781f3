//! Reads the pipe that replaces descriptor 1.
//!
//! Library lines go to the open captures, everything else to the original output, in order.
//!
//! A separate thread reads, so that writers do not block for long. A thread that needs all earlier
//! output reads the pipe itself, under the same lock. Such a thread therefore need not wait for the
//! reader thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use accelrt::internal::{LockRank, Mutex};
use accelrt_observe::internal::library_calls;
use accelrt_observe::internal::library_calls::CallSource;

use crate::verbose::descriptor::PipeState;
use crate::verbose::library::VerboseLibrary;
use crate::verbose::records::{VerboseLine, VerboseParser};
use crate::verbose::splitter::{Piece, Splitter};
use crate::verbose::{descriptor, told_calls};

/// Maximum bytes per read: the capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// The time for which the drain holds a possible beginning of a keyword. A library writes the rest
/// in the same write or in the next write of the same call.
const UNDECIDED_MS: i32 = 20;

#[derive(Debug)]
pub(super) struct Drain {
    source: OwnedFd,
    /// The original descriptor 1; `None` if it was closed.
    pub(super) target: Option<OwnedFd>,
    state: Mutex<State>,
}

impl Drop for Drain {
    fn drop(&mut self) {
        descriptor::forget(&self.source);
    }
}

#[derive(Debug, Default)]
struct State {
    splitter: Splitter,
    parser: VerboseParser,
    last_id: u64,
    collectors: Vec<Collector>,
    /// True after a failed write to the target. Later output is dropped.
    is_broken: bool,
}

impl State {
    /// The libraries whose lines are collected.
    fn libraries(&self) -> Vec<VerboseLibrary> {
        let mut libraries: Vec<_> = self.collectors.iter().map(|one| one.library).collect();
        libraries.dedup();
        libraries
    }

    /// True when another collector than this one waits for the end of the held bytes.
    fn is_held_for_others(&self, id: u64) -> bool {
        let line_of = self.splitter.inside();
        let mut others = self.collectors.iter().filter(|one| one.id != id);
        others.any(|other| line_of.is_none_or(|library| library == other.library))
    }
}

#[derive(Debug)]
struct Collector {
    id: u64,
    library: VerboseLibrary,
    /// `None` for one that collects for profiles alone: what is no call goes to the output.
    lines: Option<Vec<String>>,
}

impl Collector {
    /// Keeps a line. False for one that this collector leaves to others.
    fn keep(&mut self, text: &str, line: &[VerboseLine]) -> bool {
        match &mut self.lines {
            Some(lines) => lines.push(text.to_owned()),
            None => return line.iter().any(|part| *part != VerboseLine::Other),
        }
        true
    }
}

impl Drain {
    pub(super) fn new(source: OwnedFd, target: Option<OwnedFd>) -> Arc<Self> {
        let state = Mutex::new(LockRank::Drain, State::default());
        Arc::new(Self { source, target, state })
    }

    /// Reads until all writers, including forked children, have closed the pipe.
    pub(super) fn run(&self) {
        let mut timeout_ms = -1;
        loop {
            match descriptor::wait_for(&self.source, timeout_ms) {
                PipeState::End => break self.emit_held(),
                PipeState::Nothing => {
                    self.emit(&mut self.state.lock(), |splitter, _| splitter.flush_undecided());
                }
                PipeState::Bytes => self.read_available(), // another thread may have read them
            }
            timeout_ms = if self.state.lock().splitter.has_undecided() { UNDECIDED_MS } else { -1 };
        }
    }

    pub(super) fn is_output(&self) -> bool {
        descriptor::is_output(&self.source)
    }

    pub(super) fn is_at_end(&self) -> bool {
        descriptor::wait_for(&self.source, 0) == PipeState::End
    }

    /// Reads and distributes all bytes that were written to the pipe before this call.
    pub(super) fn read_available(&self) {
        let state = &mut *self.state.lock();
        let mut count = descriptor::byte_count(&self.source);
        let mut chunk = vec![0; count.min(CHUNK_BYTES)];
        while count > 0 {
            let room = count.min(chunk.len());
            let Ok(read @ 1..) = descriptor::read(&self.source, &mut chunk[..room]) else { return };
            count -= read;
            let libraries = state.libraries();
            let pieces = state.splitter.feed(&chunk[..read], &libraries);
            self.distribute(state, pieces);
        }
    }

    /// Starts to collect the lines of a library, for profiles alone unless they are kept. Returns
    /// the id of the collection.
    pub(super) fn open(&self, library: VerboseLibrary, keeps_lines: bool) -> u64 {
        self.read_available();
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let lines = keeps_lines.then(Vec::new);
        state.collectors.push(Collector { id, library, lines });
        id
    }

    pub(super) fn lines(&self, id: u64) -> Vec<String> {
        self.read_available();
        let state = self.state.lock();
        let collector = state.collectors.iter().find(|collector| collector.id == id);
        collector.and_then(|collector| collector.lines.clone()).unwrap_or_default()
    }

    pub(super) fn close(&self, id: u64) -> Vec<String> {
        self.read_available();
        let mut state = self.state.lock();
        if !state.is_held_for_others(id) {
            self.emit(&mut state, Splitter::finish);
        }
        let place = state.collectors.iter().position(|collector| collector.id == id);
        place.and_then(|place| state.collectors.remove(place).lines).unwrap_or_default()
    }

    /// Emits all held bytes, including a library's line without an end.
    pub(super) fn emit_held(&self) {
        self.emit(&mut self.state.lock(), Splitter::finish);
    }

    fn emit(&self, state: &mut State, decide: fn(&mut Splitter, &[VerboseLibrary]) -> Vec<Piece>) {
        let libraries = state.libraries();
        let pieces = decide(&mut state.splitter, &libraries);
        self.distribute(state, pieces);
    }

    fn distribute(&self, state: &mut State, pieces: Vec<Piece>) {
        let mut calls = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.pass_on(state, &text),
                Piece::Line(library, line) => {
                    let text = String::from_utf8_lossy(&line);
                    let read = state.parser.read(&text);
                    let mut is_wanted = false;
                    for collector in state.collectors.iter_mut().filter(|it| it.library == library)
                    {
                        is_wanted |= collector.keep(&text, &read);
                    }
                    if !is_wanted {
                        // The line's capture ended before the end of the line arrived, or it is
                        // none for profiles.
                        self.pass_on(state, &[&line[..], b"\n"].concat());
                    }
                    if library_calls::are_wanted() {
                        calls.extend(read.into_iter().filter_map(VerboseLine::call));
                    }
                }
            }
        }
        library_calls::tell(told_calls::of(calls, SystemTime::now()));
    }

    fn pass_on(&self, state: &mut State, text: &[u8]) {
        let Some(target) = &self.target else { return };
        if !state.is_broken {
            state.is_broken = descriptor::write_all(target, text).is_err();
        }
    }
}

impl CallSource for Drain {
    fn tell_calls(&self) {
        descriptor::flush_c_output();
        self.read_available();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_inner_capture_leaves_a_begun_line_whole() {
        let (source, input) = descriptor::pipe().unwrap();
        let drain = Drain::new(source, None);
        let outer = drain.open(VerboseLibrary::OneDnn, true);
        let lines = ["onednn_verbose,v1,exec,cpu", "onednn_verbose,v1,exec,gpu"];
        for (line, begun) in lines.into_iter().zip([9, 20]) {
            let inner = drain.open(VerboseLibrary::OneDnn, true);
            descriptor::write_all(&input, &line.as_bytes()[..begun]).unwrap();
            assert!(drain.close(inner).is_empty());
            descriptor::write_all(&input, &line.as_bytes()[begun..]).unwrap();
            descriptor::write_all(&input, b"\n").unwrap();
        }
        let of_other_library = drain.open(VerboseLibrary::Mkl, true);
        assert_eq!(drain.close(outer), lines);
        drain.close(of_other_library);
    }

    #[test]
    fn a_line_whose_capture_ended_in_the_middle_of_it_goes_to_the_output() {
        let ((source, input), (output, target)) =
            (descriptor::pipe().unwrap(), descriptor::pipe().unwrap());
        let drain = Drain::new(source, Some(target));
        drain.open(VerboseLibrary::OneDnn, true);
        descriptor::write_all(&input, b"onednn_verbose,v1,exec,").unwrap();
        drain.read_available();
        // `close` would end the line too; this thread stands for one that reads behind that.
        drain.state.lock().collectors.clear();
        descriptor::write_all(&input, b"cpu\n").unwrap();
        drain.read_available();
        let mut passed_on = [0; 64];
        assert!(descriptor::byte_count(&output) > 0, "the line is lost");
        let count = descriptor::read(&output, &mut passed_on).unwrap();
        assert_eq!(&passed_on[..count], b"onednn_verbose,v1,exec,cpu\n");
    }
}
