//! A library that brings a kind: opened, its table checked, its kind registered.
#![expect(unsafe_code, reason = "calls the function that a library exports")]

use std::ffi::c_void;
use std::sync::Arc;

use crate::backend::contract::Backend;
use crate::backend::foreign::table::{ABI_VERSION, BackendTable};
use crate::backend::foreign::{ForeignBackend, check_table};
use crate::backend::registry::register_backend;
use crate::base::device::DeviceKind;
use crate::base::dylib::Library;
use crate::base::error::{DeviceError, Error, Result};

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

pub(super) fn refused(library: &str, reason: String) -> Error {
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
