//! The figures that only Rust can measure: ours and the peers', taken in one run.
//!
//! `cargo bench` prints them. `--json FILE` keeps them as JSON lines as well, one measurement a
//! line; `make bench` joins those with what Python measures and judges them by the goals.
//! `--traces` names the folder of recorded requests, `--c10` the program that measures PyTorch's
//! allocator, `--rows` the letter of the rows that are wanted, or A15 for that one alone, and
//! `--patience` is how long each thing waits for a quiet machine.
//! `--anchors FILE SECONDS` only says how fast the machine is, when it is quiet.

mod allocation;
mod anchors;
mod backlog;
mod c_calls;
mod copies;
mod events;
mod log;
mod measure;
mod opencl;
mod peers;
mod ping_pong;
#[path = "../../tests/common/processors.rs"]
mod processors;
mod queue;
mod quiet;
mod raw_opencl;
mod rounds;
mod streams;
mod table;
mod xpu;

use std::env;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use accelrt::{Config, Runtime};

use crate::allocation::bookkeeping::Counting;
use crate::allocation::c10::C10;
use crate::allocation::malloc;
use crate::opencl::Opencl;
use crate::quiet::Patience;
use crate::table::Table;

#[global_allocator]
static HEAP: Counting = Counting;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        [malloc::ARGUMENT, library] => malloc::serve(library),
        ["--anchors", file, seconds] => match seconds.parse() {
            Ok(seconds) => anchors::measure(Path::new(file), Duration::from_secs(seconds)),
            Err(_) => Err(io::Error::other(USAGE)),
        },
        _ => Wanted::read(&arguments).and_then(|wanted| wanted.measure()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            table::complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
struct Wanted<'a> {
    json: Option<&'a Path>,
    /// Without a folder, the rows that replay say so.
    traces: Option<&'a Path>,
    /// `tests/oracle` builds it, where PyTorch's allocator is installed.
    c10: Option<&'a Path>,
    patience: Option<Duration>,
    /// The letter of the rows, or one; `None` for all of them.
    rows: Option<&'a str>,
}

const USAGE: &str =
    "usage: cargo bench --bench figures [-- [--json FILE] [--traces FOLDER] [--patience SECONDS]
                                            [--c10 PROGRAM] [--rows LETTER]]
       cargo bench --bench figures -- --anchors FILE SECONDS";

impl<'a> Wanted<'a> {
    fn read(mut arguments: &[&'a str]) -> io::Result<Self> {
        let mut wanted = Self { json: None, traces: None, c10: None, patience: None, rows: None };
        loop {
            match *arguments {
                [] => return Ok(wanted),
                ["--json", file, ..] => wanted.json = Some(Path::new(file)),
                ["--traces", folder, ..] => wanted.traces = Some(Path::new(folder)),
                ["--c10", program, ..] => wanted.c10 = Some(Path::new(program)),
                ["--patience", seconds, ..] => {
                    let seconds = seconds.parse().map_err(|_| io::Error::other(USAGE))?;
                    wanted.patience = Some(Duration::from_secs(seconds));
                }
                [
                    "--rows",
                    letter @ ("A" | "A15" | "C" | "D" | "E" | "F" | "G" | "Q" | "V"),
                    ..,
                ] => {
                    wanted.rows = Some(letter);
                }
                _ => return Err(io::Error::other(USAGE)),
            }
            arguments = &arguments[2..];
        }
    }

    /// The product is what ships: the default settings and the build of a release.
    fn measure(&self) -> io::Result<()> {
        self.patience.into_iter().for_each(Patience::set_usual);
        let mut table = Table::new(self.json)?;
        let are_wanted = |letter| self.rows.is_none_or(|rows| rows == letter);
        if are_wanted("Q") {
            backlog::measure(&mut table)?; // first: what later figures leave would hide memory
        }
        let runtime = Runtime::new(Config::default()).expect("the default settings are right");
        if are_wanted("Q") {
            let opencl = Opencl::open();
            queue::measure(&runtime, opencl.as_ref(), &mut table)?;
            rounds::measure(&runtime, opencl.as_ref(), &mut table)?;
        }
        if are_wanted("E") {
            events::measure(&runtime, &mut table)?;
        }
        if are_wanted("G") {
            streams::measure(&mut table)?;
        }
        if are_wanted("C") {
            copies::measure(&runtime, &mut table)?;
        }
        if are_wanted("V") {
            log::measure(&runtime, &mut table)?;
        }
        if are_wanted("F") {
            c_calls::measure(&mut table)?;
        }
        if are_wanted("D") {
            xpu::measure(&mut table)?;
        }
        if are_wanted("A") {
            let c10 = self.c10.map(C10::at).transpose()?;
            allocation::measure(&runtime, self.traces, c10.as_ref(), &mut table)?;
        }
        if self.rows == Some("A15") {
            allocation::measure_pressure(&mut table)?;
        }
        Ok(())
    }
}
