//! `accelrt.from_dlpack`: memory that DLPack describes, as a typed view.
#![expect(unsafe_code, reason = "structures that other libraries fill")]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::device::{Device, DeviceKind};
use crate::python::dlpack::{
    CPU, Carried, MAJOR, MINOR, Managed, ManagedVersioned, ONE_API, Owned, READ_ONLY, Tensor,
};
use crate::python::element::Element;
use crate::python::errors::type_name;
use crate::python::host_memory::HostMemory;
use crate::python::view::PyView;

/// A typed view of the memory of an object with DLPack, without a copy. `BufferError` for memory
/// of devices other than cpu and xpu, that is not contiguous, or whose elements NumPy cannot name.
///
/// >>> import accelrt
/// >>> accelrt.from_dlpack(accelrt.zeros(8).view("int32")).shape
/// (2,)
#[pyfunction]
pub(super) fn from_dlpack(x: &Bound<'_, PyAny>) -> PyResult<PyView> {
    if x.is_instance_of::<PyCapsule>() {
        return import(x);
    }
    if !x.hasattr("__dlpack__")? || !x.hasattr("__dlpack_device__")? {
        let text = format!("x must have DLPack or be its capsule, not {}", type_name(x));
        return Err(PyTypeError::new_err(text));
    }
    let (device_type, _): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    device_of(device_type, 0)?;
    let arguments = PyDict::new(x.py());
    arguments.set_item("max_version", (MAJOR, MINOR))?;
    let capsule = match x.call_method("__dlpack__", (), Some(&arguments)) {
        // From before the versions.
        Err(error) if error.is_instance_of::<PyTypeError>(x.py()) => {
            x.call_method0("__dlpack__")?
        }
        capsule => capsule?,
    };
    import(&capsule)
}

fn import(capsule: &Bound<'_, PyAny>) -> PyResult<PyView> {
    if let Some(owned) = take::<ManagedVersioned>(capsule)? {
        // SAFETY: a structure that its maker filled, of whatever version: this field is the first.
        let version = unsafe { (*owned.0).version };
        if version.major != MAJOR {
            owned.release_now(capsule.py());
            let (major, minor) = (version.major, version.minor);
            let text = format!("DLPack {major}.{minor} is not known: {MAJOR}.x is");
            return Err(PyBufferError::new_err(text));
        }
        // SAFETY: as above, of a version that has these fields.
        let known = unsafe { &*owned.0 };
        let (tensor, flags) = (known.tensor, known.flags);
        return view(capsule.py(), &tensor, flags & READ_ONLY != 0, owned);
    }
    if let Some(owned) = take::<Managed>(capsule)? {
        // SAFETY: as above.
        let tensor = unsafe { (*owned.0).tensor };
        return view(capsule.py(), &tensor, false, owned);
    }
    Err(PyBufferError::new_err("the capsule holds no DLPack tensor, or one that was taken before"))
}

/// Takes the structure out of a capsule with its name: from here on it is ours to free.
fn take<M: Carried>(capsule: &Bound<'_, PyAny>) -> PyResult<Option<Owned<M>>> {
    let object = capsule.as_ptr();
    // SAFETY: a live object, with the GIL; what is no capsule is not valid.
    if unsafe { ffi::PyCapsule_IsValid(object, M::NAME.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: valid, as just asked.
    let managed = unsafe { ffi::PyCapsule_GetPointer(object, M::NAME.as_ptr()) };
    // SAFETY: as above; the name lives for ever.
    if unsafe { ffi::PyCapsule_SetName(object, M::USED_NAME.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(Some(Owned(managed.cast())))
}

fn view<M: Carried>(
    py: Python<'_>,
    tensor: &Tensor,
    is_read_only: bool,
    owned: Owned<M>,
) -> PyResult<PyView> {
    let (element, shape, bytes, device) = match describe(tensor) {
        Ok(description) => description,
        Err(error) => {
            owned.release_now(py);
            return Err(error);
        }
    };
    let offset = usize::try_from(tensor.byte_offset).unwrap_or(0);
    let address = tensor.data.cast::<u8>().wrapping_add(offset);
    let memory = HostMemory::new(address, bytes, is_read_only, Box::new(owned)).on(device);
    Ok(PyView::foreign(memory, element, shape))
}

/// Type, shape and size of a tensor that we can take.
fn describe(tensor: &Tensor) -> PyResult<(Element, Vec<usize>, usize, Device)> {
    let refusal = |text: &str| PyBufferError::new_err(text.to_owned());
    let device = device_of(tensor.device_type, tensor.device_id)?;
    let kind = tensor.element;
    let element = Element::of_dlpack(kind.code, kind.bits, kind.lanes);
    let element = element.ok_or_else(|| refusal("NumPy has no name for the type of elements"))?;
    let count = usize::try_from(tensor.dimensions).map_err(|_| refusal("negative dimensions"))?;
    let extents = read(tensor.shape, count).ok_or_else(|| refusal("the shape is missing"))?;
    let shape: Result<Vec<usize>, _> = extents.iter().map(|it| usize::try_from(*it)).collect();
    let shape = shape.map_err(|_| refusal("a negative extent"))?;
    let product = shape.iter().try_fold(element.item_bytes, |all, it| all.checked_mul(*it));
    let bytes = product.ok_or_else(|| refusal("the shape is too large"))?;
    let mut dense = 1;
    let strides = read(tensor.strides, count).unwrap_or_default();
    for (extent, stride) in extents.iter().zip(&strides).rev() {
        if bytes > 0 && *extent != 1 && *stride != dense {
            return Err(refusal("the memory is not contiguous"));
        }
        dense = dense.wrapping_mul(*extent); // only where there are no bytes
    }
    if bytes > 0 && tensor.data.is_null() {
        return Err(refusal("the address is null"));
    }
    Ok((element, shape, bytes, device))
}

/// Numbers of a structure. `None` where it has none but should.
fn read(numbers: *const i64, count: usize) -> Option<Vec<i64>> {
    match (count, numbers.is_null()) {
        (0, _) => Some(Vec::new()),
        (_, true) => None,
        // SAFETY: the structure's maker says that as many numbers are there as dimensions.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(numbers, count) }.to_vec()),
    }
}

/// The device of memory that we can take.
fn device_of(device_type: i32, device_id: i32) -> PyResult<Device> {
    let index = usize::try_from(device_id);
    match (device_type, index) {
        (CPU, _) => Ok(Device::cpu(0)),
        (ONE_API, Ok(index)) => Ok(Device::new(DeviceKind::Xpu, index)?),
        _ => {
            let text =
                format!("memory of DLPack's device type {device_type} is neither cpu's nor xpu's");
            Err(PyBufferError::new_err(text))
        }
    }
}
