//! Queries objects of ctypes and cffi. Imports each library at the first query that needs it.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::support::object_text::type_name;

/// The flag of ctypes functions that must be called with the GIL.
const FUNCFLAG_PYTHONAPI: i64 = 4;

pub(crate) struct Types {
    pub(crate) function: Py<PyType>,
    pub(crate) simple: Py<PyType>,
    data: Py<PyType>,
    structure: Py<PyType>,
    union: Py<PyType>,
    reference: Py<PyType>,
    cast: Py<PyAny>,
    pub(crate) void_pointer: Py<PyAny>,
}

impl Types {
    /// Imports ctypes at the first call.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static TYPES: PyOnceLock<Types> = PyOnceLock::new();
        TYPES.get_or_try_init(py, || {
            let (ctypes, native) = (py.import("ctypes")?, py.import("_ctypes")?);
            let simple = native.getattr("_SimpleCData")?;
            let class = |name: &str| -> PyResult<Py<PyType>> {
                Ok(native.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            let one = ctypes.getattr("c_int")?.call0()?;
            Ok(Self {
                function: class("CFuncPtr")?,
                data: simple.getattr("__base__")?.cast_into::<PyType>()?.unbind(),
                simple: simple.cast_into::<PyType>()?.unbind(),
                structure: class("Structure")?,
                union: class("Union")?,
                reference: native.call_method1("byref", (one,))?.get_type().unbind(),
                cast: ctypes.getattr("cast")?.unbind(),
                void_pointer: ctypes.getattr("c_void_p")?.unbind(),
            })
        })
    }

    /// True for every ctypes object, and for results of `byref`.
    pub(crate) fn is_cdata(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        Ok(object.is_instance(self.data.bind(py))?
            || object.is_instance(self.reference.bind(py))?)
    }

    /// True for ctypes structures and unions. C passes them by value, so a launch refuses them.
    pub(crate) fn is_aggregate(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        Ok(object.is_instance(self.structure.bind(py))?
            || object.is_instance(self.union.bind(py))?)
    }

    /// The address that a pointer holds, or where an array or the target of `byref` begins.
    pub(crate) fn address(&self, object: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = object.py();
        let pointer = self.cast.bind(py).call1((object, &self.void_pointer))?;
        let address = pointer.getattr(intern!(py, "value"))?;
        if address.is_none() { Ok(0) } else { address.extract() }
    }
}

pub(crate) fn check_needs_no_gil(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let flags: i64 = function.get_type().getattr("_flags_")?.extract()?;
    if flags & FUNCFLAG_PYTHONAPI != 0 {
        return Err(PyTypeError::new_err(
            "a function of PyDLL or PYFUNCTYPE needs the GIL, which streams run without: use \
             launch_host",
        ));
    }
    let objects = function.getattr("_objects")?;
    if let Ok(objects) = objects.cast::<PyDict>() {
        for held in objects.values() {
            if type_name(&held) == "CThunkObject" {
                return Err(PyTypeError::new_err(
                    "a ctypes callback runs a Python function, which needs the GIL: give that \
                     function to launch_host",
                ));
            }
        }
    }
    Ok(())
}

/// The module `_cffi_backend` for an object of cffi; `None` for other objects.
pub(crate) fn cffi_backend<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyModule>>> {
    let module = object.get_type().getattr(intern!(object.py(), "__module__"))?;
    let is_ours = module.extract::<String>().is_ok_and(|name| name == "_cffi_backend");
    let is_ours = is_ours && type_name(object).contains("CData");
    if is_ours { object.py().import("_cffi_backend").map(Some) } else { Ok(None) }
}

/// The address that a cffi pointer holds, or where a cffi array begins.
pub(crate) fn cffi_address(
    backend: &Bound<'_, PyModule>,
    object: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let integer = backend.call_method1("new_primitive_type", ("uintptr_t",))?;
    backend.call_method1("cast", (integer, object))?.call_method0("__int__")?.extract()
}
