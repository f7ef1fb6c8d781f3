//! Bindings of the verbose levels of oneMKL and oneDNN, oneMKL's allocator and `accelrt.backends`.

use std::path::PathBuf;

use accelrt::internal::{LockRank, Mutex};
use accelrt_mkl::internal::{
    MklAllocator, VerboseLine, VerboseLogReader, VerboseParser, VerboseRecord,
    cudnn_version as cudnn, openmp,
};
use accelrt_mkl::{VerboseCapture, VerboseLibrary, VerboseScope};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::text_of;
use crate::support::parameters::integer;

/// A scope in which a library has a verbose level, until `leave`.
#[pyclass(name = "VerboseScope", module = "accelrt._core", frozen)]
pub(crate) struct PyVerboseScope(Mutex<Option<VerboseScope>>);

#[pymethods]
impl PyVerboseScope {
    // Locks the levels under the GIL. A fork holds the GIL too, so this lock is free in the child.
    #[new]
    fn new(py: Python<'_>, library: &str, level: i32) -> PyResult<Self> {
        let folder = library_folder(py)?;
        let scope =
            VerboseScope::enter(library_argument(library)?, level, &[&folder]).or_raise()?;
        Ok(Self(Mutex::new(LockRank::Python, Some(scope))))
    }

    /// Restores the level of the newest scope that is still open, else the environment's level.
    fn leave(&self) {
        let scope = self.0.lock().take();
        drop(scope); // after the unlock
    }

    /// A sentence about the part of the environment's level that the end of a scope cannot restore;
    /// None without such a part.
    #[staticmethod]
    fn lost_by_restoring(library: &str) -> PyResult<Option<String>> {
        Ok(library_argument(library)?.lost_by_restoring())
    }
}

/// Captures the output of a library until `end`.
#[pyclass(name = "VerboseCapture", module = "accelrt._core", frozen)]
pub(crate) struct PyVerboseCapture(VerboseCapture);

#[pymethods]
impl PyVerboseCapture {
    // Steps that may block run without the GIL, because the reader of the standard output may need
    // the GIL. Steps that take the lock of all captures hold the GIL. A fork holds the GIL too, so
    // this lock is free in the child.
    #[new]
    #[pyo3(signature = (library, *, keeps_lines = true))]
    fn new(py: Python<'_>, library: &str, keeps_lines: bool) -> PyResult<Self> {
        let library = library_argument(library)?;
        py.detach(VerboseCapture::flush);
        let mut capture = VerboseCapture::attach(library).or_raise()?;
        py.detach(|| capture.start(keeps_lines));
        Ok(Self(capture))
    }

    /// The lines captured before this call.
    fn lines(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.lines())
    }

    /// Ends the capture. The first call returns all captured lines, later calls none.
    fn end(&self, py: Python<'_>) -> Vec<String> {
        let lines = py.detach(|| self.0.stop());
        if let Some(ended) = self.0.detach() {
            py.detach(|| ended.finish());
        }
        lines
    }
}

impl Drop for PyVerboseCapture {
    fn drop(&mut self) {
        // `end` needs the GIL. If Python has ended, the drop of the field ends the capture.
        Python::try_attach(|py| drop(self.end(py)));
    }
}

/// Reads verbose lines, in the order in which they were printed.
#[pyclass(name = "VerboseParser", module = "accelrt._core", frozen)]
pub(crate) struct PyVerboseParser(Mutex<VerboseParser>);

/// Library, name, duration in ms, fields and line of a call.
type Told<'py> = (&'static str, String, f64, Bound<'py, PyDict>, String);

#[pymethods]
impl PyVerboseParser {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(LockRank::Python, VerboseParser::default()))
    }

    /// The calls of a line: several if lines ran together, and none for other text.
    fn read<'py>(&self, line: &Bound<'py, PyString>) -> PyResult<Vec<Told<'py>>> {
        let text = line.to_string_lossy();
        let read = self.0.lock().read(&text);
        calls(line.py(), read.into_iter().filter_map(VerboseLine::call))
    }
}

/// Reads the calls of a log that was written earlier. Holds at most one line.
#[pyclass(name = "VerboseLogReader", module = "accelrt._core", frozen)]
pub(crate) struct PyVerboseLogReader(Mutex<VerboseLogReader>);

#[pymethods]
impl PyVerboseLogReader {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(LockRank::Python, VerboseLogReader::default()))
    }

    /// The calls of the lines that end in the next part of the log.
    fn feed<'py>(&self, part: &Bound<'py, PyString>) -> PyResult<Vec<Told<'py>>> {
        let read = self.0.lock().feed(part.to_string_lossy().as_bytes());
        calls(part.py(), read)
    }

    /// The call of a last line without an end.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Told<'py>>> {
        let read = self.0.lock().finish();
        calls(py, read)
    }
}

fn calls(
    py: Python<'_>,
    records: impl IntoIterator<Item = VerboseRecord>,
) -> PyResult<Vec<Told<'_>>> {
    let call = |record: VerboseRecord| {
        let fields = PyDict::new(py);
        for (name, value) in record.fields {
            fields.set_item(name, value)?;
        }
        Ok((record.library.name(), record.name, record.ms, fields, record.line))
    };
    records.into_iter().map(call).collect()
}

/// Makes oneMKL use an allocator; returns the name of the previous one.
#[pyfunction]
pub(crate) fn use_mkl_allocator(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    let text = name.cast::<PyString>().map_err(|_| wrong_type("name", "a string", name))?;
    let name = text.to_str()?;
    let Some(allocator) = MklAllocator::ALL.into_iter().find(|one| one.name() == name) else {
        let names = MklAllocator::ALL.map(|one| format!("'{}'", one.name())).join(", ");
        return Err(PyValueError::new_err(format!("name must be one of {names}, not '{name}'")));
    };
    let folder = library_folder(py)?;
    Ok(py.detach(|| allocator.register(&[&folder])).or_raise()?.name())
}

/// The name of the allocator that oneMKL uses: "accelrt", "mimalloc" or "system".
#[pyfunction]
pub(crate) fn mkl_allocator() -> &'static str {
    MklAllocator::current().name()
}

/// Converts `level`, the argument `name`, to an int; `ValueError` if the library lacks the level.
#[pyfunction]
pub(crate) fn verbose_level(library: &str, name: &str, level: &Bound<'_, PyAny>) -> PyResult<i32> {
    let number = match level.cast::<PyBool>() {
        Ok(flag) => i64::from(flag.is_true()),
        Err(_) => integer(name, level)?,
    };
    let library = library_argument(library)?;
    let highest = library.highest_level();
    let allowed = i32::try_from(number).ok().filter(|level| (0..=highest).contains(level));
    let Some(allowed) = allowed else {
        let given = text_of(level)?;
        let text = format!("a verbose level of {library} is 0 to {highest}, not {given}");
        return Err(PyValueError::new_err(text));
    };
    Ok(allowed)
}

/// True when the process has a library or can load it; loads the library.
#[pyfunction]
pub(crate) fn has_verbose_library(py: Python<'_>, library: &str) -> PyResult<bool> {
    library_argument(library)?.is_available(&[&library_folder(py)?]).or_raise()
}

/// The version of a library. Loads the library; `RuntimeError` when it is missing.
#[pyfunction]
pub(crate) fn verbose_library_version(py: Python<'_>, library: &str) -> PyResult<String> {
    library_argument(library)?.version(&[&library_folder(py)?]).or_raise()
}

/// The file name of an OpenMP runtime that the process has or can load, or None.
#[pyfunction]
pub(crate) fn openmp_library() -> Option<String> {
    openmp()
}

/// The version of cuDNN as one number, as 90100 for 9.1.0; None without cuDNN.
#[pyfunction]
pub(crate) fn cudnn_version() -> Option<usize> {
    cudnn()
}

/// The widest vector instructions of this machine that torch distinguishes, by torch's name.
#[pyfunction]
pub(crate) fn cpu_capability() -> &'static str {
    accelrt::cpu_capability()
}

fn library_argument(name: &str) -> PyResult<VerboseLibrary> {
    match name {
        "mkl" => Ok(VerboseLibrary::Mkl),
        "mkldnn" => Ok(VerboseLibrary::OneDnn),
        "accelrt" => Ok(VerboseLibrary::Accelrt),
        _ => Err(PyValueError::new_err(format!("no library is called {name:?}"))),
    }
}

/// The folder where wheels install shared libraries. The system's loader does not search it.
pub(crate) fn library_folder(py: Python<'_>) -> PyResult<PathBuf> {
    let prefix: PathBuf =
        py.import(intern!(py, "sys"))?.getattr(intern!(py, "prefix"))?.extract()?;
    Ok(prefix.join("lib"))
}
