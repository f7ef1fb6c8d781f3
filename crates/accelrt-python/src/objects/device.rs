//! `accelrt.device`: a kind, optionally with an index, as in torch.

use accelrt::internal::KINDS_REFUSED;
use accelrt::{
    Device, DeviceError, DeviceKind, Error, MAX_DEVICE_INDEX, Result, Runtime, parse_device,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::objects::contexts::default_device;
use crate::objects::selection::Context;
use crate::objects::task_contexts;
use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::text_of;
use crate::support::parameters::{integer, integer_of};

/// A device by name: a kind and, optionally, an index from 0 to 127.
///
/// Each use checks that the device exists; the constructor does not. Inside a `with`, the device is
/// this thread's current device of its kind, and the default device of `accelrt.Stream`, `empty`
/// and similar functions. The innermost `with` of a device, an index or a stream applies.
///
/// >>> import accelrt
/// >>> accelrt.device("cpu:0").index
/// 0
/// >>> accelrt.device("cpu") == accelrt.device("cpu:0")
/// False
#[pyclass(name = "device", module = "accelrt", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDevice {
    pub(crate) kind: DeviceKind,
    pub(crate) index: Option<usize>,
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let named = Self::extract(r#type)?;
        let Some(index) = index else { return Ok(named) };
        if named.index.is_some() {
            let text =
                "type (string) must not include an index because index was passed explicitly";
            return Err(PyRuntimeError::new_err(format!("{text}: {}", text_of(r#type)?)));
        }
        Ok(Self { index: Some(index_in_range(integer("index", index)?, index)?), ..named })
    }

    /// The kind: `"cpu"`, `"cuda"`, `"xpu"` or the name of a registered kind.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.kind.name()
    }

    /// The index, or None for a kind only.
    #[getter]
    fn index(&self) -> Option<usize> {
        self.index
    }

    pub(crate) fn __str__(&self) -> String {
        match self.index {
            Some(index) => format!("{}:{index}", self.kind),
            None => self.kind.to_string(),
        }
    }

    fn __repr__(&self) -> String {
        match self.index {
            Some(index) => format!("device(type='{}', index={index})", self.kind),
            None => format!("device(type='{}')", self.kind),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let arguments = (slf.get().__str__(),);
        (slf.get_type(), arguments).into_pyobject(slf.py())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().context().enter(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.context().exit(exception.py())
    }
}

impl PyDevice {
    /// Reads a device from a `device`, a string, or an index of the accelerator.
    pub(crate) fn extract(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(device) = object.cast::<Self>() {
            return Ok(*device.get());
        }
        if let Ok(text) = object.cast::<PyString>() {
            // Lossy: `parse` refuses the replacement characters, because no device name has them.
            let (kind, index) = parse(&text.to_string_lossy()).or_raise()?;
            return Ok(Self { kind, index });
        }
        if let Some(number) = integer_of(object)? {
            let index = Some(index_in_range(number, object)?);
            return Ok(Self {
                kind: Runtime::global().or_raise()?.accelerator().or_raise()?,
                index,
            });
        }
        Err(wrong_type("device", "an accelrt.device, a string such as 'cpu:0' or an index", object))
    }

    /// What a `with` of the device enters.
    fn context(self) -> Context {
        Context::Device(self.kind, self.index)
    }

    /// The device as a Python object, for the errors of streams.
    pub(crate) fn object(py: Python<'_>, device: Device) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, Self::from(device))?.into_any())
    }

    /// The named device. A kind alone means the kind's current device. From here on, what is
    /// current on this thread is what is current in the asyncio task that runs.
    pub(crate) fn resolve(self, runtime: &Runtime) -> Result<Device> {
        task_contexts::apply();
        match self.index {
            Some(index) => Device::new(self.kind, index),
            None => runtime.current_device_of(self.kind),
        }
    }
}

impl From<Device> for PyDevice {
    fn from(device: Device) -> Self {
        Self { kind: device.kind(), index: Some(device.index()) }
    }
}

/// The device that an optional argument names; without one, [`default_device`].
pub(crate) fn device_or_default(
    runtime: &Runtime,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Device> {
    match device {
        Some(device) => Ok(PyDevice::extract(device)?.resolve(runtime).or_raise()?),
        None => Ok(default_device(runtime).or_raise()?),
    }
}

fn parse(text: &str) -> Result<(DeviceKind, Option<usize>)> {
    let (kind, index) = parse_device(text).map_err(|error| match (error, KINDS_REFUSED.get()) {
        // The name may be one that could not be loaded.
        (Error::Device(DeviceError::UnknownKind { .. }), Some(refused)) => refused.clone(),
        (error, _) => error,
    })?;
    if kind == DeviceKind::NULL {
        // The null kind is registered, but only a Rust program can add its backend to a runtime.
        return Err(Error::Device(DeviceError::UnknownKind { given: kind.name().to_owned() }));
    }
    if let Some(index) = index {
        Device::new(kind, index)?;
    }
    Ok((kind, index))
}

fn index_in_range(number: i64, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    match usize::try_from(number) {
        Ok(index) if index <= usize::from(MAX_DEVICE_INDEX) => Ok(index),
        Ok(_) => Err(PyRuntimeError::new_err(format!(
            "Device index {} is out of range: an index is at most {MAX_DEVICE_INDEX}",
            text_of(given)?
        ))),
        Err(_) => Err(PyRuntimeError::new_err("Device index must not be negative")),
    }
}
