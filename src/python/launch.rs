//! `Stream.launch`: native functions as tasks.
#![expect(unsafe_code, reason = "passes on the promise that whoever launches a function makes")]

use std::ffi::c_void;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::native::{Argument, NativeCall};
use crate::python::argument::Passing;
use crate::python::buffer::PyBuffer;
use crate::python::function::{Function, check_returns_status, name_of};
use crate::python::parked::{Kept, drop_parked};
use crate::python::waiting::enqueue;
use crate::stream::Stream;

/// Arguments that need no memory beside the command.
const SHORT: usize = 4;

/// Enqueues a call of `object` with `args`.
pub(super) fn launch(
    stream: &Stream,
    object: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    check: bool,
) -> PyResult<()> {
    let py = object.py();
    drop_parked(py);
    let function = Function::of(object)?;
    if check {
        check_returns_status(object)?;
    }
    let mut kept = Vec::new();
    let count = args.len();
    let address = std::ptr::with_exposed_provenance::<c_void>(address(&function));
    let call = if count <= SHORT {
        let mut places = [Argument::U64(0); SHORT];
        convert(object, &function, args, &mut places[..count], &mut kept)?;
        NativeCall::new(address, &places[..count])
    } else {
        let mut places = vec![Argument::U64(0); count];
        convert(object, &function, args, &mut places, &mut kept)?;
        NativeCall::new(address, &places)
    };
    let call = call.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    let call = if check { call.checked() } else { call };
    if function.is_kept {
        kept.push(object.clone().unbind());
    }
    if !kept.is_empty() {
        return launch_with_objects(py, stream, call, kept);
    }
    enqueue(py, stream, || {
        // SAFETY: that the address is a function of these arguments, which may be called when the
        // stream comes to it, is the promise of who calls `launch`, as in ctypes.
        unsafe { stream.launch(call) }
    })?;
    Ok(())
}

/// Enqueues a call that uses objects: buffers, whose uses are recorded, and others, which live
/// until it is done.
#[inline(never)]
fn launch_with_objects(
    py: Python<'_>,
    stream: &Stream,
    call: NativeCall,
    mut kept: Vec<Py<PyAny>>,
) -> PyResult<()> {
    let buffers = take_buffers(py, &mut kept);
    enqueue(py, stream, || {
        let buffers: Vec<_> = buffers.iter().map(|object| &object.get().buffer).collect();
        if buffers.is_empty() {
            // SAFETY: as in `launch`; what was given as objects is kept alive by what is enqueued
            // next.
            unsafe { stream.launch(call) }
        } else {
            // SAFETY: as above.
            unsafe { stream.launch_with_buffers(call, &buffers) }
        }
    })?;
    if !kept.is_empty() {
        // Behind the call: a task of the runtime, which no figure counts.
        stream.keep(Kept::new(kept));
    }
    Ok(())
}

/// The buffers among the objects. No task keeps a reference to one: its free waits for the use.
fn take_buffers(py: Python<'_>, kept: &mut Vec<Py<PyAny>>) -> Vec<Py<PyBuffer>> {
    let is_buffer = |object: &mut Py<PyAny>| object.bind(py).is_instance_of::<PyBuffer>();
    let buffers = kept.extract_if(.., is_buffer);
    buffers.filter_map(|object| object.extract(py).ok()).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "pointers have 64 bits")]
fn address(function: &Function) -> usize {
    function.address as usize
}

/// Converts the arguments into as many places.
#[inline]
fn convert<'py>(
    object: &Bound<'py, PyAny>,
    function: &Function,
    args: &Bound<'py, PyTuple>,
    places: &mut [Argument],
    kept: &mut Vec<Py<PyAny>>,
) -> PyResult<()> {
    let mut passing = Passing { function: object, index: 0, kept };
    let Some(signature) = &function.signature else {
        for (index, place) in places.iter_mut().enumerate() {
            passing.index = index;
            *place = passing.undeclared(&*args.get_borrowed_item(index)?)?;
        }
        return Ok(());
    };
    if signature.len() != places.len() {
        let (name, expected, given) = (name_of(object), signature.len(), places.len());
        return Err(PyTypeError::new_err(format!(
            "{name} takes {expected} arguments by its declared types, {given} were given"
        )));
    }
    for ((index, place), declared) in places.iter_mut().enumerate().zip(&**signature) {
        passing.index = index;
        *place = passing.declared(declared, &*args.get_borrowed_item(index)?)?;
    }
    Ok(())
}
