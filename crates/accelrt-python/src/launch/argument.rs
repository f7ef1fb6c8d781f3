//! Converts Python objects to C arguments of a launch, and collects the objects to keep alive.

use accelrt::Argument;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt};

use crate::launch::ctypes::{self, Types};
use crate::launch::marks::{UsedMemory, unmarked};
use crate::launch::signature::{self, Declared};
use crate::memory::buffer::PyBuffer;
use crate::memory::foreign_memory::has_buffer_protocol;
use crate::memory::value::integer_range;
use crate::memory::view::PyView;
use crate::memory::view_memory::ViewMemory;
use crate::support::object_text::{name_of, text_of, type_name};

const MAX_DEPTH: usize = 8;

const UNDECLARED: &str = "an int, bool, float, None, bytes, Buffer or View, an object of ctypes or \
                          cffi, or have data_ptr() or _as_parameter_";

pub(crate) struct ArgumentConverter<'a, 'py> {
    pub(crate) function: &'a Bound<'py, PyAny>,
    /// The argument's position, counted from 0.
    pub(crate) index: usize,
    pub(crate) used: &'a mut Used,
}

/// What a launched function may use through pointers: Python objects and memory.
#[derive(Default)]
pub(crate) struct Used {
    /// Objects that stay alive until the function is done.
    pub(crate) objects: Vec<Py<PyAny>>,
    /// Memory behind the pointers. The launch records a use of each entry, with its access mark.
    pub(crate) memory: Vec<UsedMemory>,
}

impl Used {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.memory.is_empty()
    }
}

impl<'py> ArgumentConverter<'_, 'py> {
    /// Converts by the type of `value`, because the function declares no types.
    #[inline]
    pub(crate) fn undeclared(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Argument> {
        match number(None, value) {
            Some(number) => Ok(number),
            None => self.convert_by_type(value, 0),
        }
    }

    /// Converts to the declared type; `TypeError` or `OverflowError` when `value` does not fit it.
    pub(crate) fn declared(
        &mut self,
        declared: &Declared,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Argument> {
        match declared {
            Declared::Integer(bytes, is_signed) => self.sized(*bytes, *is_signed, value),
            Declared::Bool => Ok(Argument::U8(u8::from(unwrapped(value)?.is_truthy()?))),
            Declared::Float => Ok(Argument::F32(self.float(value)?)),
            Declared::Double => Ok(Argument::F64(self.float(value)?)),
            Declared::Pointer(class) => self.pointer(class.as_ref(), value),
        }
    }

    /// Converts to `int64_t`, or to `uint64_t` from 2**63 on.
    #[inline]
    fn integer(&self, value: &Bound<'py, PyAny>) -> PyResult<Argument> {
        if let Ok(value) = value.extract::<i64>() {
            return Ok(Argument::I64(value));
        }
        match value.extract::<u64>() {
            Ok(value) => Ok(Argument::U64(value)),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Err(self.out_of_range(value, "64 bits"))
            }
            Err(_) => Err(self.unexpected(UNDECLARED, value)), // as for arrays: `__index__` raises
        }
    }

    #[inline]
    pub(crate) fn sized(
        &self,
        bytes: u8,
        is_signed: bool,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Argument> {
        // The fast path takes exact ints that fit. `sized_from_any` takes or refuses other values.
        match exact_integer(value) {
            Some(number) if fits(number, bytes, is_signed) => Ok(Argument::I64(number)),
            _ => self.sized_from_any(bytes, is_signed, value),
        }
    }

    #[cold]
    fn sized_from_any(
        &self,
        bytes: u8,
        is_signed: bool,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Argument> {
        let value = &unwrapped(value)?;
        let number: i128 = match value.extract() {
            Ok(number) => number,
            Err(_) if value.is_instance_of::<PyInt>() => {
                return Err(self.out_of_range(value, "64 bits"));
            }
            Err(_) => return Err(self.unexpected("an integer", value)),
        };
        let bits = u32::from(bytes) * 8;
        if !integer_range(usize::from(bytes), is_signed).contains(&number) {
            let what = format!("{bits} bits {} a sign", if is_signed { "with" } else { "without" });
            return Err(self.out_of_range(value, &what));
        }
        // The 64-bit number extends the narrower number by its sign or by zeros, as C does.
        #[expect(clippy::cast_possible_truncation, reason = "the low 64 bits, after the check")]
        Ok(Argument::I64(number as i64))
    }

    pub(crate) fn float<T: FromPyObjectOwned<'py>>(
        &self,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<T> {
        let value = unwrapped(value)?;
        value.extract().map_err(|_| self.unexpected("a float", &value))
    }

    /// Converts to a pointer. A declared ctypes `class` checks most objects by its `from_param`.
    fn pointer(
        &mut self,
        class: Option<&Py<PyAny>>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Argument> {
        if value.is_none() {
            return Ok(Argument::U64(0));
        }
        if let Some(address) = self.owned_memory(value)? {
            return Ok(address);
        }
        let Some(class) = class else {
            return match self.convert_by_type(value, 0)? {
                Argument::F64(_) | Argument::F32(_) => Err(self.unexpected("a pointer", value)),
                address => Ok(address),
            };
        };
        if ctypes::cffi_backend(value)?.is_some() {
            return self.convert_by_type(value, 0);
        }
        let class = class.bind(value.py());
        let converted = class.call_method1("from_param", (value,));
        let converted = converted.map_err(|error| self.refused(class, value, &error))?;
        self.hold(value);
        self.convert_by_type(&converted, 0)
    }

    /// The slow path: converts by the class of `value` or by a protocol that it supports. `depth`
    /// counts the `_as_parameter_` attributes followed so far.
    #[cold]
    fn convert_by_type(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<Argument> {
        let py = value.py();
        if value.is_none() {
            return Ok(Argument::U64(0));
        }
        if value.is_instance_of::<PyBool>() {
            return Ok(Argument::I64(i64::from(value.is_truthy()?)));
        }
        if value.is_instance_of::<PyFloat>() {
            return Ok(Argument::F64(value.extract()?));
        }
        if value.is_instance_of::<PyInt>() {
            return self.integer(value);
        }
        let types = Types::get(py)?;
        if types.is_cdata(value)? {
            return self.ctypes_data(types, value);
        }
        if let Some(backend) = ctypes::cffi_backend(value)? {
            return self.cffi_data(&backend, value);
        }
        if let Some(address) = self.owned_memory(value)? {
            return Ok(address);
        }
        if value.is_instance_of::<PyBytes>() {
            self.hold(value);
            return Ok(Argument::U64(types.address(value)?));
        }
        if let Ok(inner) = value.getattr("_as_parameter_")
            && depth < MAX_DEPTH
        {
            self.hold(value);
            return self.convert_by_type(&inner, depth + 1);
        }
        if let Some(number) = numpy_number(value)? {
            return Ok(number);
        }
        if value.hasattr("__index__")? {
            return self.integer(value);
        }
        Err(self.unexpected(UNDECLARED, value))
    }

    fn ctypes_data(&mut self, types: &Types, value: &Bound<'py, PyAny>) -> PyResult<Argument> {
        let py = value.py();
        if types.is_aggregate(value)? {
            return Err(self.unexpected("passed by ctypes.byref: structures go by pointer", value));
        }
        if value.is_instance(types.function.bind(py))? {
            ctypes::check_needs_no_gil(value).map_err(|error| self.caused(&error))?;
        }
        if value.is_instance(types.simple.bind(py))? {
            let code: String = value.getattr(intern!(py, "_type_"))?.extract()?;
            let class = value.get_type().into_any();
            return match signature::of_code(&code, &class) {
                Some(Declared::Pointer(_)) => self.address_of(types, value),
                Some(declared) => self.declared(&declared, &unwrapped(value)?),
                None => Err(self.unexpected("of a type that can be launched", value)),
            };
        }
        self.address_of(types, value)
    }

    fn address_of(&mut self, types: &Types, value: &Bound<'py, PyAny>) -> PyResult<Argument> {
        let address = types.address(value).map_err(|error| self.caused(&error))?;
        self.hold(value);
        Ok(Argument::U64(address))
    }

    fn cffi_data(
        &mut self,
        backend: &Bound<'py, PyModule>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Argument> {
        let data_type = backend.call_method1("typeof", (value,))?;
        let kind: String = data_type.getattr("kind")?.extract()?;
        match &*kind {
            "pointer" | "array" | "function" if !type_name(value).ends_with("OwnGC") => {
                self.hold(value);
                Ok(Argument::U64(ctypes::cffi_address(backend, value)?))
            }
            "primitive" | "enum" => {
                let name: String = data_type.getattr("cname")?.extract()?;
                match &*name {
                    "float" => Ok(Argument::F32(value.call_method0("__float__")?.extract()?)),
                    "double" => Ok(Argument::F64(value.call_method0("__float__")?.extract()?)),
                    _ => self.integer(&value.call_method0("__int__")?),
                }
            }
            _ => Err(self.unexpected("a number or a pointer that needs no GIL", value)),
        }
    }

    /// The address of a Buffer, a View or an object with `data_ptr()`, marked or not. Adds the
    /// object to `used`. `None` for other objects.
    fn owned_memory(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<Argument>> {
        let (memory, mark) = unmarked(value);
        let used = if let Ok(buffer) = memory.cast::<PyBuffer>() {
            let buffer = buffer.get().state.buffer(value.py());
            UsedMemory { memory: ViewMemory::Ours(buffer), mark }
        } else if let Ok(view) = memory.cast::<PyView>() {
            let used = UsedMemory::of_view(&self.place(), view.get(), mark)?;
            if let ViewMemory::Foreign(..) = used.memory {
                self.hold(memory);
            }
            used
        } else {
            return self.data_pointer(memory);
        };
        let address = used.memory.address()?;
        self.used.memory.push(used);
        Ok(Some(Argument::U64(address)))
    }

    fn data_pointer(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<Argument>> {
        let Ok(method) = value.getattr(intern!(value.py(), "data_ptr")) else { return Ok(None) };
        if !method.is_callable() {
            return Ok(None);
        }
        let address = method.call0()?.extract()?;
        self.hold(value);
        Ok(Some(Argument::U64(address)))
    }

    pub(crate) fn hold(&mut self, value: &Bound<'py, PyAny>) {
        self.used.objects.push(value.clone().unbind());
    }

    pub(crate) fn place(&self) -> String {
        format!("argument {} of {}", self.index + 1, name_of(self.function))
    }

    pub(crate) fn unexpected(&self, expected: &str, given: &Bound<'_, PyAny>) -> PyErr {
        let (place, name, hint) = (self.place(), type_name(given), hint(given));
        PyTypeError::new_err(format!("{place} must be {expected}, not {name}{hint}"))
    }

    fn refused(&self, class: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
        let reason = error.value(given.py()).to_string();
        // Drops ctypes' reason "wrong type", which adds no information.
        let reason = if reason == "wrong type" { String::new() } else { format!(": {reason}") };
        let (name, hint) = (type_name(given), hint(given));
        let text = format!("{} must be {}, not {name}", self.place(), name_of(class));
        PyTypeError::new_err(format!("{text}{hint}{reason}"))
    }

    fn caused(&self, error: &PyErr) -> PyErr {
        let reason = error.to_string();
        let reason = reason.strip_prefix("TypeError: ").unwrap_or(&reason);
        PyTypeError::new_err(format!("{}: {reason}", self.place()))
    }

    pub(crate) fn out_of_range(&self, given: &Bound<'_, PyAny>, range: &str) -> PyErr {
        let place = self.place();
        let error =
            |given| PyOverflowError::new_err(format!("{place} does not fit into {range}: {given}"));
        text_of(given).map_or_else(|error| error, error)
    }
}

/// The fast path: converts an exact `int` or `float`, without a declared type to 64 bits. `None`
/// for objects that need the slow path.
#[inline]
pub(crate) fn number(declared: Option<&Declared>, value: &Bound<'_, PyAny>) -> Option<Argument> {
    if let Some(number) = exact_integer(value) {
        let is_passed = match declared {
            Some(Declared::Integer(bytes, is_signed)) => fits(number, *bytes, *is_signed),
            Some(_) => false,
            None => true,
        };
        return is_passed.then_some(Argument::I64(number));
    }
    let number = value.cast_exact::<PyFloat>().ok()?;
    matches!(declared, None | Some(Declared::Double)).then(|| Argument::F64(number.value()))
}

/// The value of an `int` that fits into 64 bits. `None` for subclasses, such as bool.
#[inline]
fn exact_integer(value: &Bound<'_, PyAny>) -> Option<i64> {
    if value.is_exact_instance_of::<PyInt>() { value.extract().ok() } else { None }
}

fn hint(given: &Bound<'_, PyAny>) -> &'static str {
    if is_numpy_scalar(given) {
        ": give int() or float() of it"
    } else if has_buffer_protocol(given) {
        ": give accelrt.as_buffer() of it"
    } else {
        ""
    }
}

/// True for NumPy's scalars, and for scalars of libraries that extend NumPy.
fn is_numpy_scalar(value: &Bound<'_, PyAny>) -> bool {
    let has = |name: &str| value.hasattr(name).unwrap_or(false);
    has("dtype") && has("item") && !has("__setitem__")
}

/// Converts NumPy's `float32` and bool scalars, which are no Python numbers. `None` for others.
fn numpy_number(value: &Bound<'_, PyAny>) -> PyResult<Option<Argument>> {
    if !is_numpy_scalar(value) {
        return Ok(None);
    }
    Ok(match &*type_name(value) {
        "float32" => Some(Argument::F32(value.extract()?)),
        "bool" | "bool_" => Some(Argument::I64(i64::from(value.is_truthy()?))),
        _ => None,
    })
}

#[inline]
fn fits(number: i64, bytes: u8, is_signed: bool) -> bool {
    let unused_bits = 64 - 8 * u32::from(bytes);
    if is_signed {
        number << unused_bits >> unused_bits == number
    } else {
        number >= 0 && number.leading_zeros() >= unused_bits
    }
}

/// Unwraps a simple ctypes object, or one with `_as_parameter_`. Returns other objects unchanged.
fn unwrapped<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyFloat>() {
        return Ok(value.clone());
    }
    let types = Types::get(value.py())?;
    if value.is_instance(types.simple.bind(value.py()))? {
        return value.getattr(intern!(value.py(), "value"));
    }
    match value.getattr("_as_parameter_") {
        Ok(inner) => Ok(inner),
        Err(_) => Ok(value.clone()),
    }
}
