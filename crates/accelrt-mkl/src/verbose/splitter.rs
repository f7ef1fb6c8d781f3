//! Separates the lines of verbose libraries from all other output, incrementally.
//!
//! A library's line begins with a keyword and ends at the end of the line. It may begin inside a
//! line of the program, because a program that buffers its output writes parts of lines. The
//! splitter passes other text on at once, unless the text may be the beginning of a keyword.
//!
//! A second keyword inside a line begins another line: the writer of the first one was interrupted.
//! The beginning of a line that was cut off like this is text.

use crate::verbose::library::VerboseLibrary;
use crate::verbose::records::{MAX_LINE_BYTES, begun_keyword, first_keyword, is_of_mkl};

pub(super) const EVERY: [VerboseLibrary; 3] =
    [VerboseLibrary::Mkl, VerboseLibrary::OneDnn, VerboseLibrary::Accelrt];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Vec<u8>),
    /// One line of a library, without its line end.
    Line(VerboseLibrary, Vec<u8>),
}

/// Holds output until it can tell a library's line from text.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    held: Vec<u8>,
    /// The library whose line is at the start of the held bytes; `None` for text.
    inside: Option<VerboseLibrary>,
    /// The number of held bytes that were searched without finding the end of the line.
    searched: usize,
    /// True when the emitted text ends inside a line.
    is_mid_line: bool,
}

impl Splitter {
    /// Adds output, searches it for lines of `libraries`, and returns the classified pieces.
    pub(super) fn feed(&mut self, bytes: &[u8], libraries: &[VerboseLibrary]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.held.extend_from_slice(bytes);
        loop {
            let goes_on = match self.inside {
                Some(library) => self.end_line(library, &mut pieces),
                None => self.begin_line(libraries, &mut pieces),
            };
            if !goes_on {
                return pieces;
            }
        }
    }

    /// The library whose line is held without its end; `None` for text.
    pub(super) fn inside(&self) -> Option<VerboseLibrary> {
        self.inside
    }

    /// True while the held bytes may be text or the beginning of a keyword.
    pub(super) fn has_undecided(&self) -> bool {
        self.inside.is_none() && !self.held.is_empty()
    }

    /// Classifies the undecided bytes as text. Called when no further bytes have arrived.
    pub(super) fn flush_undecided(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if self.inside.is_none() {
            self.pass_on(self.held.len(), &mut pieces);
        }
        pieces
    }

    /// Classifies all held bytes. A library's line without an end counts as a line.
    pub(super) fn finish(&mut self, libraries: &[VerboseLibrary]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some(library) = self.inside {
            self.take_line(library, self.held.len(), &mut pieces);
            self.begin_line(libraries, &mut pieces); // a second keyword cut the line off
        }
        pieces.extend(self.flush_undecided());
        pieces
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Emits text up to the next keyword. False when more bytes are needed.
    fn begin_line(&mut self, libraries: &[VerboseLibrary], pieces: &mut Vec<Piece>) -> bool {
        if let Some((start, _, library)) = first_keyword(&self.held, libraries) {
            self.pass_on(start, pieces);
            self.inside = Some(library);
            return true;
        }
        self.pass_on(self.held.len() - begun_keyword(&self.held, libraries), pieces);
        false
    }

    /// Emits a library's line up to its end. False when more bytes are needed.
    fn end_line(&mut self, library: VerboseLibrary, pieces: &mut Vec<Piece>) -> bool {
        let end = self.held[self.searched..].iter().position(|byte| *byte == b'\n');
        let length = end.map_or(self.held.len(), |end| self.searched + end);
        if length > MAX_LINE_BYTES {
            let end = MAX_LINE_BYTES + 1;
            // A keyword may begin inside these bytes and end after them.
            let whole = end - begun_keyword(&self.held[..end], &EVERY);
            let begin = self.second_keyword(library, end).unwrap_or(whole);
            (self.inside, self.searched) = (None, 0);
            self.pass_on(begin, pieces);
            return true;
        }
        if end.is_some() {
            self.take_line(library, length, pieces);
        } else {
            self.searched = length;
        }
        end.is_some()
    }

    /// Returns where a second keyword begins in the first `length` held bytes, which are a line.
    fn second_keyword(&self, library: VerboseLibrary, length: usize) -> Option<usize> {
        let line = &self.held[..length];
        let own = first_keyword(line, &[library]).map_or(0, |(_, end, _)| end);
        first_keyword(&line[own..], &EVERY).map(|(start, ..)| own + start)
    }

    /// Emits the line of which `length` bytes are held, up to a second keyword or to its end.
    ///
    /// The line counts as text if a second keyword cut it off, or if it follows text of the program
    /// and does not have the library's format.
    fn take_line(&mut self, library: VerboseLibrary, length: usize, pieces: &mut Vec<Piece>) {
        (self.inside, self.searched) = (None, 0);
        let second = self.second_keyword(library, length);
        let line = &self.held[..second.unwrap_or(length)];
        let is_line = match library {
            // The keywords of the others end with a comma, which other text rarely has.
            VerboseLibrary::Mkl => (!self.is_mid_line && second.is_none()) || is_of_mkl(line),
            VerboseLibrary::OneDnn | VerboseLibrary::Accelrt => second.is_none(),
        };
        let has_end = second.is_none() && self.held.get(length) == Some(&b'\n');
        let count = line.len() + usize::from(has_end);
        if is_line {
            pieces.push(Piece::Line(library, line.to_vec()));
            self.held.drain(..count);
        } else {
            self.pass_on(count, pieces);
        }
    }

    fn pass_on(&mut self, count: usize, pieces: &mut Vec<Piece>) {
        if count > 0 {
            let text: Vec<_> = self.held.drain(..count).collect();
            self.is_mid_line = !text.ends_with(b"\n");
            pieces.push(Piece::Text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verbose::records::{VerboseLine, VerboseParser};

    const ALL: [VerboseLibrary; 2] = [VerboseLibrary::Mkl, VerboseLibrary::OneDnn];

    /// The text and the library lines of an output that arrives in `parts`.
    fn split(parts: &[&[u8]], libraries: &[VerboseLibrary]) -> (String, Vec<String>) {
        let mut splitter = Splitter::default();
        let mut pieces: Vec<_> =
            parts.iter().flat_map(|part| splitter.feed(part, libraries)).collect();
        pieces.extend(splitter.finish(libraries));
        assert!(splitter.held.is_empty() && !splitter.has_undecided());
        let (mut text, mut lines) = (Vec::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(part) => text.extend(part),
                Piece::Line(_, line) => lines.push(String::from_utf8_lossy(&line).into_owned()),
            }
        }
        (String::from_utf8_lossy(&text).into_owned(), lines)
    }

    fn whole(text: &str) -> (String, Vec<String>) {
        split(&[text.as_bytes()], &ALL)
    }

    #[test]
    fn library_lines_are_separated_from_text() {
        let (text, lines) = whole("a\nonednn_verbose,exec\nb\nMKL_VERBOSE x\nc");
        assert_eq!(
            (text.as_str(), lines),
            ("a\nb\nc", owned(&["onednn_verbose,exec", "MKL_VERBOSE x"]))
        );
    }

    #[test]
    fn a_library_line_inside_a_program_line_leaves_that_line_whole() {
        let (text, lines) = whole("the beginonednn_verbose,exec,1\nning\n");
        assert_eq!((text.as_str(), lines), ("the beginning\n", owned(&["onednn_verbose,exec,1"])));
        let (text, lines) = whole("50%MKL_VERBOSE DGEMM(1) 2ms CNR:OFF\n done\n");
        assert_eq!((text.as_str(), lines.len()), ("50% done\n", 1));
    }

    #[test]
    fn line_cut_by_keyword_is_text() {
        let call = "MKL_VERBOSE F(1) 2us";
        for (output, text, lines) in [
            ("onednn_verbose,exec,1dnnl_verbose,2\n", "onednn_verbose,exec,1", "dnnl_verbose,2"),
            ("onednn_verbose,1accelrt_verbose,2\n", "onednn_verbose,1accelrt_verbose,2\n", ""),
            ("MKL_VERBOSE F(1onednn_verbose,1\n", "MKL_VERBOSE F(1", "onednn_verbose,1"),
            ("MKL_VERBOSE F(1) 2usonednn_verbose,1", "", "MKL_VERBOSE F(1) 2us|onednn_verbose,1"),
        ] {
            let (rest, found) = whole(output);
            assert_eq!((rest.as_str(), found.join("|").as_str()), (text, lines), "{output}");
        }
        assert_eq!(whole(&format!("step: {call} GPU0\n")).1, owned(&[&format!("{call} GPU0")]));
    }

    #[test]
    fn text_that_contains_a_keyword_is_text() {
        for text in ["set MKL_VERBOSE to 1\n", "MKL_VERBOSE=1\n", "onednn_verbose is on\n"] {
            assert_eq!(whole(text), (text.to_owned(), vec![]));
        }
    }

    #[test]
    fn lines_of_other_libraries_are_text() {
        let text = "MKL_VERBOSE oneMKL 2024\nonednn_verbose,info\n";
        let (rest, lines) = split(&[text.as_bytes()], &[VerboseLibrary::Mkl]);
        assert_eq!((rest.as_str(), lines.len()), ("onednn_verbose,info\n", 1));
        assert_eq!(split(&[text.as_bytes()], &[]), (text.to_owned(), vec![]));
    }

    #[test]
    fn a_line_without_an_end_is_a_line_at_the_end_of_output() {
        assert_eq!(
            whole("onednn_verbose,exec,1"),
            (String::new(), owned(&["onednn_verbose,exec,1"]))
        );
        assert_eq!(whole("x: MKL_VERBOSE y").0, "x: MKL_VERBOSE y");
    }

    #[test]
    fn text_is_passed_on_at_once_except_a_possible_keyword() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed(b"Continue? ", &ALL), [Piece::Text(b"Continue? ".to_vec())]);
        assert!(!splitter.has_undecided());
        assert_eq!(splitter.feed(b"yes or no", &ALL), [Piece::Text(b"yes or n".to_vec())]);
        assert!(splitter.has_undecided());
        assert_eq!(splitter.flush_undecided(), [Piece::Text(b"o".to_vec())]);
        assert_eq!(splitter.flush_undecided(), []);
    }

    #[test]
    fn an_overlong_line_is_text_and_is_not_buffered() {
        let mut splitter = Splitter::default();
        let mut pieces = splitter.feed(b"onednn_verbose,", &ALL);
        for _ in 0..3 * (MAX_LINE_BYTES >> 10) {
            pieces.extend(splitter.feed(&[b'x'; 1024], &ALL));
            assert!(splitter.held.len() <= MAX_LINE_BYTES + 1024);
        }
        assert!(pieces.iter().all(|piece| matches!(piece, Piece::Text(_))));
    }

    #[test]
    fn longest_line_same_in_any_chunks() {
        for more in [0, 1, 2] {
            let begin = "onednn_verbose,";
            let line = format!("{begin}{}", "x".repeat(MAX_LINE_BYTES - 1 + more - begin.len()));
            let output = format!("{line}\ndnnl_verbose,1\n");
            for size in [1 << 16, 1 << 20, output.len()] {
                let parts: Vec<_> = output.as_bytes().chunks(size).collect();
                let (text, lines) = split(&parts, &ALL);
                let counts = if more < 2 { (0, 2) } else { (line.len() + 1, 1) };
                assert_eq!((text.len(), lines.len()), counts, "{more} {size}");
            }
        }
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    proptest! {
        #[test]
        fn the_partition_into_writes_does_not_matter(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "onednn_verbose,exec,1", "MKL_VERBOSE F(1) 2us CNR:OFF", "\n", "onednn_", "o",
                    "accelrt_verbose,",
                    "MKL_VERBOSE ", "text", "dnnl_verbose,", " ", "é\u{0}",
                ]),
                0..30,
            ),
            cuts in prop::collection::vec(0_usize..300, 0..20),
        ) {
            let text = parts.concat();
            let bytes = text.as_bytes();
            let mut places: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let parts: Vec<_> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(split(&parts, &ALL), split(&[bytes], &ALL));
        }

        #[test]
        fn captures_have_calls_of_their_logs(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "onednn_verbose,exec,cpu,matmul,jit,undef,src,,,64x64,0.5", "\n", "\n", "step ",
                    "MKL_VERBOSE DGEMM(N,N) 2us CNR:OFF", "MKL_VERBOSE oneMKL 2024", "MKL_VERBOSE ",
                    "MKL_VERBOSE oneapi::mkl::dgemm(0x7,N) 2us GPU0", "\u{1b}[0m", "dnnl_verbose,",
                    "accelrt_verbose,cpu,0,1,fill,64,0.5", "MKL_VERBOSE DGEMM(N,", " ", "\r",
                    "mkldnn_verbose,exec,reorder,jit,undef,src,num:1,64x64,0.5",
                ]),
                0..12,
            ),
        ) {
            let text = parts.concat();
            let calls = |lines: &mut dyn Iterator<Item = &str>| {
                let mut parser = VerboseParser::default();
                lines.flat_map(|line| parser.read(line)).filter_map(VerboseLine::call).collect()
            };
            let (_, lines) = split(&[text.as_bytes()], &EVERY);
            let captured: Vec<_> = calls(&mut lines.iter().map(String::as_str));
            prop_assert_eq!(&captured, &calls(&mut text.split('\n')), "{:?}", lines);
        }

        #[test]
        fn nothing_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut splitter = Splitter::default();
            let mut pieces = splitter.feed(&bytes, &ALL);
            pieces.extend(splitter.finish(&ALL));
            let back: Vec<u8> = pieces.into_iter().flat_map(|piece| match piece {
                Piece::Text(part) | Piece::Line(_, part) => part,
            }).collect();
            prop_assert_eq!(back, bytes);
        }
    }
}
