//! Captures collect the lines that a library prints, through a pipe that replaces descriptor 1.
//!
//! All captures of a process share one pipe. The first capture installs the pipe, the last removes
//! it. An open capture collects the lines that its library prints on any thread.
//!
//! Forks: a child has no reader thread. Its output passes through the parent's reader, even after
//! the parent's captures end. A child never takes a drain's lock. A capture holds the lock of the
//! sessions only for non-blocking steps. The Python module takes this lock only under the GIL, or
//! at the begin and the end of the process's runtime, so Python never forks while it is held.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::{Builder, JoinHandle};
use std::{fmt, process};

use accelrt::internal::{LockRank, Mutex, contain, with_signals_blocked};
use accelrt::{Error, IntegrationError, Result};
use accelrt_observe::internal::library_calls;

use crate::verbose::descriptor;
use crate::verbose::drain::Drain;
use crate::verbose::library::VerboseLibrary;

/// The installed pipes, the newest last. There are several if a program replaced descriptor 1
/// between two captures.
static SESSIONS: Mutex<Vec<Session>> = Mutex::new(LockRank::Capture, Vec::new());

struct Session {
    /// The process that installed the pipe. A child inherits the session, but no thread.
    process: u32,
    captures: usize,
    drain: Arc<Drain>,
    /// The reader thread. Not dropped in a child, where the thread does not exist.
    reader: ManuallyDrop<JoinHandle<()>>,
}

/// Collects the lines that a library prints until the capture is ended or dropped. All other
/// standard output passes through, in order. The beginning and the end of a capture flush the C
/// library's output buffer, but no buffer of the program.
///
/// ```
/// use accelrt_mkl::{VerboseCapture, VerboseLibrary, VerboseScope};
///
/// let capture = VerboseCapture::begin(VerboseLibrary::OneDnn)?;
/// // let watched = VerboseScope::enter(VerboseLibrary::OneDnn, 1, &[])?; and a call of it
/// let lines: Vec<String> = capture.end();
/// # assert!(lines.is_empty());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it collects lines until it is dropped"]
pub struct VerboseCapture {
    library: VerboseLibrary,
    process: u32,
    drain: Arc<Drain>,
    /// The id of this capture's collection in the drain; 0 before the start.
    id: u64,
    is_open: AtomicBool,
    is_attached: AtomicBool,
}

impl VerboseCapture {
    /// Begins to collect lines. Fails when the system refuses a descriptor or a thread.
    pub fn begin(library: VerboseLibrary) -> Result<Self> {
        Self::flush();
        let mut capture = Self::attach(library)?;
        capture.start(true);
        Ok(capture)
    }

    /// As [`VerboseCapture::begin`], for the profiles that are on: keeps no lines, and passes on
    /// those that tell of no call, such as a library's errors.
    pub fn begin_for_profiles(library: VerboseLibrary) -> Result<Self> {
        Self::flush();
        let mut capture = Self::attach(library)?;
        capture.start(false);
        Ok(capture)
    }

    /// The lines collected until now. Empty in a forked child: the parent collects the lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        descriptor::flush_c_output();
        if self.is_same_process() { self.drain.lines(self.id) } else { Vec::new() }
    }

    /// Ends the capture and returns its lines.
    #[must_use = "these are the lines"]
    pub fn end(self) -> Vec<String> {
        self.stop() // the drop detaches from the pipe
    }

    /// Flushes the C library's buffer. May block while the standard output accepts no bytes.
    #[doc(hidden)]
    pub fn flush() {
        descriptor::flush_c_output();
    }

    /// Shares the installed pipe, or installs a new one. Does not block.
    #[doc(hidden)]
    pub fn attach(library: VerboseLibrary) -> Result<Self> {
        let mut sessions = SESSIONS.lock();
        let process = process::id();
        let is_in_place = |one: &&mut Session| one.process == process && one.drain.is_output();
        let drain = if let Some(session) = sessions.last_mut().filter(is_in_place) {
            session.captures += 1;
            Arc::clone(&session.drain)
        } else {
            let session = Session::begin(process)?;
            let drain = Arc::clone(&session.drain);
            sessions.push(session);
            drain
        };
        let (is_open, is_attached) = (AtomicBool::new(false), AtomicBool::new(true));
        Ok(Self { library, process, drain, id: 0, is_open, is_attached })
    }

    /// Starts the collection of lines. May block while the standard output accepts no bytes.
    #[doc(hidden)]
    pub fn start(&mut self, keeps_lines: bool) {
        self.id = self.drain.open(self.library, keeps_lines);
        // Relaxed, here and below: the flag only lets one call end the capture; the drain's lock
        // orders the data.
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Stops the collection and returns its lines. May block while the standard output accepts no
    /// bytes.
    #[doc(hidden)]
    pub fn stop(&self) -> Vec<String> {
        if !self.is_open.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        descriptor::flush_c_output();
        if self.is_same_process() { self.drain.close(self.id) } else { Vec::new() }
    }

    /// Leaves the pipe. Does not block. The last capture removes the pipe and returns it, for the
    /// caller to finish.
    #[doc(hidden)]
    pub fn detach(&self) -> Option<CaptureEnd> {
        if !self.is_attached.swap(false, Ordering::Relaxed) {
            return None;
        }
        let mut sessions = SESSIONS.lock();
        let is_own = |one: &Session| Arc::ptr_eq(&one.drain, &self.drain);
        let place = sessions.iter().position(is_own)?;
        sessions[place].captures -= 1;
        let is_last = sessions[place].captures == 0;
        let ended = is_last.then(|| sessions.remove(place));
        ended.and_then(Session::end)
    }

    fn is_same_process(&self) -> bool {
        self.process == process::id()
    }
}

impl Drop for VerboseCapture {
    fn drop(&mut self) {
        self.stop();
        if let Some(ended) = self.detach() {
            ended.finish();
        }
    }
}

impl Session {
    /// Replaces descriptor 1 by a pipe and starts the reader thread.
    fn begin(process: u32) -> Result<Self> {
        static AT_EXIT: Once = Once::new();
        let refused = |call| {
            move |error: std::io::Error| {
                Error::Integration(IntegrationError::Capture(format!("{call}: {error}")))
            }
        };
        let target = descriptor::duplicate_output().map_err(refused("fcntl"))?;
        let (read, write) = descriptor::pipe().map_err(refused("pipe"))?;
        if let Some(target) = &target {
            descriptor::set_line_buffering_for(target);
        }
        descriptor::close_in_children(&read);
        let drain = Drain::new(read, target);
        let source = Arc::downgrade(&drain);
        let of_thread = Arc::clone(&drain);
        let reader = Builder::new().name("accelrt-verbose".to_owned());
        // The thread reads until all write ends are closed, so it also ends if the next call fails.
        let reader = with_signals_blocked(|| reader.spawn(move || of_thread.run()));
        let reader = ManuallyDrop::new(reader.map_err(refused("pthread_create"))?);
        descriptor::replace_output(&write).map_err(refused("dup2"))?;
        library_calls::add_source(source);
        AT_EXIT.call_once(|| descriptor::at_exit(end_at_exit));
        Ok(Self { process, captures: 1, drain, reader })
    }

    /// Restores descriptor 1, unless other code has replaced it since. Returns the removed pipe, or
    /// `None` in a child.
    fn end(self) -> Option<CaptureEnd> {
        if self.drain.is_output() {
            match &self.drain.target {
                // The result is ignored: the call cannot fail, since both descriptors are open.
                Some(target) => drop(descriptor::replace_output(target)),
                None => descriptor::close_output(),
            }
        }
        let is_same_process = self.process == process::id();
        is_same_process.then(|| CaptureEnd {
            drain: self.drain,
            reader: ManuallyDrop::into_inner(self.reader),
        })
    }
}

/// A removed pipe, which may still contain output.
pub struct CaptureEnd {
    drain: Arc<Drain>,
    reader: JoinHandle<()>,
}

impl fmt::Debug for CaptureEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureEnd").finish_non_exhaustive()
    }
}

impl CaptureEnd {
    /// Passes on the remaining output and joins the reader thread. If a child or a copy of
    /// descriptor 1 still holds the pipe, the thread continues instead. May block while the
    /// standard output accepts no bytes.
    pub fn finish(self) {
        self.drain.read_available();
        self.drain.emit_held();
        if self.drain.is_at_end() {
            // At the end of the pipe, the reader thread ends too. The result is ignored: a panic
            // has already printed its message.
            drop(self.reader.join());
        }
    }
}

/// Prints the pipe's remaining output when a process exits with an open capture.
extern "C" fn end_at_exit() {
    contain(|| {
        descriptor::flush_c_output();
        let mut sessions = std::mem::take(&mut *SESSIONS.lock());
        while let Some(session) = sessions.pop() {
            if let Some(ended) = session.end() {
                ended.finish();
            }
        }
    });
}
