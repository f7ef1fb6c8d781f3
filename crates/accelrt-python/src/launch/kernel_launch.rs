//! `Stream.launch` of a kernel: converts its sizes and arguments, and enqueues it.
#![expect(unsafe_code, reason = "passes on the promise of a launch's caller")]

use std::ffi::c_void;

use accelrt::{Argument, Buffer, DeviceKind, KernelArgument, ParameterClass, Stream};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt};

use crate::launch::argument::{ArgumentConverter, Used};
use crate::launch::ctypes::Types;
use crate::launch::marks::{AccessMark, UsedMemory, unmarked};
use crate::launch::program::PyKernel;
use crate::memory::foreign_memory::ForeignMemory;
use crate::memory::transfers::{buffer_of, foreign_memory};
use crate::memory::view::PyView;
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::errors::wrong_type;
use crate::support::object_text::type_name;
use crate::support::parameters::integer_of;
use crate::support::waiting::enqueue;

pub(crate) struct Sizes<'a, 'py> {
    pub(crate) global: Option<&'a Bound<'py, PyAny>>,
    pub(crate) local: Option<&'a Bound<'py, PyAny>>,
}

/// A converted argument. It owns what the engine's [`KernelArgument`] borrows.
enum Converted {
    Buffer(Buffer, AccessMark),
    Value(Argument),
    Bytes(Vec<u8>),
    Local(usize),
}

impl Converted {
    /// The engine's argument, and whether the kernel writes its memory; `None` without a mark.
    fn as_argument(&self) -> (KernelArgument<'_>, Option<bool>) {
        match self {
            Self::Buffer(buffer, mark) => (KernelArgument::Buffer(buffer), mark.writes()),
            Self::Value(value) => (KernelArgument::Value(*value), None),
            Self::Bytes(bytes) => (KernelArgument::Bytes(bytes), None),
            Self::Local(bytes) => (KernelArgument::Local(*bytes), None),
        }
    }
}

pub(crate) fn launch(
    stream: &Stream,
    function: &Bound<'_, PyAny>,
    args: &[Bound<'_, PyAny>],
    check: bool,
    sizes: &Sizes<'_, '_>,
) -> PyResult<()> {
    let py = function.py();
    drop_parked(py);
    let kernel = function.cast::<PyKernel>().map_err(|_| {
        let text = "global_size and local_size are for kernels of a Program, not for";
        PyTypeError::new_err(format!("{text} {}", type_name(function)))
    })?;
    if check {
        let text = "check=True is for native functions: a kernel returns no status";
        return Err(PyTypeError::new_err(text));
    }
    let global = sizes.global.filter(|global| !global.is_none());
    let global = extents("global_size", global.ok_or_else(needs_global_size)?)?;
    let local = sizes.local.filter(|local| !local.is_none());
    let local = local.map(|local| extents("local_size", local)).transpose()?;
    let mut used = Used::default();
    let owned = convert(kernel, args, &mut used)?;
    let (arguments, writes): (Vec<_>, Vec<_>) = owned.iter().map(Converted::as_argument).unzip();
    let sizes = (&*global, local.as_deref());
    let ticket = enqueue(py, stream, || {
        // SAFETY: the caller of `launch` guarantees that the kernel accesses only the given memory,
        // and only as marked. The code below keeps foreign memory alive until the kernel is done.
        unsafe { stream.launch_kernel_with_uses(&kernel.get().kernel, &arguments, sizes, &writes) }
    })?;
    used.memory.iter().try_for_each(|used| used.record_foreign_use(stream))?;
    if !used.objects.is_empty() {
        stream.drop_after(ticket, DeferredDrop::new(used.objects));
    }
    Ok(())
}

pub(crate) fn needs_global_size() -> PyErr {
    PyTypeError::new_err("a kernel needs global_size: how many work-items run it")
}

/// Reads a size from an integer or a sequence. The engine checks the number and values of extents.
fn extents(what: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let wrong = || wrong_type(what, "an integer or a sequence of 1 to 3 of them", given);
    let numbers = if let Some(number) = integer_of(given)? {
        vec![number]
    } else {
        let items: Vec<Bound<'_, PyAny>> = given.extract().map_err(|_| wrong())?;
        let numbers: PyResult<Option<Vec<_>>> = items.iter().map(integer_of).collect();
        numbers?.ok_or_else(wrong)?
    };
    let sizes = numbers.iter().map(|number| usize::try_from(*number));
    sizes.collect::<Result<_, _>>().or_else(|_| {
        // The error shows the given object, because `numbers` is clamped to 64 bits.
        Err(PyValueError::new_err(format!(
            "{what} must be positive numbers, not {}",
            given.repr()?.to_string_lossy()
        )))
    })
}

/// Converts the arguments by the kernel's parameters. The engine refuses a wrong count.
fn convert<'py>(
    kernel: &Bound<'py, PyKernel>,
    args: &[Bound<'py, PyAny>],
    used: &mut Used,
) -> PyResult<Vec<Converted>> {
    let mut converter = ArgumentConverter { function: kernel.as_any(), index: 0, used };
    let parameters = kernel.get().kernel.parameters();
    let mut arguments = Vec::with_capacity(parameters.len());
    for (index, (value, parameter)) in args.iter().zip(parameters).enumerate() {
        converter.index = index;
        arguments.push(argument(&mut converter, parameter.class, value)?);
    }
    // Surplus arguments become zeros, because the engine refuses the launch by their count.
    arguments.resize_with(args.len(), || Converted::Value(Argument::I32(0)));
    Ok(arguments)
}

fn argument<'py>(
    converter: &mut ArgumentConverter<'_, 'py>,
    class: ParameterClass,
    value: &Bound<'py, PyAny>,
) -> PyResult<Converted> {
    match class {
        ParameterClass::Pointer => memory(converter, value)?.ok_or_else(|| {
            let expected = "an accelrt.Buffer, a View of one, None, a ctypes.c_void_p, or have \
                            __sycl_usm_array_interface__";
            converter.unexpected(expected, value)
        }),
        ParameterClass::Local => {
            let bytes = integer_of(value)?.and_then(|bytes| usize::try_from(bytes).ok());
            let expected = "a size in bytes, of memory of each work-group";
            bytes.map(Converted::Local).ok_or_else(|| converter.unexpected(expected, value))
        }
        ParameterClass::Signed(bytes) => number(converter, bytes, true, value),
        ParameterClass::Unsigned(bytes) => number(converter, bytes, false, value),
        ParameterClass::Float(bytes) => {
            let number: f64 = converter.float(value)?;
            #[expect(clippy::cast_possible_truncation, reason = "rounded, as C does")]
            let single = number as f32;
            Ok(Converted::Value(match bytes {
                4 if single.is_infinite() && number.is_finite() => {
                    return Err(converter.out_of_range(value, "a float of 32 bits"));
                }
                4 => Argument::F32(single),
                _ => Argument::F64(number),
            }))
        }
        _ => unknown(converter, value),
    }
}

/// Converts an object, marked or not, that stands for a device's memory. `None` for other objects.
fn memory<'py>(
    converter: &mut ArgumentConverter<'_, 'py>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Option<Converted>> {
    let (value, mark) = unmarked(argument);
    let py = value.py();
    let pointer = |address: usize| {
        Converted::Value(Argument::Pointer(std::ptr::with_exposed_provenance_mut::<c_void>(
            address,
        )))
    };
    if let Some(buffer) = buffer_of(value) {
        return Ok(Some(Converted::Buffer(buffer, mark)));
    }
    if let Some(foreign) = foreign_memory(value).filter(|it| it.device.kind() != DeviceKind::CPU) {
        let used = UsedMemory::of_view(&converter.place(), value.cast::<PyView>()?.get(), mark)?;
        converter.used.memory.push(used);
        converter.hold(value);
        return Ok(Some(pointer(foreign.address.expose_provenance())));
    }
    if value.is_none() {
        return Ok(Some(pointer(0)));
    }
    if let Ok(interface) = value.getattr(intern!(py, "__sycl_usm_array_interface__")) {
        let interface = interface.cast_into::<PyDict>()?;
        let data = interface.get_item("data")?.ok_or_else(|| {
            PyTypeError::new_err("__sycl_usm_array_interface__ has no entry 'data'")
        })?;
        let (address, is_read_only): (usize, bool) = data.extract()?;
        if is_read_only && mark != AccessMark::Reads {
            let (place, name) = (converter.place(), type_name(value));
            let text = format!("{place} is a read-only {name}: accelrt.reads() of it is taken");
            return Err(PyBufferError::new_err(text));
        }
        converter.hold(value);
        return Ok(Some(pointer(address)));
    }
    let types = Types::get(py)?;
    if value.is_instance(types.void_pointer.bind(py))? {
        return Ok(Some(pointer(usize::try_from(types.address(value)?)?)));
    }
    Ok(None)
}

fn number<'py>(
    converter: &ArgumentConverter<'_, 'py>,
    bytes: u8,
    is_signed: bool,
    value: &Bound<'py, PyAny>,
) -> PyResult<Converted> {
    let Argument::I64(number) = converter.sized(bytes, is_signed, value)? else {
        return Err(converter.unexpected("an integer", value));
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "inside the range of its type, as was checked"
    )]
    Ok(Converted::Value(match (bytes, is_signed) {
        (1, true) => Argument::I8(number as i8),
        (2, true) => Argument::I16(number as i16),
        (4, true) => Argument::I32(number as i32),
        (_, true) => Argument::I64(number),
        (1, false) => Argument::U8(number as u8),
        (2, false) => Argument::U16(number as u16),
        (4, false) => Argument::U32(number as u32),
        (_, false) => Argument::U64(number as u64),
    }))
}

/// Converts an argument for a parameter of unknown type. The argument's own type gives the size.
fn unknown<'py>(
    converter: &mut ArgumentConverter<'_, 'py>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Converted> {
    if let Some(memory) = memory(converter, value)? {
        return Ok(memory);
    }
    let is_plain = value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyBool>();
    let place = converter.place();
    let memory = if is_plain { None } else { ForeignMemory::of_exporter(&place, value, false)? };
    let Some(memory) = memory else {
        let expected = "memory, or a value that says its size (of ctypes or NumPy, or bytes): the \
                        program does not tell the type";
        return Err(converter.unexpected(expected, value));
    };
    // SAFETY: the exporter keeps the bytes valid until `memory` is dropped; the GIL is held.
    let bytes = unsafe { std::slice::from_raw_parts(memory.address, memory.bytes) };
    Ok(Converted::Bytes(bytes.to_vec()))
}
