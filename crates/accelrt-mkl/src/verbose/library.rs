//! Libraries that print a line per call: their locations, versions and levels.
//!
//! A process may contain several copies of a library, such as a oneMKL inside `libtorch_cpu.so` and
//! another that NumPy loads. This file sets a level in all copies.
#![expect(unsafe_code, reason = "calls functions of libraries that are found at run time")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::mem::{MaybeUninit, transmute};
use std::path::Path;
use std::ptr::NonNull;

use accelrt::internal::dylib::{FoundLibrary, Library, LoadedLibraries, file_of};
use accelrt::internal::{LockRank, Mutex};
use accelrt::{Error, IntegrationError, Result, Runtime};

/// A library that can print a line per call, as its verbose level says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerboseLibrary {
    /// oneMKL, Intel's math kernel library.
    Mkl,
    /// oneDNN, called mkldnn in PyTorch.
    OneDnn,
    /// The process's own runtime, [`Runtime::global`]. It prints a line for each
    /// executed task, except internal ones.
    Accelrt,
}

impl fmt::Display for VerboseLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `MKLVersion` of `mkl_service.h`.
#[repr(C)]
struct MklVersion {
    numbers: [c_int; 3],
    texts: [*const c_char; 4],
}

/// The beginning of `dnnl_version_t`, unchanged since 0.17.
#[repr(C)]
struct DnnlVersion {
    numbers: [c_int; 3],
    hash: *const c_char,
    runtimes: [c_uint; 2],
}

impl VerboseLibrary {
    /// The highest level; 0 prints nothing. oneMKL's level 2 also waits for each call on a GPU;
    /// oneDNN's level 2 also prints the creation of primitives.
    #[must_use]
    pub fn highest_level(self) -> i32 {
        if self == Self::Accelrt { 1 } else { 2 }
    }

    /// The library's name in messages, such as `oneMKL`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkl => "oneMKL",
            Self::OneDnn => "oneDNN",
            Self::Accelrt => "accelrt",
        }
    }

    /// The name of the C function that sets the level. oneMKL's lower-case variant is for Fortran
    /// and takes a pointer.
    fn setter(self) -> &'static str {
        match self {
            Self::Mkl => "MKL_Verbose",
            Self::OneDnn => "dnnl_set_verbose",
            Self::Accelrt => "verbose", // no library to search for
        }
    }

    fn file_names(self) -> &'static [&'static str] {
        match self {
            Self::Mkl => &["libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so"],
            Self::OneDnn => &["libdnnl.so.3", "libdnnl.so.2", "libdnnl.so.1", "libdnnl.so"],
            Self::Accelrt => &[],
        }
    }

    /// The library file that the configuration names, with the name of its variable.
    fn configured(self) -> Result<Option<(&'static str, String)>> {
        let runtime = Runtime::global()?;
        let (variable, file) = match self {
            Self::Mkl => ("ACCELRT_MKL_LIBRARY", &runtime.config().mkl_library),
            Self::OneDnn => ("ACCELRT_DNNL_LIBRARY", &runtime.config().dnnl_library),
            Self::Accelrt => return Ok(None),
        };
        Ok(file.clone().map(|file| (variable, file)))
    }

    /// True when the process contains this library, or can load it by name or from `folders`. The
    /// check loads it if the process has none. If `ACCELRT_MKL_LIBRARY` or `ACCELRT_DNNL_LIBRARY`
    /// names a file for it, only that file counts. False for a oneDNN that `libtorch_cpu` hides;
    /// always true for `Accelrt`. Fails when an `ACCELRT_*` variable is malformed.
    ///
    /// ```
    /// let has_mkl = accelrt_mkl::VerboseLibrary::Mkl.is_available(&[])?;
    /// assert_eq!(has_mkl, accelrt_mkl::VerboseLibrary::Mkl.version(&[]).is_ok());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn is_available(self, folders: &[&Path]) -> Result<bool> {
        match self.found(folders) {
            Err(Error::Integration(IntegrationError::LibraryMissing { .. })) => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// The version of the first copy found, such as `3.2.0`. Fails when none is found.
    pub fn version(self, folders: &[&Path]) -> Result<String> {
        if self == Self::Accelrt {
            return Ok(env!("CARGO_PKG_VERSION").to_owned());
        }
        let found = self.found(folders)?;
        let numbers = found.iter().find_map(|one| self.version_of(one.library));
        Ok(numbers.map_or_else(|| "unknown".to_owned(), |[a, b, c]| format!("{a}.{b}.{c}")))
    }

    /// The version that a library reports. For oneMKL this loads the libraries behind `libmkl_rt`.
    pub(crate) fn version_of(self, library: Library) -> Option<[c_int; 3]> {
        match self {
            Self::Mkl => {
                let function = library.symbol("MKL_Get_Version")?;
                // SAFETY: oneMKL's function of this name has this type in every version.
                let ask = unsafe {
                    transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut MklVersion)>(function)
                };
                let mut version = MaybeUninit::<MklVersion>::zeroed();
                // SAFETY: the function writes the structure, which is also valid when zeroed.
                unsafe { ask(version.as_mut_ptr()) };
                // SAFETY: `zeroed` initialised the structure, and zeros are a valid `MklVersion`.
                Some(unsafe { version.assume_init() }.numbers)
            }
            Self::OneDnn => {
                let function = library.symbol("dnnl_version")?;
                // SAFETY: oneDNN's function of this name has this type in every version.
                let ask = unsafe {
                    transmute::<NonNull<c_void>, unsafe extern "C" fn() -> *const DnnlVersion>(
                        function,
                    )
                };
                // SAFETY: `dnnl_version` takes no arguments, and any thread may call it.
                let version = unsafe { ask() };
                // SAFETY: the pointer is null, or refers to a constant structure of the library.
                unsafe { version.as_ref() }.map(|version| version.numbers)
            }
            Self::Accelrt => None,
        }
    }

    /// Returns the copies in the process. Loads the configured file, or else a copy if there is
    /// none.
    pub(crate) fn found(self, folders: &[&Path]) -> Result<Vec<FoundLibrary>> {
        if let Some((variable, file)) = self.configured()? {
            let missing = |why: &str| {
                Error::Integration(IntegrationError::LibraryMissing {
                    library: self.name(),
                    searched: format!("{variable}={file} alone ({why})"),
                })
            };
            let library = Library::open_first(&[&file])
                .map_err(|refused| missing(&refused.refusals().join("; ")))?;
            let no_setter = || missing(&format!("it has no {}", self.setter()));
            library.symbol(self.setter()).ok_or_else(no_setter)?;
            return Ok(self.loaded_copies());
        }
        let found = self.loaded_copies();
        if !found.is_empty() || self == Self::Accelrt {
            return Ok(found);
        }
        let loaded = LoadedLibraries::now();
        // `libtorch_cpu` contains a oneDNN without exporting the setter.
        let mut loaded_names = loaded.names.iter().map(|name| name.to_string_lossy());
        let hidden =
            loaded_names.find(|name| self == Self::OneDnn && name.contains("libtorch_cpu"));
        let (library, setter, count) = (self.name(), self.setter(), loaded.names.len());
        let searched = format!("the {count} libraries of this process for {setter}");
        if let Some(file) = hidden {
            // Loads no other copy: it would print nothing for the calls of the hidden copy.
            let searched = format!("{searched} ({file} hides those of the oneDNN inside of it)");
            return Err(Error::Integration(IntegrationError::LibraryMissing { library, searched }));
        }
        let mut searched = vec![searched];
        let named: Vec<_> = self.file_names().iter().map(|name| (*name).to_owned()).collect();
        searched.push(format!("the loader's folders for {}", named.join(", ")));
        let beside = folders.iter().flat_map(|folder| {
            let paths = self.file_names().iter().map(|name| folder.join(name));
            paths.map(|path| path.to_string_lossy().into_owned())
        });
        searched.extend(folders.iter().map(|folder| format!("{} for these", folder.display())));
        for file in named.into_iter().chain(beside) {
            match Library::open_first(&[&file]) {
                Ok(library) if library.symbol(self.setter()).is_some() => {
                    return Ok(self.loaded_copies());
                }
                Ok(_) => searched.push(format!("{file} (it has no {})", self.setter())),
                // Reports an existing file that does not load, with the reason.
                Err(refused) if Path::new(&file).exists() => {
                    searched.push(format!("{file} ({})", refused.refusals().join("; ")));
                }
                Err(_) => {}
            }
        }
        let searched = searched.join("; ");
        Err(Error::Integration(IntegrationError::LibraryMissing { library, searched }))
    }

    /// The copies that are now in the process. Loads no library.
    pub(super) fn loaded_copies(self) -> Vec<FoundLibrary> {
        /// Caches each library's last search: a search of hundreds of files takes milliseconds.
        static KNOWN: [Mutex<KnownLibraries>; 2] =
            [const { Mutex::new(LockRank::Libraries, (None, Vec::new())) }; 2];
        if self == Self::Accelrt {
            return Vec::new();
        }
        let (changes, found) = &mut *KNOWN[self as usize].lock();
        let loaded = LoadedLibraries::now();
        if *changes != Some(loaded.changes) {
            *found = loaded.definitions(self.setter());
            *changes = Some(loaded.changes);
        }
        found.clone()
    }

    /// Sets the level of one copy. False when the copy refuses the level.
    pub(super) fn set(self, found: &FoundLibrary, level: i32) -> bool {
        // SAFETY: both libraries' functions of these names take a C integer and return one.
        let set = unsafe {
            transmute::<NonNull<c_void>, unsafe extern "C" fn(c_int) -> c_int>(found.address)
        };
        // SAFETY: `set` accepts any integer on any thread; the library stays loaded.
        let answer = unsafe { set(level) };
        match self {
            Self::Mkl => answer != -1, // oneMKL answers -1 or its previous level
            _ => answer == 0,          // oneDNN answers a status
        }
    }
}

/// The loader's counts of loads and unloads at a search, and the copies that the search found.
type KnownLibraries = (Option<(u64, u64)>, Vec<FoundLibrary>);

/// The version of cuDNN, such as 90100 for 9.1.0. If the process has no cuDNN, loads the first one
/// found, which then stays loaded. `None` if none is found.
#[must_use]
pub fn cudnn_version() -> Option<usize> {
    let entry = "cudnnGetVersion";
    let in_process =
        LoadedLibraries::now().definitions(entry).into_iter().next().map(|found| found.address);
    let load = || Library::open_first(&["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"]);
    let address = in_process.or_else(|| load().ok()?.symbol(entry))?;
    // SAFETY: cuDNN's header declares this type in every version; the library stays loaded.
    let version: unsafe extern "C" fn() -> usize = unsafe { transmute(address.as_ptr()) };
    // SAFETY: the function takes no arguments and returns a constant.
    Some(unsafe { version() })
}

/// The file of an OpenMP runtime in the process. If there is none, loads one, which stays loaded.
#[must_use]
pub fn openmp() -> Option<String> {
    let entry = "omp_get_max_threads";
    if let Some(found) = LoadedLibraries::now().definitions(entry).into_iter().next() {
        return Some(found.path);
    }
    let names = ["libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"];
    let address = Library::open_first(&names).ok()?.symbol(entry)?;
    file_of(address)
}
