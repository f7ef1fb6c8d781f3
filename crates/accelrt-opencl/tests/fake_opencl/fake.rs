//! A fake OpenCL of its own for a test: settings, counters, and the file that accelrt opens.
#![expect(unsafe_code, reason = "calls the fake's control functions by their addresses")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::library;

/// Far beyond what a thread of the fake needs to end: only a leak lasts as long.
const ENDS: Duration = Duration::from_secs(20);

/// Counts the copies of this process.
static COPIES: AtomicUsize = AtomicUsize::new(0);

/// One fake. Its state is its own, because its file is: a copy is another library to the loader.
#[derive(Debug)]
pub(crate) struct Fake {
    path: PathBuf,
    configure: unsafe extern "C" fn(*const c_char) -> c_int,
    live: unsafe extern "C" fn(*const c_char) -> u64,
}

impl Fake {
    /// A fake with these settings: `key=value`, separated by commas; `settings.c` has the keys.
    pub(crate) fn new(settings: &str) -> Self {
        Self::of(library::whole(), settings)
    }

    /// A fake that was built in another way.
    pub(crate) fn of(library: &Path, settings: &str) -> Self {
        // Relaxed: only that no two are equal matters.
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = library.with_extension(format!("{}.{number}.so", std::process::id()));
        fs::copy(library, &path).expect("the fake can be copied");
        let name = CString::new(path.to_str().expect("plain letters")).expect("no zero in it");
        // SAFETY: the name ends with a zero; the fake runs nothing when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the fake can be opened");
        let fake = Self {
            path,
            // SAFETY: the fake's header declares it with this type.
            configure: unsafe {
                std::mem::transmute_copy(&symbol(handle, c"fake_opencl_configure"))
            },
            // SAFETY: as above.
            live: unsafe { std::mem::transmute_copy(&symbol(handle, c"fake_opencl_live")) },
        };
        fake.set(settings);
        fake
    }

    /// What `ACCELRT_OPENCL_LIBRARY` would be.
    pub(crate) fn path(&self) -> String {
        self.path.to_str().expect("plain letters").to_owned()
    }

    /// Changes settings.
    #[track_caller]
    pub(crate) fn set(&self, settings: &str) {
        let text = CString::new(settings).expect("no zero in it");
        // SAFETY: the library is never closed; the text ends with a zero.
        assert_eq!(unsafe { (self.configure)(text.as_ptr()) }, 0, "{settings}");
    }

    /// How many there are of something, or were: see `opencl.h`.
    pub(crate) fn live(&self, what: &str) -> u64 {
        let text = CString::new(what).expect("no zero in it");
        // SAFETY: as in `set`.
        let count = unsafe { (self.live)(text.as_ptr()) };
        assert_ne!(count, u64::MAX, "the fake counts no {what}");
        count
    }

    /// Asserts that no rule of OpenCL was broken and that of these things nothing is left. What the
    /// caller's threads are giving back just now is waited for.
    #[track_caller]
    pub(crate) fn assert_none_of(&self, kinds: &[&str]) {
        assert_eq!(self.live("violations"), 0, "rules of OpenCL were broken: stderr says which");
        let deadline = Instant::now() + ENDS;
        for kind in kinds {
            while self.live(kind) != 0 {
                assert!(Instant::now() < deadline, "{} {kind} are left", self.live(kind));
                thread::yield_now();
            }
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // What is open stays open; a file that is gone already is gone.
        let _ = fs::remove_file(&self.path);
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is open, the name ends with a zero.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!found.is_null(), "the fake has {name:?}");
    found
}
