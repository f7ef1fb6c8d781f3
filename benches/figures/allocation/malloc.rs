//! `malloc` as a peer: this program once more, with another allocator in front of the C library's.
//!
//! A child measures what it is told, line by line, so that it takes turns with ours.
#![expect(unsafe_code, reason = "malloc and free are the C library's")]
#![expect(clippy::print_stdout, reason = "the child answers there")]

use std::env;
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Memory;
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
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// `None` where there is no such library.
    pub(crate) fn start(name: &'static str, library: &str) -> io::Result<Option<Self>> {
        let mut child = Command::new(env::current_exe()?)
            .args([ARGUMENT, library])
            .env("LD_PRELOAD", library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // the loader complains there
            .spawn()?;
        let questions = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut peer = Self { name, child, questions, answers };
        Ok((peer.answer()? == "ready").then_some(peer))
    }

    /// Every peer, in the order of [`PEERS`].
    pub(crate) fn all() -> io::Result<Vec<(&'static str, Option<Self>)>> {
        PEERS.iter().map(|(name, library)| Ok((*name, Self::start(name, library)?))).collect()
    }

    /// Nanoseconds of one of `count` pairs.
    pub(crate) fn pair_ns(&mut self, bytes: usize, count: usize) -> f64 {
        self.ask(&format!("pair {bytes} {count}"))
    }

    /// Nanoseconds of one of `count` blocks that another thread frees.
    pub(crate) fn handed_over_ns(&mut self, bytes: usize, count: usize) -> f64 {
        self.ask(&format!("handed {bytes} {count}"))
    }

    fn ask(&mut self, question: &str) -> f64 {
        writeln!(self.questions, "{question}").expect("the child listens");
        self.answer().expect("the child answers").parse().expect("a number")
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}
