//! A process that measures its own allocator and takes turns with ours.
//!
//! It answers questions, a line each.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) struct Answering {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Answering {
    /// Starts it; the second is the line that it begins with, empty where it ends at once.
    pub(super) fn start(command: &mut Command) -> io::Result<(Self, String)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // a loader complains there
            .spawn()?;
        let questions = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut answering = Self { child, questions, answers };
        let first = answering.answer()?;
        Ok((answering, first))
    }

    /// The answer to a question, which may have lines below it.
    pub(super) fn ask(&mut self, question: &str) -> f64 {
        writeln!(self.questions, "{question}").expect("the child listens");
        self.answer().expect("the child answers").parse().expect("a number")
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}
