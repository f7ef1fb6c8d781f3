//! The class `accelrt.Generator`, and functions that seed the default generators.
#![expect(unsafe_code, reason = "fills whose order the program promises")]

use accelrt::internal::fork;
use accelrt::{Buffer, Device, DeviceKind, Result, Runtime, Stream};
use accelrt_random::{FloatType, Generator, RawType, RuntimeExt};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyMemoryView, PyTuple};

use crate::memory::copies::current_stream;
use crate::memory::element::Element;
use crate::memory::transfers::write_if_buffer;
use crate::memory::view::PyView;
use crate::objects::device::{PyDevice, device_or_default};
use crate::objects::functions::device_argument;
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::type_name;
use crate::support::parameters::{kind_argument, size};
use crate::support::waiting::{enqueue, make_room};

/// A generator of random numbers: Philox 4x32-10, with the same bits on every kind of device.
///
/// A generator fills buffers of its device's kind, on the current streams of their devices. Several
/// threads may use one generator: each call takes its own part of the sequence. Copies and pickles
/// of a generator have its state.
///
/// >>> import accelrt
/// >>> generator = accelrt.Generator("cpu").manual_seed(0)
/// >>> hex(generator.random_raw(1)[0])
/// '0xe169c58d6627e8d5'
/// >>> buffer = generator.fill_uniform_(accelrt.empty(16, device="cpu"), "float32")
/// >>> all(0 <= number < 1 for number in memoryview(buffer).cast("f"))
/// True
#[pyclass(name = "Generator", module = "accelrt", weakref, frozen)]
pub(crate) struct PyGenerator {
    generator: Generator,
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let runtime = Runtime::global().or_raise()?;
        let device = device_or_default(&runtime, device)?;
        Ok(Self { generator: runtime.generator(device).or_raise()? })
    }

    /// The device that the generator was created for.
    #[getter]
    fn device(&self) -> PyDevice {
        self.generator.device().into()
    }

    /// Sets the seed and an offset of 0; returns this generator. A seed is -2^63 to 2^64 - 1; 2^64
    /// is added to a negative seed.
    fn manual_seed<'py>(
        slf: Bound<'py, Self>,
        seed: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        slf.get().generator.manual_seed(seed_argument(seed)?).or_raise()?;
        Ok(slf)
    }

    /// Seeds the generator with an unpredictable number, and returns that number.
    fn seed(&self) -> PyResult<u64> {
        self.generator.seed().or_raise()
    }

    /// The current seed.
    fn initial_seed(&self) -> PyResult<u64> {
        self.generator.initial_seed().or_raise()
    }

    /// Seed and offset as 16 bytes, for `set_state`.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.generator.state().or_raise()?))
    }

    /// Restores a state from `get_state`; returns this generator. Takes any object with the buffer
    /// protocol.
    fn set_state<'py>(
        slf: Bound<'py, Self>,
        state: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        slf.get().generator.set_state(state_argument(state)?).or_raise()?;
        Ok(slf)
    }

    /// A separate generator with the same state.
    fn clone_state(&self) -> PyResult<Self> {
        Ok(Self { generator: self.generator.clone_state().or_raise()? })
    }

    /// The position in the seed's sequence in 32-bit words, a multiple of 4.
    fn get_offset(&self) -> PyResult<u64> {
        self.generator.offset().or_raise()
    }

    /// Sets the position in the seed's sequence in 32-bit words, a multiple of 4 up to 2^64 - 4;
    /// returns this generator.
    fn set_offset<'py>(
        slf: Bound<'py, Self>,
        offset: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        if !is_integer(offset) {
            return Err(wrong_type("offset", "an integer", offset));
        }
        let out_of_range = |_| {
            let text = format!("offset must be 0 to 18446744073709551612, not {offset}");
            PyValueError::new_err(text)
        };
        slf.get().generator.set_offset(offset.extract().map_err(out_of_range)?).or_raise()?;
        Ok(slf)
    }

    /// The next `n` 64-bit numbers as a list: those that `fill_raw_` with "uint64" would write.
    fn random_raw(&self, py: Python<'_>, n: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let (count, mut numbers) = (size("n", n)?, Vec::new());
        let too_many = |_| PyMemoryError::new_err(format!("no memory for {count} numbers"));
        numbers.try_reserve_exact(count).map_err(too_many)?;
        py.detach(|| {
            numbers.resize(count, 0);
            self.generator.random_raw_into(&mut numbers)
        })
        .or_raise()?;
        Ok(numbers)
    }

    /// Fills a buffer or view with raw numbers of type "uint32" or "uint64", and returns it; a view
    /// must have integers of that width, or bytes. Blocks only while more than
    /// `ACCELRT_STREAM_TASKS` tasks are queued. The first fill on a device other than the cpu
    /// compiles a program.
    fn fill_raw_<'py>(
        &self,
        buffer: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let known = [("uint32", RawType::Uint32), ("uint64", RawType::Uint64)];
        self.fill(buffer, dtype, known, Generator::fill_raw_unordered)
    }

    /// As `fill_raw_`, with uniform numbers from 0, inclusive, to 1, exclusive, of type "float32"
    /// or "float64".
    fn fill_uniform_<'py>(
        &self,
        buffer: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.fill(buffer, dtype, FLOATS, Generator::fill_uniform_unordered)
    }

    /// As `fill_raw_`, with normal numbers of mean 0 and variance 1, of type "float32" or
    /// "float64".
    fn fill_normal_<'py>(
        &self,
        buffer: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.fill(buffer, dtype, FLOATS, Generator::fill_normal_unordered)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let own = slf.get();
        let (seed, offset) = (own.initial_seed()?, own.get_offset()?);
        let state = (seed, offset, own.get_state(slf.py())?);
        (slf.get_type(), (own.device(),), state).into_pyobject(slf.py())
    }

    fn __setstate__(&self, state: (u64, u64, [u8; 16])) -> PyResult<()> {
        self.generator.set_state(state.2).or_raise()
    }

    fn __repr__(&self) -> String {
        format!("accelrt.Generator device={}", self.generator.device())
    }
}

impl PyGenerator {
    /// Enqueues `fill_unordered` on the current stream of the target's device. `dtype` names one of
    /// the two `known` types.
    fn fill<'py, T: Copy + Send + Sync>(
        &self,
        target: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
        known: [(&str, T); 2],
        fill_unordered: unsafe fn(&Generator, &Buffer, T, &Stream) -> Result<()>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, dtype) = (target.py(), checked_dtype(target, dtype, known)?);
        let filled = write_if_buffer(target, |buffer| {
            let stream = current_stream(buffer).or_raise()?;
            // SAFETY: the caller in Python orders accesses to a buffer on several streams, as the
            // contract of the Python API requires.
            let fill = || unsafe { fill_unordered(&self.generator, buffer, dtype, &stream) };
            if self.generator.device().kind() == DeviceKind::CPU {
                return enqueue(py, &stream, fill);
            }
            make_room(py, &stream)?;
            py.detach(fill).or_raise() // without the GIL: the first fill compiles
        });
        let no_buffer = || wrong_type("buffer", "an accelrt.Buffer or a view of one", target);
        filled.ok_or_else(no_buffer)??;
        drop_parked(py);
        Ok(target.clone())
    }
}

fn is_integer(object: &Bound<'_, PyAny>) -> bool {
    !object.is_instance_of::<PyBool>() && object.hasattr("__index__").unwrap_or(false)
}

fn seed_argument(seed: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !is_integer(seed) {
        let text = format!("manual_seed expected a long, but got {}", type_name(seed));
        return Err(PyRuntimeError::new_err(text));
    }
    let negative = |_| seed.extract().map(i64::cast_unsigned);
    let overflow = |_| PyValueError::new_err("Overflow when unpacking long long");
    seed.extract().or_else(negative).map_err(overflow)
}

fn state_argument(state: &Bound<'_, PyAny>) -> PyResult<[u8; 16]> {
    let no_bytes = |_| wrong_type("state", "16 bytes in an object with the buffer protocol", state);
    let bytes = PyMemoryView::from(state).map_err(no_bytes)?.call_method0("tobytes")?;
    let bytes = bytes.cast::<PyBytes>()?.as_bytes();
    bytes.try_into().map_err(|_| {
        let (found, expected) = (bytes.len(), "Expected a GeneratorState of size 16");
        let text = format!("{expected} but found the input RNG state size to be {found}");
        PyRuntimeError::new_err(text)
    })
}

const FLOATS: [(&str, FloatType); 2] =
    [("float32", FloatType::Float32), ("float64", FloatType::Float64)];

/// Finds `dtype` among the `known` types. Fails for other types, and for a type whose numbers the
/// target view cannot hold.
fn checked_dtype<T: Copy>(
    target: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    known: [(&str, T); 2],
) -> PyResult<T> {
    let element = Element::extract(dtype)?;
    let found = known.iter().find(|(name, _)| *name == element.name);
    let [(first, _), (second, _)] = known;
    let unknown = || wrong_dtype(&format!("{first} or {second}"), element.name);
    let (_, found) = found.ok_or_else(unknown)?;
    match target.cast::<PyView>().map(|view| view.get().element) {
        // A reader of this view would misinterpret numbers of type `dtype`.
        Ok(own) if !own.holds(element) => {
            Err(wrong_dtype(&format!("what a view of {} holds", own.name), element.name))
        }
        _ => Ok(*found),
    }
}

/// The error for an argument `dtype` that the fill does not accept. `allowed` describes the types
/// that it accepts, `given` is the name of the argument's type.
fn wrong_dtype(allowed: &str, given: &str) -> PyErr {
    PyTypeError::new_err(format!("dtype must be {allowed}, not {given}"))
}

/// The default generator of a device. Initialises no device.
#[pyfunction]
pub(crate) fn default_generator(kind: &str, index: i64) -> PyResult<PyGenerator> {
    let generator = Runtime::global()
        .or_raise()?
        .default_generator(device_argument(kind, index)?)
        .or_raise()?;
    Ok(PyGenerator { generator })
}

/// Seeds the default generators of all devices. Initialises no device. A forked child skips them,
/// because threads that it lacks may hold their locks, and returns a new generator with the seed.
#[pyfunction]
pub(crate) fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<Option<PyGenerator>> {
    let (runtime, seed) = (Runtime::global().or_raise()?, seed_argument(seed)?);
    if !fork::is_child() {
        runtime.manual_seed(seed).or_raise()?;
        return Ok(None);
    }
    let generator = runtime.generator(Device::cpu(0)).or_raise()?;
    generator.manual_seed(seed).or_raise()?;
    Ok(Some(PyGenerator { generator }))
}

/// Seeds the default generators of all devices of a kind. Initialises no device.
#[pyfunction]
pub(crate) fn manual_seed_all(kind: &str, seed: &Bound<'_, PyAny>) -> PyResult<()> {
    let (seed, kind) = (seed_argument(seed)?, kind_argument(kind)?);
    Runtime::global().or_raise()?.manual_seed_all(kind, seed).or_raise()
}

/// Seeds the default generator of one device, without checking that the device exists.
#[pyfunction]
pub(crate) fn manual_seed_device(kind: &str, index: i64, seed: &Bound<'_, PyAny>) -> PyResult<()> {
    let (seed, device) = (seed_argument(seed)?, device_argument(kind, index)?);
    Runtime::global().or_raise()?.manual_seed_device(device, seed).or_raise()
}
