//! Resolves the function of a launch to its address and declared types, and caches both.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::launch::ctypes::{self, Types};
use crate::launch::kernel_launch::needs_global_size;
use crate::launch::program::PyKernel;
use crate::launch::signature::{self, Argtypes, Signature};
use crate::support::errors::wrong_type;
use crate::support::function_names;
use crate::support::identity_cache::IdentityCache;
use crate::support::object_text::type_name;

/// The cached address and declared types of a launched function object.
#[pyclass(frozen)]
pub(crate) struct KnownFunction {
    pub(crate) function: NativeFunction,
    /// The `argtypes` of a ctypes function, which each launch compares with the function's current
    /// ones. `None` for other functions, whose types are fixed.
    argtypes: Option<Argtypes>,
}

#[derive(Clone)]
pub(crate) struct NativeFunction {
    pub(crate) address: u64,
    pub(crate) signature: Option<Signature>,
    /// True when the drop of the object may free the code, so a launch must keep the object alive.
    pub(crate) is_retained: bool,
}

/// Caches the data of launched function objects. Plain addresses have no entry.
static KNOWN: IdentityCache<KnownFunction> = IdentityCache::new();

impl KnownFunction {
    /// The cached data of a function; `None` when there is none or when its `argtypes` has changed.
    #[inline]
    pub(crate) fn of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Self>>> {
        let Some(known) = KNOWN.get(object) else { return Ok(None) };
        let argtypes = known.get().argtypes.as_ref();
        let is_current = argtypes.map_or(Ok(true), |argtypes| argtypes.is_current_for(object))?;
        Ok(is_current.then_some(known))
    }
}

impl NativeFunction {
    /// Finds the function of a launched object. The error says why a stream cannot call the object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_exact_instance_of::<PyInt>() {
            let address = address_argument(object)?;
            return Ok(Self { address, signature: None, is_retained: false });
        }
        let known = match KnownFunction::of(object)? {
            Some(known) => known,
            None => find(object)?,
        };
        Ok(known.get().function.clone())
    }
}

fn address_argument(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    match object.extract::<u64>() {
        Ok(0) => Err(PyValueError::new_err("the function's address is null")),
        Ok(address) => Ok(address),
        Err(_) => {
            Err(PyOverflowError::new_err(format!("{object} is not the address of a function")))
        }
    }
}

#[cold]
fn find<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, KnownFunction>> {
    let py = object.py();
    let types = Types::get(py)?;
    let known = if object.is_instance(types.function.bind(py))? {
        ctypes::check_needs_no_gil(object)?;
        let (argtypes, signature) = Argtypes::of(object)?;
        let address = types.address(object)?;
        let function = NativeFunction { address, signature, is_retained: false };
        KnownFunction { function, argtypes: Some(argtypes) }
    } else if let Some(backend) = ctypes::cffi_backend(object)? {
        KnownFunction { function: of_cffi(&backend, object)?, argtypes: None }
    } else if let Some(function) = of_numba(object)? {
        KnownFunction { function, argtypes: None }
    } else {
        return Err(refusal(object));
    };
    if known.function.address == 0 {
        return Err(PyValueError::new_err("the function's address is null"));
    }
    function_names::record(known.function.address, object);
    let known = Bound::new(py, known)?;
    KNOWN.put(object, &known);
    Ok(known)
}

fn of_cffi(backend: &Bound<'_, PyModule>, object: &Bound<'_, PyAny>) -> PyResult<NativeFunction> {
    let mut function_type = backend.call_method1("typeof", (object,))?;
    if function_type.getattr("kind")?.eq("pointer")? {
        function_type = function_type.getattr("item")?;
    }
    if !function_type.getattr("kind")?.eq("function")? {
        let what = function_type.getattr("cname")?;
        return Err(PyTypeError::new_err(format!(
            "function must be a function, not cffi's {what}"
        )));
    }
    if type_name(object).ends_with("GC") {
        return Err(PyTypeError::new_err(
            "a cffi callback runs a Python function, which needs the GIL: give that function to \
             launch_host",
        ));
    }
    let signature = signature::of_cffi(backend, &function_type)?;
    let address = ctypes::cffi_address(backend, object)?;
    Ok(NativeFunction { address, signature, is_retained: false })
}

/// Resolves a `numba.cfunc`, or another object with an integer `address`.
fn of_numba(object: &Bound<'_, PyAny>) -> PyResult<Option<NativeFunction>> {
    let Ok(address) = object.getattr("address") else { return Ok(None) };
    if !address.is_instance_of::<PyInt>() || address.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    let signature = match object.getattr("ctypes") {
        Ok(typed) if typed.is_instance(Types::get(object.py())?.function.bind(object.py()))? => {
            Argtypes::of(&typed)?.1
        }
        _ => None,
    };
    let address = address_argument(&address)?;
    Ok(Some(NativeFunction { address, signature, is_retained: true }))
}

fn refusal(object: &Bound<'_, PyAny>) -> PyErr {
    if object.is_instance_of::<PyKernel>() {
        return needs_global_size();
    }
    if object.is_callable() {
        return PyTypeError::new_err(format!(
            "launch calls native functions, without the GIL; a Python callable ({}) needs it: use \
             launch_host",
            type_name(object)
        ));
    }
    let expected = "the address of a function, a function of ctypes, cffi or numba.cfunc, or a \
                    kernel of a Program";
    wrong_type("function", expected, object)
}

/// Refuses a ctypes function whose `restype` is no 32-bit status. Other functions pass unchecked.
pub(crate) fn check_returns_status(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let types = Types::get(object.py())?;
    if !object.is_instance(types.function.bind(object.py()))? {
        return Ok(());
    }
    let restype = object.getattr("restype")?;
    let code = restype.getattr("_type_").and_then(|code| code.extract::<String>());
    if matches!(code.as_deref(), Ok("i" | "I")) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "check=True needs a function that returns a 32-bit status; its restype is {restype}"
    )))
}
