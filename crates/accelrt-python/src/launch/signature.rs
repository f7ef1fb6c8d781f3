//! Reads the argument types that a function declares, from ctypes' `argtypes` or its cffi type.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use crate::launch::ctypes::Types;
use crate::launch::descriptor::Descriptor;

pub(crate) enum Declared {
    /// The size in bytes, and whether the type is signed.
    Integer(u8, bool),
    Bool,
    Float,
    Double,
    /// Any pointer. A ctypes class, if declared, checks and converts the argument.
    Pointer(Option<Py<PyAny>>),
}

const ARGTYPES: &str = "argtypes";

pub(crate) type Signature = Arc<[Declared]>;

/// What the last read of a ctypes function's `argtypes` found, to detect a later change.
pub(crate) struct Argtypes {
    /// The descriptor that reads `argtypes` again. If this is `None`, `getattr` reads `argtypes`.
    descriptor: Option<Descriptor>,
    object: Py<PyAny>,
    /// The elements at the last read. `None` for a tuple, which cannot change.
    elements: Option<Py<PyTuple>>,
}

impl Argtypes {
    /// Reads `argtypes`. The signature is `None` when the function declares no types.
    #[cold]
    pub(crate) fn of(function: &Bound<'_, PyAny>) -> PyResult<(Self, Option<Signature>)> {
        let py = function.py();
        let descriptor = Descriptor::of(function, intern!(py, ARGTYPES));
        let object = function.getattr(intern!(py, ARGTYPES))?;
        let (mut elements, mut signature) = (None, None);
        if !object.is_none() {
            let types = Types::get(py)?;
            let read = PyTuple::new(py, object.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
            let declared = read.iter().map(|argtype| declared_by_ctypes(types, &argtype));
            signature = Some(declared.collect::<PyResult<Vec<_>>>()?.into());
            elements = (!object.is_exact_instance_of::<PyTuple>()).then(|| read.unbind());
        }
        Ok((Self { descriptor, object: object.unbind(), elements }, signature))
    }

    #[inline]
    pub(crate) fn is_current_for(&self, function: &Bound<'_, PyAny>) -> PyResult<bool> {
        let object = match &self.descriptor {
            Some(descriptor) => descriptor.get(function)?,
            None => function.getattr(intern!(function.py(), ARGTYPES))?,
        };
        Ok(self.object.is(&object)
            && self.elements.as_ref().is_none_or(|elements| is_same(elements, &object)))
    }
}

/// True when `object` is a list of exactly these elements, compared by identity.
fn is_same(elements: &Py<PyTuple>, object: &Bound<'_, PyAny>) -> bool {
    let Ok(list) = object.cast::<PyList>() else { return false };
    let elements = elements.bind(object.py());
    elements.len() == list.len()
        && elements.iter().zip(list.iter()).all(|(one, other)| one.is(&other))
}

/// The signature of a cffi function type; an error for a variable number of arguments.
pub(crate) fn of_cffi(
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
            return of_code(&code, argtype).ok_or_else(|| unsupported(argtype));
        }
        if class.hasattr("_fields_")? {
            return Err(unsupported(argtype)); // a structure or union
        }
    }
    Ok(Declared::Pointer(Some(argtype.clone().unbind())))
}

fn unsupported(argtype: &Bound<'_, PyAny>) -> PyErr {
    let name = argtype.getattr("__name__").and_then(|name| name.extract::<String>());
    needs_pointer(&name.unwrap_or_else(|_| argtype.to_string()))
}

fn needs_pointer(name: &str) -> PyErr {
    PyTypeError::new_err(format!("an argument of type {name} cannot be launched: pass a pointer"))
}

/// The type that a ctypes class declares by its code `_type_`, such as "i" for `int`. A `long` is
/// assumed to have 64 bits. `None` for codes of types that a launch does not support.
pub(crate) fn of_code(code: &str, argtype: &Bound<'_, PyAny>) -> Option<Declared> {
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
        _ => Err(needs_pointer(&name)),
    }
}
