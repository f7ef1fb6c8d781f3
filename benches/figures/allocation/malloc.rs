//! `malloc` as a peer: this program once more, with another allocator in front of the C library's.
//!
//! A child measures what it is told, line by line, so that it takes turns with ours.
#![expect(unsafe_code, reason = "malloc and free are the C library's")]
#![expect(clippy::print_stdout, reason = "the child answers there")]

use std::env;
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead};
use std::process::Command;

use super::Memory;
use super::child::Answering;
use super::pairs::pair_ns;
use super::threads::handed_over_ns;

/// What makes this program a child.
pub(crate) const ARGUMENT: &str = "--measure-malloc";

/// Names, and the libraries that the loader looks for. The last one is what is there anyway.
pub(crate) const PEERS: [(&str, &str); 4] = [
    ("mimalloc", "libmimalloc.so.2"),
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("glibc", ""),
];

/// The allocator of this process.
struct Malloc;

impl Memory for Malloc {
    type Block = usize;

    #[inline]
    fn allocate(&self, bytes: usize, _stream: u64) -> usize {
        // SAFETY: any size may be asked for.
        black_box(unsafe { libc::malloc(black_box(bytes)) }).expose_provenance()
    }

    #[inline]
    fn free(&self, block: usize) {
        // SAFETY: from `allocate`, and freed once, as by everything that measures a `Memory`.
        unsafe { libc::free(std::ptr::with_exposed_provenance_mut(block)) };
    }
}

/// Answers a parent until it ends.
pub(crate) fn serve(library: &str) -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    println!(
        "{}",
        if maps.contains(library.trim_end_matches(".so.2")) { "ready" } else { "missing" }
    );
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<_> = line.split(' ').collect();
        let number = |place: usize| fields[place].parse().map_err(io::Error::other);
        let (bytes, count) = (number(1)?, number(2)?);
        let ns = match fields[0] {
            "pair" => pair_ns(&Malloc, bytes, count),
            _ => handed_over_ns(&Malloc, bytes, count),
        };
        println!("{ns}");
    }
    Ok(())
}

/// A child that measures its own `malloc`.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    child: Answering,
}

impl Peer {
    /// `None` where there is no such library.
    pub(crate) fn start(name: &'static str, library: &str) -> io::Result<Option<Self>> {
        let mut command = Command::new(env::current_exe()?);
        command.args([ARGUMENT, library]).env("LD_PRELOAD", library);
        let (child, first) = Answering::start(&mut command)?;
        Ok((first == "ready").then_some(Self { name, child }))
    }

    /// Every peer, in the order of [`PEERS`].
    pub(crate) fn all() -> io::Result<Vec<(&'static str, Option<Self>)>> {
        PEERS.iter().map(|(name, library)| Ok((*name, Self::start(name, library)?))).collect()
    }

    /// Nanoseconds of one of `count` pairs.
    pub(crate) fn pair_ns(&mut self, bytes: usize, count: usize) -> f64 {
        self.child.ask(&format!("pair {bytes} {count}"))
    }

    /// Nanoseconds of one of `count` blocks that another thread frees.
    pub(crate) fn handed_over_ns(&mut self, bytes: usize, count: usize) -> f64 {
        self.child.ask(&format!("handed {bytes} {count}"))
    }
}
