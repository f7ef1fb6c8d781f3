//! Descriptor 1 and the C library's buffer for it.
#![expect(unsafe_code, reason = "calls the system and the C library")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

const STANDARD_OUTPUT: RawFd = 1;

// SAFETY: the C library defines both symbols with these types.
unsafe extern "C" {
    static stdout: *mut libc::FILE;
    /// Buffer size of a C stream; 0 until the stream's first use. Exists in glibc and musl.
    fn __fbufsize(stream: *mut libc::FILE) -> libc::size_t;
}

fn c_output() -> *mut libc::FILE {
    // SAFETY: the C library sets `stdout` before `main`, and programs do not change it.
    unsafe { stdout }
}

/// Flushes the C library's standard output. Ignores errors: a later write reports them.
pub(super) fn flush_c_output() {
    // SAFETY: `stdout` is an open stream, and `fflush` locks it.
    unsafe { libc::fflush(c_output()) };
}

/// Sets line buffering if the original output is a terminal. The C library chooses the mode at the
/// first use, and would choose full buffering for the pipe that replaces the terminal.
pub(super) fn set_line_buffering_for(terminal: &OwnedFd) {
    // SAFETY: the descriptor is open.
    let is_terminal = unsafe { libc::isatty(terminal.as_raw_fd()) } == 1;
    // SAFETY: `stdout` is an open stream, which `__fbufsize` only reads.
    if is_terminal && unsafe { __fbufsize(c_output()) } == 0 {
        // SAFETY: `stdout` is an open, unused stream. For null, the C library allocates its buffer.
        unsafe { libc::setvbuf(c_output(), null_mut(), libc::_IOLBF, 0) };
    }
}

/// Duplicates descriptor 1, close-on-exec; `None` if it is closed.
pub(super) fn duplicate_output() -> io::Result<Option<OwnedFd>> {
    // SAFETY: the borrow ends in this function. For a closed descriptor, the clone fails.
    let output = unsafe { BorrowedFd::borrow_raw(STANDARD_OUTPUT) };
    match output.try_clone_to_owned() {
        Ok(copy) => Ok(Some(copy)),
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a pipe with descriptors above 2, close-on-exec.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((away_from_standard(read.into())?, away_from_standard(write.into())?))
}

/// Replaces a pipe's end by a clone above 2 if its number is that of a standard descriptor.
fn away_from_standard(end: OwnedFd) -> io::Result<OwnedFd> {
    if end.as_raw_fd() > 2 { Ok(end) } else { end.try_clone() }
}

/// Makes descriptor 1 a duplicate of `descriptor`.
pub(super) fn replace_output(descriptor: &OwnedFd) -> io::Result<()> {
    loop {
        // SAFETY: `descriptor` is open; the call closes the previous file of descriptor 1.
        if unsafe { libc::dup2(descriptor.as_raw_fd(), STANDARD_OUTPUT) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

pub(super) fn close_output() {
    // SAFETY: descriptor 1 is the pipe from `replace_output`, and has no other owner.
    unsafe { libc::close(STANDARD_OUTPUT) };
}

/// True when descriptor 1 is an end of the same pipe as `end`.
pub(super) fn is_output(end: &OwnedFd) -> bool {
    let identity = |descriptor| {
        let found = file(descriptor).metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    let of_output = identity(STANDARD_OUTPUT);
    of_output.is_some() && of_output == identity(end.as_raw_fd())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeState {
    Bytes,
    Nothing,
    /// All writers have closed the pipe.
    End,
}

/// Blocks until a pipe has bytes or ends, or for `timeout_ms`; -1 means no timeout.
pub(super) fn wait_for(end: &OwnedFd, timeout_ms: i32) -> PipeState {
    match poll(end, libc::POLLIN, timeout_ms) {
        None => PipeState::Nothing,
        Some(events) if events & libc::POLLIN == 0 => PipeState::End,
        Some(_) => PipeState::Bytes,
    }
}

/// Waits for events of a descriptor. `None` after the timeout or an interruption by a signal.
fn poll(descriptor: &OwnedFd, events: libc::c_short, timeout_ms: i32) -> Option<libc::c_short> {
    let mut request = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
    // SAFETY: the count is 1, and the one structure lives during the call.
    let count = unsafe { libc::poll(&raw mut request, 1, timeout_ms) };
    (count > 0).then_some(request.revents)
}

pub(super) fn byte_count(end: &OwnedFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: `FIONREAD` writes one C integer, and `count` is one.
    let answer = unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if answer == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// Reads available bytes. Blocks when the pipe is empty.
pub(super) fn read(end: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match file(end.as_raw_fd()).read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes all bytes, also to a non-blocking descriptor.
pub(super) fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file(target.as_raw_fd()).write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(target, libc::POLLOUT, -1); // until there is room
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Wraps the descriptor as a file that never closes it. Reads and writes of a closed one fail.
fn file(descriptor: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the file is never dropped, so only the descriptor's owner closes it.
    ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) })
}

/// Read ends of pipes that forked children must not hold; 0 marks a free entry. A child reads no
/// pipe. If a child held a read end, its writes to a full pipe would block after the parent's exit
/// instead of failing.
static READING_ENDS: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// Makes forked children close their copies of a read end. Has no effect beyond sixteen ends.
pub(super) fn close_in_children(end: &OwnedFd) {
    static WATCHING: Once = Once::new();
    extern "C" fn in_child() {
        // Relaxed, here and below: the forking thread sees the values from before the fork.
        for number in READING_ENDS.iter().map(|end| end.load(Ordering::Relaxed)) {
            if number != 0 {
                // Replaces the read end by a copy of descriptor 1, so that its owner in the child
                // may still close the number.
                // SAFETY: an async-signal-safe call; the first descriptor is the standard output,
                // the second a read end that this process owns.
                unsafe { libc::dup3(STANDARD_OUTPUT, number.cast_signed(), libc::O_CLOEXEC) };
            }
        }
    }
    WATCHING.call_once(|| {
        // SAFETY: the handler is a function of this library, which stays loaded.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(refused, 0, "pthread_atfork fails only without memory");
    });
    replace_reading_end(0, end.as_raw_fd().cast_unsigned());
}

/// Reverts [`close_in_children`]. The owner of `end` must call this before it closes `end`.
pub(super) fn forget(end: &OwnedFd) {
    replace_reading_end(end.as_raw_fd().cast_unsigned(), 0);
}

/// Replaces the entry `from` of [`READING_ENDS`] by `to`. Without such an entry, has no effect.
fn replace_reading_end(from: u32, to: u32) {
    let _ = READING_ENDS.iter().find(|place| {
        place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
}

/// Makes the C library call `handler` at `exit`, before the flush of its buffers.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: `handler` takes no arguments. If this library is unloaded before the exit, the C
    // library calls `handler` at the unloading.
    let refused = unsafe { libc::atexit(handler) };
    assert_eq!(refused, 0, "atexit fails only without memory");
}
