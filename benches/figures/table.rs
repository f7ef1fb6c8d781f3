//! The rows: printed as they come, and kept as JSON lines for who judges them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this is for")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::measure::{Figure, Pair, Unfiltered};

/// Who ours is compared with: a name, and what it took unless it is not here.
pub(crate) type Peer<'a> = (&'a str, Option<Figure>);

/// Where rows go.
pub(crate) struct Table {
    json: Option<File>,
}

impl Table {
    pub(crate) fn new(json: Option<&Path>) -> io::Result<Self> {
        Ok(Self { json: json.map(File::create).transpose()? })
    }

    /// A row in nanoseconds without a peer.
    pub(crate) fn row(&mut self, name: &str, ours: Figure) -> io::Result<()> {
        self.write(name, "ns", Ok(ours), None, None)
    }

    /// A row in another unit.
    pub(crate) fn row_in(&mut self, unit: &str, name: &str, ours: Figure) -> io::Result<()> {
        self.write(name, unit, Ok(ours), None, None)
    }

    /// A row beside a peer.
    pub(crate) fn against(&mut self, name: &str, ours: Figure, peer: Peer<'_>) -> io::Result<()> {
        self.write(name, "ns", Ok(ours), Some(peer), None)
    }

    /// A row beside a peer, by their difference.
    pub(crate) fn pair(&mut self, name: &str, peer: &str, pair: Pair) -> io::Result<()> {
        let Pair { ours, peer: theirs, excess_ns } = pair;
        self.write(name, "ns", Ok(ours), Some((peer, Some(theirs))), Some(excess_ns))
    }

    /// A row beside a peer, in another unit.
    pub(crate) fn against_in(
        &mut self,
        unit: &str,
        name: &str,
        ours: Figure,
        peer: Peer<'_>,
    ) -> io::Result<()> {
        self.write(name, unit, Ok(ours), Some(peer), None)
    }

    /// A row that cannot be measured here, and why.
    pub(crate) fn unmeasured(&mut self, name: &str, reason: &str) -> io::Result<()> {
        self.write(name, "ns", Err(reason), None, None)
    }

    fn write(
        &mut self,
        name: &str,
        unit: &str,
        ours: Result<Figure, &str>,
        peer: Option<Peer<'_>>,
        excess_ns: Option<f64>,
    ) -> io::Result<()> {
        // Names, units and reasons are ours: plain words, nothing to escape.
        let mut line = format!(r#"{{"name": "{name}", "unit": "{unit}""#);
        let mut text = format!("{name:<24}");
        match ours {
            Ok(Figure { median, least, quiet, unfiltered }) => {
                write!(line, r#", "ours": {median}, "ours_min": {least}"#).expect("a string");
                write!(line, "{}", of_all("", unfiltered)).expect("a string");
                if let Some(quiet) = quiet {
                    write!(line, r#", "quiet": {quiet}"#).expect("a string");
                }
                write!(text, "{median:>12.2} {unit} (min {least:.2})").expect("a string");
            }
            Err(reason) => {
                write!(line, r#", "reason": "{reason}""#).expect("a string");
                write!(text, "not measured: {reason}").expect("a string");
            }
        }
        if let Some((peer, figure)) = peer {
            write!(line, r#", "peer": "{peer}""#).expect("a string");
            match figure {
                Some(Figure { median, least, unfiltered, .. }) => {
                    write!(line, r#", "peer_ns": {median}, "peer_min": {least}"#)
                        .expect("a string");
                    write!(line, "{}", of_all("peer_", unfiltered)).expect("a string");
                    write!(text, "   {peer} {median:.2} (min {least:.2})").expect("a string");
                }
                None => write!(text, "   {peer} missing").expect("a string"),
            }
        }
        if let Some(excess_ns) = excess_ns {
            write!(line, r#", "excess_ns": {excess_ns}"#).expect("a string");
            write!(text, "   {excess_ns:+.2}").expect("a string");
        }
        println!("{text}");
        match &mut self.json {
            Some(file) => writeln!(file, "{line}}}"),
            None => Ok(()),
        }
    }
}

/// The fields of all blocks, nothing where there are none.
fn of_all(whose: &str, unfiltered: Option<Unfiltered>) -> String {
    unfiltered.map_or_else(String::new, |Unfiltered { median, p99 }| {
        format!(r#", "{whose}unfiltered": {median}, "{whose}p99": {p99}"#)
    })
}

/// Says on standard error what went wrong.
pub(crate) fn complain(error: &io::Error) {
    eprintln!("figures: {error}");
}
