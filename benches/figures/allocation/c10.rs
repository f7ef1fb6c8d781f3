//! PyTorch's own compiled allocator as a peer, on a stub of the CUDA runtime.
//!
//! `tests/oracle/driver/timing.cpp`, a process of its own, answers what it takes.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use accelrt_replay::Operation;

use super::child::Answering;

/// Where it would find settings that are not its default ones.
const SETTINGS: [&str; 3] =
    ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"];

/// The program, which is there.
pub(crate) struct C10 {
    program: PathBuf,
    name: String,
}

impl C10 {
    /// Starts it once. Fails where it does not run: who names it wants it measured.
    pub(crate) fn at(program: &Path) -> io::Result<Self> {
        let (_, release) = start(program)?;
        if release.is_empty() {
            return Err(io::Error::other(format!("{} does not answer", program.display())));
        }
        Ok(Self { program: program.to_owned(), name: format!("c10 {release}") })
    }

    /// How rows name it: with its release, where it is there.
    pub(super) fn name(c10: Option<&Self>) -> &str {
        c10.map_or("c10", |c10| &c10.name)
    }

    /// An allocator of its own.
    pub(super) fn allocator(&self) -> io::Result<Allocator> {
        Ok(Allocator(start(&self.program)?.0))
    }
}

fn start(program: &Path) -> io::Result<(Answering, String)> {
    let mut command = Command::new(program);
    for name in SETTINGS {
        command.env_remove(name);
    }
    Answering::start(&mut command)
}

/// A process with an allocator; what is asked is measured there.
pub(super) struct Allocator(Answering);

impl Allocator {
    /// Nanoseconds of one of `count` pairs.
    pub(super) fn pair_ns(&mut self, bytes: usize, count: usize) -> f64 {
        self.0.ask(&format!("pair {bytes} {count}"))
    }

    /// Takes live blocks, each of any multiple of 512 bytes above `least_bytes`.
    pub(super) fn take_live(&mut self, count: usize, least_bytes: usize, most_bytes: usize) {
        self.0.ask(&format!("live {count} {least_bytes} {most_bytes}"));
    }

    /// Nanoseconds of one of `count` rounds that free one of them and take another.
    pub(super) fn round_ns(&mut self, count: usize) -> f64 {
        self.0.ask(&format!("round {count}"))
    }

    /// Hands over what is replayed.
    pub(super) fn read(&mut self, events: &[Operation]) {
        let mut text = format!("steps {}", events.len());
        for event in events {
            match *event {
                // A request for nothing gets nothing.
                Operation::Allocate { id, bytes, stream } => {
                    write!(text, "\nallocate {id} {} {stream}", bytes.max(1))
                }
                Operation::Free { id } => write!(text, "\nfree {id}"),
            }
            .expect("a string");
        }
        self.0.ask(&text);
    }

    /// Per event of a replay, without memory before.
    pub(super) fn first_ns(&mut self) -> f64 {
        self.0.ask("first")
    }

    /// Per event of another replay.
    pub(super) fn again_ns(&mut self) -> f64 {
        self.0.ask("again")
    }
}
