//! Opens shared libraries at run time: the only file that calls `dlopen` and `dlsym`.
//!
//! This file calls the C library directly. A crate such as `libloading` wraps the same functions,
//! but closes a library when its owner is dropped. `dlclose` would unmap code that a driver's
//! threads and exit handlers still execute.
#![expect(unsafe_code, reason = "calls the dynamic loader")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The `lib` folder of the Python environment, which the loader does not search.
static PYTHON_LIB_DIR: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder where Python's wheels install libraries. Later calls have no effect.
pub fn set_python_lib_dir(folder: PathBuf) {
    let _ = PYTHON_LIB_DIR.set(folder);
}

/// The folder that [`set_python_lib_dir`] has set.
pub fn python_lib_dir() -> Option<&'static std::path::Path> {
    PYTHON_LIB_DIR.get().map(|folder| &**folder)
}

/// The loader's handle of a library that stays open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: the handle names a library that is never closed, and any thread may search its symbols.
unsafe impl Send for Library {}
// SAFETY: the handle never changes, and its library is never closed.
unsafe impl Sync for Library {}

/// The error of [`Library::open_first`]: the loader's message for each name.
#[derive(Debug)]
pub struct OpenError(Vec<String>);

impl OpenError {
    /// The reason for each name that could not be opened.
    #[must_use]
    pub fn refusals(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no library could be opened ({})", self.0.join("; "))
    }
}

impl Library {
    /// Opens the first of these names or paths that the loader accepts. The loader runs the
    /// library's initialisation code.
    pub fn open_first(names: &[&str]) -> Result<Self, OpenError> {
        let mut refusals = Vec::new();
        for name in names {
            match open(name) {
                Ok(library) => return Ok(library),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(OpenError(refusals))
    }

    /// The address of a symbol of the library.
    #[must_use]
    pub fn symbol(self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle's library is never closed, and the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// A symbol (a function or a variable) and the loaded library that has it.
#[derive(Clone, Debug)]
pub struct FoundLibrary {
    /// The file that defines the symbol.
    pub path: String,
    /// A library that defines the symbol or depends on the defining library. Never closed.
    pub library: Library,
    /// The address of the symbol.
    pub address: NonNull<c_void>,
}

// SAFETY: the library is never closed. Code that dereferences the address justifies its access.
unsafe impl Send for FoundLibrary {}
// SAFETY: the fields never change, and the library is never closed.
unsafe impl Sync for FoundLibrary {}

/// The libraries that the process had loaded when [`LoadedLibraries::now`] listed them.
#[derive(Debug, Default)]
pub struct LoadedLibraries {
    /// The loader's counts of loads and unloads. Equal counts mean the same libraries.
    pub changes: (u64, u64),
    /// The libraries' names, in the loader's order. The name of the program itself is empty.
    pub names: Vec<CString>,
}

impl LoadedLibraries {
    /// The libraries that the process has loaded.
    pub fn now() -> Self {
        /// # Safety
        /// `info` describes a library; `loaded` is a [`LoadedLibraries`] that only this call uses.
        unsafe extern "C" fn note(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            loaded: *mut c_void,
        ) -> c_int {
            // SAFETY: `loaded` points to a local of `now`, which only this call uses.
            let loaded = unsafe { &mut *loaded.cast::<LoadedLibraries>() };
            // SAFETY: the loader passes a description that is valid during the call.
            let info = unsafe { &*info };
            loaded.changes = (info.dlpi_adds, info.dlpi_subs);
            if !info.dlpi_name.is_null() {
                // SAFETY: the name ends with a zero and is copied here.
                loaded.names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
            }
            0
        }
        let mut loaded = Self::default();
        // SAFETY: `note` has the loader's callback type and calls no function of the loader; the
        // pointer is to a local that outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loaded).cast()) };
        loaded
    }

    /// Finds every definition of `symbol` that one of these libraries exports.
    #[must_use]
    pub fn definitions(&self, symbol: &str) -> Vec<FoundLibrary> {
        let mut found: Vec<FoundLibrary> = Vec::new();
        for name in &self.names {
            let Some(handle) = handle_of_loaded(name) else { continue };
            let library = Library(handle);
            // `symbol` also searches the library's dependencies, so `filter` discards duplicates.
            let new = library.symbol(symbol).filter(|new| found.iter().all(|f| f.address != *new));
            if let Some(address) = new {
                let path = file_of(address).unwrap_or_else(|| name.to_string_lossy().into_owned());
                found.push(FoundLibrary { path, library, address });
            } else {
                // SAFETY: `handle_of_loaded` added a reference, and the handle is not used again.
                unsafe { libc::dlclose(handle.as_ptr()) };
            }
        }
        found
    }
}

/// Adds a reference to a library that is already loaded; `None` if the library is not loaded.
fn handle_of_loaded(name: &CStr) -> Option<NonNull<c_void>> {
    // The null pointer names the program itself.
    let name = if name.is_empty() { std::ptr::null() } else { name.as_ptr() };
    // SAFETY: the name is null or ends with a zero. `NOLOAD` loads no library, so no code runs.
    NonNull::new(unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) })
}

/// The file of the library that an address belongs to.
#[must_use]
pub fn file_of(address: NonNull<c_void>) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts any address, and writes the description.
    let is_known = unsafe { libc::dladdr(address.as_ptr(), info.as_mut_ptr()) } != 0;
    // SAFETY: the description is valid even if `dladdr` wrote nothing: zeroed pointers are null.
    let file = unsafe { info.assume_init() }.dli_fname;
    if !is_known || file.is_null() {
        return None;
    }
    // SAFETY: the name ends with a zero and lives as long as the library, which is open.
    Some(unsafe { CStr::from_ptr(file) }.to_string_lossy().into_owned())
}

fn open(name: &str) -> Result<Library, String> {
    let Ok(c_name) = CString::new(name) else {
        return Err(format!("{name:?}: a name has no zero byte in it"));
    };
    // `NOW`: a library with a missing symbol fails here instead of in the middle of a call.
    // `LOCAL`: the library's symbols do not replace those of other libraries.
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name ends with a zero. The caller named the library, and so asked for its
    // initialisation code, which runs here.
    let handle = unsafe { libc::dlopen(c_name.as_ptr(), flags) };
    NonNull::new(handle).map(Library).ok_or_else(|| refusal(name))
}

/// Takes the loader's message about this thread's last failed call, and adds the file's name.
fn refusal(name: &str) -> String {
    // SAFETY: the call has no pre-condition; this thread may read the text until its next loader
    // call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{name}: the loader gives no reason");
    }
    // SAFETY: the text ends with a zero and is copied before this thread calls the loader again.
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
    fn a_definition_is_found_once_with_its_file_and_a_missing_one_not_at_all() {
        let loaded = LoadedLibraries::now();
        assert!(loaded.names.len() > 1 && loaded.changes.0 > 0, "{loaded:?}");
        let found = loaded.definitions("pthread_create");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].path.contains("libc") || found[0].path.contains("ld-"), "{found:?}");
        assert_eq!(found[0].library.symbol("pthread_create"), Some(found[0].address));
        assert!(loaded.definitions("there_is_no_such_symbol").is_empty());
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
