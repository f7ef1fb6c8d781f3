//! Forks: a child of this process, which runs a function and ends.
#![expect(unsafe_code, reason = "fork, waitpid and alarm are the C library's")]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seconds after which a child that hangs is killed. Only a hang lasts as long.
pub(crate) const HANG_S: u32 = 10;

/// How a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// As a process does that returns from `main`; else at once, without its handlers at exit.
    pub(crate) runs_handlers: bool,
}

/// Forks; the child runs `child` and ends; waits for it. Panics when it did not end well.
#[track_caller]
pub(crate) fn in_child(end: End, child: impl FnOnce()) {
    // SAFETY: the child runs on in this thread alone. It allocates and exits, which the C library
    // allows after a fork; of our own state it uses what the test is about.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "the system forks");
    if process == 0 {
        // SAFETY: sets a timer whose signal kills this child.
        unsafe { libc::alarm(HANG_S) };
        let status = i32::from(catch_unwind(AssertUnwindSafe(child)).is_err());
        if end.runs_handlers {
            #[expect(clippy::disallowed_methods, reason = "a child of a test ends itself")]
            std::process::exit(status);
        }
        // SAFETY: ends the child without what the parent's threads would have to do.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and was not waited for; the pointer is to a number of this frame.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    assert!(!libc::WIFSIGNALED(status), "killed by signal {}: a hang", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}
