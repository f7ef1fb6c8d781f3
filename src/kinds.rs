//! L3, kinds from outside: libraries with a table of functions, and the variable that names them.
//!
//! A library exports `accelrt_backend_table`, as `include/accelrt_backend.h` says. It is opened
//! once and never closed. The faces load what `ACCELRT_KINDS` names before they make the process's
//! runtime; a Rust program opens a [`KindLibrary`] itself.
#![expect(unsafe_code, reason = "calls the function that a library exports")]

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use crate::backend::contract::Backend;
use crate::backend::foreign::table::{ABI_VERSION, BackendTable};
use crate::backend::foreign::{ForeignBackend, check_table};
use crate::backend::registry::register_backend;
use crate::base::config;
use crate::base::config::KINDS_REFUSED;
use crate::base::device::DeviceKind;
use crate::base::dylib::Library;
use crate::base::error::{ConfigError, DeviceError, Error, Result};

/// What a library exports.
const SYMBOL: &str = "accelrt_backend_table";

/// Returns the table of a version of the interface, or null.
type GetTable = unsafe extern "C" fn(abi_version: u32) -> *const c_void;

/// The kind of device that a table of C functions describes.
#[derive(Clone, Debug)]
pub struct KindLibrary {
    kind: DeviceKind,
    table: BackendTable,
}

impl KindLibrary {
    /// Opens a library by its file or name, checks its table, and registers the name and type code
    /// of its kind. A library is never closed.
    ///
    /// Fails with what is wrong: the loader's words, no function `accelrt_backend_table`, a table
    /// of another version or without a function, a name or code that another kind has.
    ///
    /// # Safety
    /// The library's functions do what `include/accelrt_backend.h` says.
    ///
    /// ```no_run
    /// use accelrt::kinds::KindLibrary;
    /// // SAFETY: the vendor says that the library is one of a kind of device.
    /// let library = unsafe { KindLibrary::open("libnpu.so") }?;
    /// let kind = library.register()?;
    /// let runtime = accelrt::Runtime::global()?; // has devices of the kind
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub unsafe fn open(path: &str) -> Result<Self> {
        let opened = Library::open_first(&[path]);
        let library = opened.map_err(|error| refused(path, error.refusals().join("; ")))?;
        let symbol = library
            .symbol(SYMBOL)
            .ok_or_else(|| refused(path, format!("it exports no function {SYMBOL}")))?;
        // SAFETY: the caller promises that a function of this name has this type.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetTable>(symbol.as_ptr()) };
        // SAFETY: as above; it may be called by any thread, at any time.
        let table = unsafe { get(ABI_VERSION) };
        // SAFETY: the caller promises that the table is one, for as long as the library is open.
        unsafe { Self::of_table(path, table) }
    }

    /// `origin` is the library's path, or empty.
    ///
    /// # Safety
    /// As [`check_table`] and [`ForeignBackend::open`].
    unsafe fn of_table(origin: &str, table: *const c_void) -> Result<Self> {
        // SAFETY: the caller promises that it is null or a table.
        let checked = unsafe { check_table(table) };
        let (table, name) = checked.map_err(|reason| refused(origin, reason))?;
        let code = u8::try_from(table.type_code).unwrap_or(u8::MAX);
        Ok(Self { kind: DeviceKind::register(&name, code)?, table })
    }

    /// The kind: registered, without a backend until [`KindLibrary::register`].
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Gives a backend of the kind to every runtime that is made from now on, that of the process
    /// too. Fails when the kind has one.
    pub fn register(&self) -> Result<DeviceKind> {
        let library = self.clone();
        register_backend(self.kind, move |_config| library.backend())?;
        Ok(self.kind)
    }

    /// Makes a backend, for one runtime or for the conformance kit.
    pub fn backend(&self) -> Result<Arc<dyn Backend>> {
        // SAFETY: who opened this promised that the table's functions do what the header says.
        let backend = unsafe { ForeignBackend::open(self.kind, &self.table) }?;
        Ok(backend)
    }
}

// SAFETY: the table's maker promises that any thread may call any function, also at once; `name`
// and `data` are constant.
unsafe impl Send for KindLibrary {}
// SAFETY: as above.
unsafe impl Sync for KindLibrary {}

fn refused(library: &str, reason: String) -> Error {
    let library = match library {
        "" => "The table of functions".to_owned(),
        path => format!("Library {path}"),
    };
    Error::Device(DeviceError::LibraryRefused { library, reason })
}

/// Registers the kind of a table with its backend, for a driver that is linked to the program.
///
/// # Safety
/// As [`KindLibrary::open`], of a table that is valid as long as the process runs.
pub unsafe fn register_table(table: *const c_void) -> Result<DeviceKind> {
    // SAFETY: the caller promises that it is a table.
    unsafe { KindLibrary::of_table("", table) }?.register()
}

const VARIABLE: &str = "ACCELRT_KINDS";

/// What the first call came to.
static LOADED: OnceLock<Result<()>> = OnceLock::new();

/// Loads the kinds that `ACCELRT_KINDS` names, once a process. Without the variable it does
/// nothing.
///
/// The Python module calls it at its import. A program calls it before the first use of the
/// process's runtime. Fails as [`KindLibrary::open`], when a name is not that of the library's
/// kind, and when the variable is malformed; later calls, and the first
/// use of the process's runtime, fail with the same error.
pub fn load_environment() -> Result<()> {
    let load = || {
        let loaded = config::setting(VARIABLE).map_or(Ok(()), |value| load_all(&value));
        loaded.inspect_err(|error| _ = KINDS_REFUSED.set(error.clone()))
    };
    LOADED.get_or_init(load).clone()
}

fn load_all(value: &str) -> Result<()> {
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, path) = entry.split_once('=').ok_or_else(|| malformed(value))?;
        if name.is_empty() || path.is_empty() {
            return Err(malformed(value));
        }
        load(name, path)?;
    }
    Ok(())
}

fn load(name: &str, path: &str) -> Result<DeviceKind> {
    // SAFETY: who sets the variable vouches for the library, as for every one that a process loads
    // by its environment.
    let library = unsafe { KindLibrary::open(path) }?;
    let found = library.kind();
    if found.name() != name {
        let reason = format!("its kind is {found}, and {VARIABLE} calls it {name}");
        return Err(refused(path, reason));
    }
    library.register()
}

fn malformed(value: &str) -> Error {
    Error::Config(ConfigError::InvalidSetting {
        name: VARIABLE,
        value: value.to_owned(),
        allowed: "NAME=LIBRARY, several with commas between",
    })
}
