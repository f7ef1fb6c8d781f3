//! The figures that only Rust can measure: ours and the peers', taken in one run.
//!
//! `cargo bench` prints them. `--json FILE` keeps them as JSON lines as well, one measurement a
//! line; `make bench` joins those with what Python measures and judges them by the goals.
//! `--anchors FILE SECONDS` only says how fast the machine is, when it is quiet.

mod anchors;
mod backlog;
mod copies;
mod events;
mod machine;
mod measure;
mod opencl;
mod peers;
mod ping_pong;
mod queue;
#[cfg(feature = "xpu")]
mod raw_opencl;
mod rounds;
mod table;
#[cfg(feature = "xpu")]
mod xpu;

use std::env;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use accelrt::{Config, Runtime};

use crate::opencl::Opencl;
use crate::table::Table;

const USAGE: &str = "usage: cargo bench --bench figures [-- --json FILE | --anchors FILE SECONDS]";

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        [] => Table::new(None).and_then(|mut table| figures(&mut table)),
        ["--json", file] => {
            Table::new(Some(Path::new(file))).and_then(|mut table| figures(&mut table))
        }
        ["--anchors", file, seconds] => match seconds.parse() {
            Ok(seconds) => anchors::measure(Path::new(file), Duration::from_secs(seconds)),
            Err(_) => Err(io::Error::other(USAGE)),
        },
        _ => Err(io::Error::other(USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            table::complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Every figure. The product is what ships: the default settings and the build of a release.
fn figures(table: &mut Table) -> io::Result<()> {
    backlog::measure(table)?; // first: what later figures leave in pools would hide memory
    let runtime = Runtime::new(Config::default()).expect("the default settings are right");
    let opencl = Opencl::open();
    queue::measure(&runtime, opencl.as_ref(), table)?;
    rounds::measure(&runtime, opencl.as_ref(), table)?;
    events::measure(&runtime, table)?;
    copies::measure(&runtime, table)?;
    #[cfg(feature = "xpu")]
    xpu::measure(table)?;
    Ok(())
}
