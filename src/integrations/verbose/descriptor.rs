//! Descriptor 1 and the C library's buffer for it.
#![expect(unsafe_code, reason = "calls the system and the C library")]

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Once;

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU32;

/// The descriptor that captures replace.
const STANDARD_OUTPUT: RawFd = 1;

// SAFETY: the C library defines both with these types.
unsafe extern "C" {
    /// The C library's standard output.
    static stdout: *mut libc::FILE;
    /// Size of a stream's buffer; 0 until the stream's first use. Exists in glibc and musl.
    fn __fbufsize(stream: *mut libc::FILE) -> libc::size_t;
}

fn c_output() -> *mut libc::FILE {
    // SAFETY: the C library sets it before `main`, and programs do not write it.
    unsafe { stdout }
}

/// Flushes the C library's standard output. Ignores errors: a later write reports them.
pub(super) fn flush_c_output() {
    // SAFETY: a stream of the C library, which locks it.
    unsafe { libc::fflush(c_output()) };
}

/// Sets line buffering, as for a terminal. The C library chooses the mode at the first use; with a
/// pipe in place of the terminal, it would choose full buffering.
pub(super) fn set_line_buffering_for(terminal: &OwnedFd) {
    // SAFETY: the descriptor is open.
    let is_terminal = unsafe { libc::isatty(terminal.as_raw_fd()) } == 1;
    // SAFETY: a stream of the C library.
    if is_terminal && unsafe { __fbufsize(c_output()) } == 0 {
        // SAFETY: an unused stream of the C library, which allocates the buffer itself for null.
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

/// A new pipe may get a closed standard descriptor's number. A clone has a number above 2.
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

/// Closes descriptor 1.
pub(super) fn close_output() {
    // SAFETY: descriptor 1 is the pipe from `replace_output`, and has no other owner.
    unsafe { libc::close(STANDARD_OUTPUT) };
}

/// True when descriptor 1 is an end of the same pipe as `end`.
pub(super) fn is_output(end: &OwnedFd) -> bool {
    let of_output = identity(STANDARD_OUTPUT);
    of_output.is_some() && of_output == identity(end.as_raw_fd())
}

fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: any number is allowed; the call writes the structure.
    let is_open = unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } == 0;
    // SAFETY: zeroed before the call, and all zeroes are a valid structure.
    let found = unsafe { found.assume_init() };
    is_open.then_some((found.st_dev, found.st_ino))
}

/// The state of a pipe for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeState {
    Bytes,
    Nothing,
    /// All writers have closed the pipe.
    End,
}

/// Waits until a pipe has bytes or ends, at most for the timeout. -1 is infinite.
pub(super) fn wait_for(end: &OwnedFd, timeout_ms: i32) -> PipeState {
    let mut asked = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives during the call.
    let answer = unsafe { libc::poll(&raw mut asked, 1, timeout_ms) };
    match (answer, asked.revents & libc::POLLIN) {
        (1.., 0) => PipeState::End,
        (1.., _) => PipeState::Bytes,
        _ => PipeState::Nothing, // also after an interruption: callers poll again
    }
}

/// The number of bytes in a pipe.
pub(super) fn byte_count(end: &OwnedFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one C integer.
    let answer = unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if answer == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// Reads available bytes. Blocks when the pipe is empty.
pub(super) fn read(end: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match file(end).read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes all bytes, also to a non-blocking descriptor.
pub(super) fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file(target).write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(target),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_for_room(target: &OwnedFd) {
    let mut asked = libc::pollfd { fd: target.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure, which lives during the call.
    unsafe { libc::poll(&raw mut asked, 1, -1) };
}

/// The descriptor as a file, without closing it.
fn file(descriptor: &OwnedFd) -> std::mem::ManuallyDrop<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is open, and the file is never dropped, so only the owner closes it.
    std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor.as_raw_fd()) })
}

/// Reading ends that forked children must not hold; 0 if unused. A child does not read the pipe.
/// With a reading end, its output would fill the pipe after the parent's end, and block.
static READING_ENDS: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// Makes forked children close their copies of a reading end. Has no effect beyond sixteen ends.
pub(super) fn close_in_children(end: &OwnedFd) {
    static WATCHING: Once = Once::new();
    extern "C" fn in_child() {
        // Relaxed, here and below: the forking thread sees the values from before the fork.
        for number in READING_ENDS.iter().map(|end| end.load(Ordering::Relaxed)) {
            if number != 0 {
                // Replaces the end, so that its owner in the child may still close the number.
                // SAFETY: an async-signal-safe call; the first descriptor is the standard output,
                // the second a reading end that this process owns.
                unsafe { libc::dup3(STANDARD_OUTPUT, number.cast_signed(), libc::O_CLOEXEC) };
            }
        }
    }
    WATCHING.call_once(|| {
        // SAFETY: the handler is a function of this library, which stays loaded.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(refused, 0, "pthread_atfork fails only without memory");
    });
    let number = end.as_raw_fd().cast_unsigned();
    for place in &READING_ENDS {
        if place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Ends [`close_in_children`] for an end. Called before the end is closed.
pub(super) fn forget(end: &OwnedFd) {
    let number = end.as_raw_fd().cast_unsigned();
    for place in &READING_ENDS {
        if place.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Makes the C library call `handler` at `exit`, before the flush of its buffers.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: a function of this library without arguments. If this library is unloaded earlier,
    // the C library calls the handler then.
    let refused = unsafe { libc::atexit(handler) };
    assert_eq!(refused, 0, "atexit fails only without memory");
}
