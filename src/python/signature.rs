//! The declared types of a function's arguments: `argtypes` of ctypes, a function type of cffi.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use crate::python::ctypes::Types;
use crate::python::identity_cache::IdentityCache;

/// The type of one argument.
pub(super) enum Declared {
    /// Bytes, and whether it has a sign.
    Integer(u8, bool),
    Bool,
    Float,
    Double,
    /// Any pointer, with the class of ctypes that checks and converts it, if there is one.
    Pointer(Option<Py<PyAny>>),
}

/// The types of all arguments.
pub(super) type Signature = Arc<[Declared]>;

/// By the sequence of `argtypes`, with the types it had: a list may be changed and set again.
static KNOWN: IdentityCache<Arc<Known>> = IdentityCache::new();

struct Known {
    argtypes: Py<PyTuple>,
    signature: Signature,
}

/// The signature that `argtypes` declares.
#[inline]
pub(super) fn of_argtypes(argtypes: &Bound<'_, PyAny>) -> PyResult<Signature> {
    match KNOWN.get(argtypes) {
        Some(known) if known.is_of(argtypes)? => Ok(Arc::clone(&known.signature)),
        _ => read_argtypes(argtypes),
    }
}

impl Known {
    /// True when these are the types that the signature was made of.
    #[inline]
    fn is_of(&self, argtypes: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(list) = argtypes.cast::<PyList>() else {
            return Ok(argtypes.is_exact_instance_of::<PyTuple>());
        };
        let known = self.argtypes.bind(argtypes.py());
        let mut is_same = known.len() == list.len();
        for index in 0..known.len().min(list.len()) {
            is_same &= known.get_borrowed_item(index)?.is(&list.get_item(index)?);
        }
        Ok(is_same)
    }
}

#[cold]
fn read_argtypes(argtypes: &Bound<'_, PyAny>) -> PyResult<Signature> {
    let types = Types::get(argtypes.py())?;
    let read = PyTuple::new(argtypes.py(), argtypes.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
    let declared = read.iter().map(|argtype| declared_by_ctypes(types, &argtype));
    let signature: Signature = declared.collect::<PyResult<Vec<_>>>()?.into();
    let known = Known { argtypes: read.unbind(), signature: Arc::clone(&signature) };
    KNOWN.put(argtypes, Arc::new(known));
    Ok(signature)
}

/// The signature of a cffi function type; None when it takes a variable number of arguments.
pub(super) fn of_cffi(
    backend: &Bound<'_, PyModule>,
    function_type: &Bound<'_, PyAny>,
) -> PyResult<Option<Signature>> {
    if function_type.getattr("ellipsis")?.is_truthy()? {
        return Err(PyTypeError::new_err(
            "a function with a variable number of arguments cannot be launched",
        ));
    }
    let Ok(args) = function_type.getattr("args")?.cast_into::<PyTuple>() else { return Ok(None) };
    let declared = args.iter().map(|argument| declared_by_cffi(backend, &argument));
    Ok(Some(declared.collect::<PyResult<Vec<_>>>()?.into()))
}

fn declared_by_ctypes(types: &Types, argtype: &Bound<'_, PyAny>) -> PyResult<Declared> {
    let py = argtype.py();
    if let Ok(class) = argtype.cast::<PyType>() {
        if class.is_subclass(types.simple.bind(py))? {
            let code: String = class.getattr("_type_")?.extract()?;
            return of_code(&code, argtype).ok_or_else(|| cannot(argtype));
        }
        let is_aggregate = class.hasattr("_fields_")?;
        if is_aggregate {
            return Err(cannot(argtype));
        }
    }
    Ok(Declared::Pointer(Some(argtype.clone().unbind())))
}

fn cannot(argtype: &Bound<'_, PyAny>) -> PyErr {
    let name = argtype.getattr("__name__").and_then(|name| name.extract::<String>());
    let name = name.unwrap_or_else(|_| argtype.to_string());
    PyTypeError::new_err(format!("an argument of type {name} cannot be launched: pass a pointer"))
}

/// What a type code of ctypes stands for, on machines with 64-bit `long`.
pub(super) fn of_code(code: &str, argtype: &Bound<'_, PyAny>) -> Option<Declared> {
    Some(match code {
        "b" => Declared::Integer(1, true),
        "B" => Declared::Integer(1, false),
        "h" => Declared::Integer(2, true),
        "H" => Declared::Integer(2, false),
        "i" => Declared::Integer(4, true),
        "I" => Declared::Integer(4, false),
        "l" | "q" => Declared::Integer(8, true),
        "L" | "Q" => Declared::Integer(8, false),
        "?" => Declared::Bool,
        "f" => Declared::Float,
        "d" => Declared::Double,
        "P" | "z" => Declared::Pointer(Some(argtype.clone().unbind())),
        _ => return None,
    })
}

fn declared_by_cffi(
    backend: &Bound<'_, PyModule>,
    argument: &Bound<'_, PyAny>,
) -> PyResult<Declared> {
    let kind: String = argument.getattr("kind")?.extract()?;
    let name: String = argument.getattr("cname")?.extract()?;
    match (&*kind, &*name) {
        ("pointer" | "array" | "function", _) => Ok(Declared::Pointer(None)),
        ("primitive", "float") => Ok(Declared::Float),
        ("primitive", "double") => Ok(Declared::Double),
        ("primitive", "_Bool") => Ok(Declared::Bool),
        ("primitive", name) if name.contains("long double") || name.contains("omplex") => {
            Err(PyTypeError::new_err(format!("an argument of type {name} cannot be launched")))
        }
        ("primitive" | "enum", _) => {
            let bytes: u8 = backend.call_method1("sizeof", (argument,))?.extract()?;
            let lowest = backend.call_method1("cast", (argument, -1))?;
            Ok(Declared::Integer(bytes, lowest.call_method0("__int__")?.lt(0)?))
        }
        _ => Err(PyTypeError::new_err(format!(
            "an argument of type {name} cannot be launched: pass a pointer"
        ))),
    }
}
