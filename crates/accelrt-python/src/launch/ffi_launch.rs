//! `Stream.launch`: enqueues calls of native functions.
#![expect(unsafe_code, reason = "passes on the promise of a launch's caller")]

use std::ffi::{CStr, c_void};

use accelrt::{Argument, FfiCall, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::launch::argument::{ArgumentConverter, Used, number};
use crate::launch::function::{KnownFunction, NativeFunction, check_returns_status};
use crate::launch::kernel_launch::{self, Sizes};
use crate::launch::marks::UsedMemory;
use crate::memory::view_memory::ViewMemory;
use crate::objects::stream::PyStream;
use crate::support::deferred_drops::{DeferredDrop, drop_parked};
use crate::support::fastcall::{Arguments, FastMethod};
use crate::support::object_text::name_of;
use crate::support::parameters::Flag;
use crate::support::waiting::enqueue;

pub(crate) struct LaunchMethod;

impl FastMethod for LaunchMethod {
    type Class = PyStream;
    const NAME: &'static CStr = c"launch";
    const DOC: &'static CStr = c"launch($self, function, *args, check=False, blocking=False, \
        global_size=None, local_size=None)\n--\n
Enqueues a call of a native function or a launch of a `Program`'s kernel. Blocks only while more
than `ACCELRT_STREAM_TASKS` tasks are queued. The stream calls the function without the GIL.

`function` is a function of ctypes or cffi, a `numba.cfunc`, or an address. Declared types
(ctypes: `argtypes`, read at each launch) check and convert the arguments. Without declared
types, an int is passed as `int64_t` (from 2**63 on as `uint64_t`), a bool as 0 or 1, a float
as `double`, None as a null pointer, a NumPy number as its own type, and an object of ctypes
or cffi as its own type. Buffers, bytes and objects with `data_ptr()` or `_as_parameter_` are
passed as pointers and kept alive until the task is done. Memory counts as read and written
unless `accelrt.reads` or `accelrt.writes` marks it; read-only memory requires `reads`. The
result is ignored. With `check=True` the result is a 32-bit status, and a status other than 0
fails the stream. As with ctypes, a wrong signature or address is undefined behaviour.

`blocking=True` is for a function that sleeps, or waits for a file or a lock: a thread more serves
the device's other streams meanwhile.

For a kernel, `global_size` is the number of work-items: an int, or a sequence of one to three
ints. `local_size` is the number of work-items in a work-group; the driver chooses the default.
A pointer argument is a buffer, a view, None, a `ctypes.c_void_p` or an object with
`__sycl_usm_array_interface__`. Numbers must fit the kernel's declared types; a binary that
declares no types requires values of ctypes. Local memory is passed as a size in bytes.

>>> import accelrt, ctypes
>>> libc, stream = ctypes.CDLL(None), accelrt.Stream()
>>> text = ctypes.create_string_buffer(4)
>>> stream.launch(libc.memset, text, ord(\"x\"), ctypes.c_size_t(3))
>>> stream.synchronize()
>>> text.value
b'xxx'";

    #[inline]
    fn call(stream: &PyStream, arguments: &Arguments<'_, '_>) -> PyResult<()> {
        let stream = &stream.stream;
        if let [function, args @ ..] = arguments.positional
            && arguments.are_positional()
            && let Some(call) = plain_call(function, args)?
        {
            let py = function.py();
            drop_parked(py);
            return enqueue_call(py, stream, call);
        }
        // The slow path clones and drops references, so pyo3 must know that the GIL is held.
        Python::attach(|_| launch_any(stream, arguments))
    }
}

/// Builds the call of a cached function from numbers only, for which no object must stay alive.
/// `None` for any other call, which takes the slow path, [`launch`].
#[inline]
fn plain_call(function: &Bound<'_, PyAny>, args: &[Bound<'_, PyAny>]) -> PyResult<Option<FfiCall>> {
    let Some(known) = KnownFunction::of(function)? else { return Ok(None) };
    let NativeFunction { address: function, signature, is_retained } = &known.get().function;
    let is_short = args.len() <= SHORT && !is_retained;
    if !is_short || signature.as_ref().is_some_and(|signature| signature.len() != args.len()) {
        return Ok(None);
    }
    let mut places = [Argument::U64(0); SHORT];
    for (index, (place, value)) in places.iter_mut().zip(args).enumerate() {
        let declared = signature.as_ref().map(|signature| &signature[index]);
        let Some(number) = number(declared, value) else { return Ok(None) };
        *place = number;
    }
    let address = std::ptr::with_exposed_provenance(address(*function));
    Ok(FfiCall::new(address, &places[..args.len()]).ok())
}

#[inline]
fn enqueue_call(py: Python<'_>, stream: &Stream, call: FfiCall) -> PyResult<()> {
    enqueue(py, stream, || {
        // SAFETY: as with ctypes, the caller of `launch` guarantees that the address is a function
        // with these arguments, which may be called when the stream reaches the task.
        unsafe { stream.launch(call) }
    })?;
    Ok(())
}

#[inline(never)]
fn launch_any(stream: &Stream, arguments: &Arguments<'_, '_>) -> PyResult<()> {
    let method = "Stream.launch";
    let known = ["function", "check", "blocking", "global_size", "local_size"];
    let [function, check, blocking, global, local] = arguments.by_name(method, known)?;
    let (function, args) = match (arguments.positional, function) {
        ([function, args @ ..], None) => (function, args),
        ([], Some(function)) => (function, &[][..]),
        ([], None) => {
            let text = format!("{method}() missing 1 required positional argument: 'function'");
            return Err(PyTypeError::new_err(text));
        }
        (_, Some(_)) => {
            let text = format!("{method}() got multiple values for argument 'function'");
            return Err(PyTypeError::new_err(text));
        }
    };
    let flag = |name: &str, given: Option<&Bound<'_, PyAny>>| match given {
        Some(given) => given.extract::<Flag<'_>>()?.get(name),
        None => Ok(false),
    };
    let (check, blocking) = (flag("check", check)?, flag("blocking", blocking)?);
    if global.is_none() && local.is_none() {
        return launch(stream, function, args, check, blocking);
    }
    if blocking {
        return Err(PyTypeError::new_err(
            "blocking=True is for native functions: a kernel blocks no thread",
        ));
    }
    kernel_launch::launch(stream, function, args, check, &Sizes { global, local })
}

/// A task stores up to this many arguments without an allocation.
const SHORT: usize = 4;

fn launch(
    stream: &Stream,
    object: &Bound<'_, PyAny>,
    args: &[Bound<'_, PyAny>],
    check: bool,
    blocking: bool,
) -> PyResult<()> {
    let py = object.py();
    drop_parked(py);
    let function = NativeFunction::of(object)?;
    if check {
        check_returns_status(object)?;
    }
    let mut used = Used::default();
    let count = args.len();
    let address = std::ptr::with_exposed_provenance::<c_void>(address(function.address));
    let (mut short, mut long) = ([Argument::U64(0); SHORT], Vec::new());
    let places = if count <= SHORT {
        &mut short[..count]
    } else {
        long.resize(count, Argument::U64(0));
        &mut long[..]
    };
    convert(object, &function, args, places, &mut used)?;
    let call = FfiCall::new(address, places);
    let call = call.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    let call = if check { call.checked() } else { call };
    let call = if blocking { call.blocking() } else { call };
    if function.is_retained {
        used.objects.push(object.clone().unbind());
    }
    if !used.is_empty() {
        return launch_with_objects(py, stream, call, used);
    }
    enqueue_call(py, stream, call)
}

/// Enqueues a call that uses objects. Records the uses of buffers, and keeps other objects alive
/// until the call is done.
#[inline(never)]
fn launch_with_objects(
    py: Python<'_>,
    stream: &Stream,
    call: FfiCall,
    Used { objects, memory }: Used,
) -> PyResult<()> {
    let uses = memory.iter().filter_map(|UsedMemory { memory, mark }| match memory {
        ViewMemory::Ours(buffer) => Some((buffer, mark.writes())),
        ViewMemory::Foreign(..) => None,
    });
    let uses: Vec<_> = uses.collect();
    enqueue(py, stream, || {
        if uses.is_empty() {
            // SAFETY: the caller of `launch` guarantees that the address is a function with these
            // arguments. The next task of the stream keeps the objects alive.
            unsafe { stream.launch(call) }
        } else {
            // The task keeps no buffer alive, because a free waits for the recorded use.
            // SAFETY: the caller of `launch` guarantees that the address is a function with these
            // arguments, which accesses memory as marked.
            unsafe { stream.launch_with_uses(call, &uses) }
        }
    })?;
    memory.iter().try_for_each(|used| used.record_foreign_use(stream))?;
    if !objects.is_empty() {
        // Enqueues an internal task that drops the objects after the call. The task runs even if
        // the stream has failed, and is never counted as skipped or cancelled.
        stream.drop_after_all(DeferredDrop::new(objects));
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "pointers have 64 bits")]
fn address(address: u64) -> usize {
    address as usize
}

#[inline]
fn convert<'py>(
    object: &Bound<'py, PyAny>,
    function: &NativeFunction,
    args: &[Bound<'py, PyAny>],
    places: &mut [Argument],
    used: &mut Used,
) -> PyResult<()> {
    let mut converter = ArgumentConverter { function: object, index: 0, used };
    let signature = function.signature.as_deref();
    if let Some(signature) = signature
        && signature.len() != args.len()
    {
        let (name, expected, given) = (name_of(object), signature.len(), args.len());
        return Err(PyTypeError::new_err(format!(
            "{name} takes {expected} arguments by its declared types, {given} were given"
        )));
    }
    for (index, (place, value)) in places.iter_mut().zip(args).enumerate() {
        converter.index = index;
        *place = match signature {
            Some(signature) => converter.declared(&signature[index], value)?,
            None => converter.undeclared(value)?,
        };
    }
    Ok(())
}
