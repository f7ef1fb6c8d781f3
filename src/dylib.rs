//! Shared libraries opened at run time: the only place that opens any.
//!
//! Through the C library's own functions. A crate such as `libloading` wraps the same three calls,
//! and adds that a library is closed with its owner, which must not happen here: a driver has
//! threads, and handlers for the end of the process, whose code would be gone.
#![expect(unsafe_code, reason = "calls the dynamic loader")]

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr::NonNull;

/// A library that stays open until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: the handle names a library that is never closed; looking symbols up in it is allowed from
// any thread.
unsafe impl Send for Library {}
// SAFETY: as above: nothing about the handle changes.
unsafe impl Sync for Library {}

/// Why no library was opened: what the loader said of each name.
#[derive(Debug)]
pub(crate) struct NotOpened(Vec<String>);

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no library could be opened ({})", self.0.join("; "))
    }
}

impl Library {
    /// Opens the first of these names or paths that can be opened. Runs what the library does when
    /// it is loaded.
    pub(crate) fn open_first(names: &[&str]) -> Result<Self, NotOpened> {
        let mut refusals = Vec::new();
        for name in names {
            match open(name) {
                Ok(library) => return Ok(library),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(NotOpened(refusals))
    }

    /// Where the library has a symbol, if it has one.
    pub(crate) fn symbol(self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is of a library that is open, the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

fn open(name: &str) -> Result<Library, String> {
    let Ok(c_name) = CString::new(name) else {
        return Err(format!("{name:?}: a name has no zero byte in it"));
    };
    // Now: a library that lacks something fails here instead of in the middle of a call. Local: its
    // names do not take the place of other libraries'.
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name ends with a zero. The library's own start-up code runs, which is what the
    // caller asked for by the name.
    let handle = unsafe { libc::dlopen(c_name.as_ptr(), flags) };
    NonNull::new(handle).map(Library).ok_or_else(|| refusal(name))
}

/// What the loader says about the call of this thread that just failed; it names the file.
fn refusal(name: &str) -> String {
    // SAFETY: without arguments; the text is this thread's until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{name}: the loader gives no reason");
    }
    // SAFETY: it is a text that ends with a zero and is copied before the loader is called again.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if text.contains(name) { text } else { format!("{name}: {text}") }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_library_that_opens_is_taken_and_has_its_symbols() {
        let names = ["libaccelrt-is-not-here.so.1", "libm.so.6"];
        let library = Library::open_first(&names).unwrap();
        assert!(library.symbol("cos").is_some());
        assert!(library.symbol("there is no such symbol").is_none());
        assert!(library.symbol("c\0s").is_none());
    }

    #[test]
    fn a_refusal_names_everything_that_was_tried() {
        let names = ["libaccelrt-one.so", "/accelrt/two.so", "three\0.so"];
        let message = Library::open_first(&names).unwrap_err().to_string();
        for part in ["libaccelrt-one.so", "/accelrt/two.so", "three", "No such file"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}
