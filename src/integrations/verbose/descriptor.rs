//! Descriptor 1 and the C library's buffer in front of it.
#![expect(unsafe_code, reason = "calls the system and the C library")]

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Once;

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU32;

/// The descriptor that captures replace.
const STANDARD_OUTPUT: RawFd = 1;

// SAFETY: both are the C library's, of these types.
unsafe extern "C" {
    /// The C library's standard output.
    static stdout: *mut libc::FILE;
    /// Size of a stream's buffer; 0 until its first use. Of glibc and musl.
    fn __fbufsize(stream: *mut libc::FILE) -> libc::size_t;
}

fn c_output() -> *mut libc::FILE {
    // SAFETY: the C library sets it before `main` and programs do not write to it.
    unsafe { stdout }
}

/// Flushes the C library's standard output. Its errors are left to the writer.
pub(super) fn flush_c_output() {
    // SAFETY: the stream is the C library's own, which locks it.
    unsafe { libc::fflush(c_output()) };
}

/// The C library chooses line buffering at the first use. While descriptor 1 is a pipe in place of
/// a terminal, it would choose wrongly, so it is told.
pub(super) fn keep_lines_for(terminal: &OwnedFd) {
    // SAFETY: the descriptor is open.
    let is_terminal = unsafe { libc::isatty(terminal.as_raw_fd()) } == 1;
    // SAFETY: the stream is the C library's own.
    if is_terminal && unsafe { __fbufsize(c_output()) } == 0 {
        // SAFETY: as above, and it was not used yet; the null pointer has it make its own buffer.
        unsafe { libc::setvbuf(c_output(), null_mut(), libc::_IOLBF, 0) };
    }
}

/// A copy of descriptor 1 that children do not inherit; `None` where it is closed.
pub(super) fn copy_of_output() -> io::Result<Option<OwnedFd>> {
    // SAFETY: the descriptor may be closed, which the call answers; no other one is touched.
    let output = unsafe { BorrowedFd::borrow_raw(STANDARD_OUTPUT) };
    match output.try_clone_to_owned() {
        Ok(copy) => Ok(Some(copy)),
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Both ends of a pipe, with numbers above 2, which children do not inherit.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((away_from_standard(read.into())?, away_from_standard(write.into())?))
}

/// When descriptor 1 is closed, a pipe gets that number first.
fn away_from_standard(end: OwnedFd) -> io::Result<OwnedFd> {
    if end.as_raw_fd() > 2 { Ok(end) } else { end.try_clone() }
}

/// Makes descriptor 1 a duplicate of this one.
pub(super) fn become_output(descriptor: &OwnedFd) -> io::Result<()> {
    loop {
        // SAFETY: the first is open; the call closes what the second was before.
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
    // SAFETY: descriptor 1 is the pipe that `become_output` put there, which nothing else owns.
    unsafe { libc::close(STANDARD_OUTPUT) };
}

/// True when descriptor 1 is an end of the same pipe as this one.
pub(super) fn is_output(end: &OwnedFd) -> bool {
    let of_output = identity(STANDARD_OUTPUT);
    of_output.is_some() && of_output == identity(end.as_raw_fd())
}

fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: any number is allowed; the call writes the structure.
    let is_open = unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } == 0;
    // SAFETY: zeroed is a valid structure too.
    let found = unsafe { found.assume_init() };
    is_open.then_some((found.st_dev, found.st_ino))
}

/// The state of a pipe for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Bytes,
    Nothing,
    /// All writers are gone.
    End,
}

/// Waits until a pipe has something, at most for the timeout; -1 is for ever.
pub(super) fn wait_for(end: &OwnedFd, timeout_ms: i32) -> Waiting {
    let mut asked = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives during the call.
    let answer = unsafe { libc::poll(&raw mut asked, 1, timeout_ms) };
    match (answer, asked.revents & libc::POLLIN) {
        (1.., 0) => Waiting::End,
        (1.., _) => Waiting::Bytes,
        _ => Waiting::Nothing, // also when interrupted: callers look again
    }
}

/// How many bytes a pipe has.
pub(super) fn byte_count(end: &OwnedFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one C integer.
    let answer = unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if answer == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// Reads the bytes that are there; blocks when there are none.
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

/// The descriptor as a file to read and write, which does not close it.
fn file(descriptor: &OwnedFd) -> std::mem::ManuallyDrop<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is open and stays its owner's: the file is never dropped.
    std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor.as_raw_fd()) })
}

/// Reading ends that a forked child must not have: it does not read, and once its parent is gone
/// its own output would fill the pipe and block it. 0 where there is none.
static READING_ENDS: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// Makes forked children give up their copy of a reading end. A child keeps any beyond sixteen.
pub(super) fn leave_to_parent(end: &OwnedFd) {
    static WATCHING: Once = Once::new();
    extern "C" fn in_child() {
        // Relaxed, here and below: the thread that forked sees the values from before the fork.
        for number in READING_ENDS.iter().map(|end| end.load(Ordering::Relaxed)) {
            if number != 0 {
                // The number stays taken, by the writing end, so that its owner may close it.
                // SAFETY: a call that is allowed between fork and exec; the first descriptor is
                // whatever the standard output is, the second is a reading end of ours.
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

/// Ends [`leave_to_parent`]; before the end is closed.
pub(super) fn forget(end: &OwnedFd) {
    let number = end.as_raw_fd().cast_unsigned();
    for place in &READING_ENDS {
        if place.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Calls `handler` when the process ends by `exit`, before the C library flushes its buffers.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: a function of this library without arguments. A library that registered one stays
    // loaded: the C library calls it when the library is closed.
    let refused = unsafe { libc::atexit(handler) };
    assert_eq!(refused, 0, "atexit fails only without memory");
}
