//! `accelrt.from_dlpack`: creates views of memory that other libraries describe by DLPack.
#![expect(unsafe_code, reason = "structures that other libraries fill")]

use accelrt::{Device, DeviceKind};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::memory::dlpack::{
    CPU, CapsuleStructure, EXTENSION, ElementType, MAJOR, MINOR, Managed, ManagedVersioned,
    ONE_API, Owned, READ_ONLY, Tensor,
};
use crate::memory::element::Element;
use crate::memory::exposure::strides_of;
use crate::memory::foreign_memory::ForeignMemory;
use crate::memory::strided::{Strided, gather_words};
use crate::memory::view::{PyView, misaligned};
use crate::support::deferred_drops::Lender;
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::parameters::Flag;

#[derive(Clone, Copy, Default)]
pub(crate) struct ImportOptions {
    /// Whether the view is read-only. `None`: as the producer's flag says; read-only for a
    /// structure without flags; writable for a copy.
    pub(crate) is_read_only: Option<bool>,
    /// `None` copies only memory that is not contiguous.
    pub(crate) copy: Option<bool>,
    /// The caller uses no elements, so that any address is allowed.
    pub(crate) only_bytes: bool,
}

/// A typed view of the memory of an object with DLPack, or of a DLPack capsule. `BufferError` for
/// memory of devices other than cpu and xpu, for element types that views do not support, and for
/// memory that is not aligned for its element type, unless it is copied; a refused capsule remains
/// usable.
///
/// `copy=None` copies only memory that is not contiguous, which fails on xpu; True copies always,
/// False never. With `readonly=None`, a copy is writable, and other views follow the producer's
/// flag; an unversioned structure has none, and its view is read-only. `readonly=False` fails for
/// memory that the producer marks read-only, unless it is copied.
///
/// >>> import accelrt
/// >>> accelrt.from_dlpack(accelrt.zeros(8).view("int32")).shape
/// (2,)
#[pyfunction]
#[pyo3(signature = (x, *, readonly=None, copy=None))]
pub(crate) fn from_dlpack(
    x: &Bound<'_, PyAny>,
    readonly: Option<Flag<'_>>,
    copy: Option<Flag<'_>>,
) -> PyResult<PyView> {
    let is_read_only = readonly.map(|flag| flag.get("readonly")).transpose()?;
    let copy = copy.map(|flag| flag.get("copy")).transpose()?;
    import_from(x, ImportOptions { is_read_only, copy, only_bytes: false })
}

pub(crate) fn import_from(x: &Bound<'_, PyAny>, options: ImportOptions) -> PyResult<PyView> {
    if x.is_instance_of::<PyCapsule>() {
        return import(x, options);
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
        // This producer does not know `max_version`, so this call requests the unversioned
        // structure.
        Err(error) if error.is_instance_of::<PyTypeError>(x.py()) => {
            x.call_method0("__dlpack__")?
        }
        capsule => capsule?,
    };
    import(&capsule, options)
}

fn import(capsule: &Bound<'_, PyAny>, options: ImportOptions) -> PyResult<PyView> {
    if let Some(managed) = find::<ManagedVersioned>(capsule)? {
        // SAFETY: the producer filled the structure; every version has this field first.
        let version = unsafe { (*managed).version };
        if version.major != MAJOR {
            // The capsule still owns the structure and frees it.
            let (major, minor) = (version.major, version.minor);
            let text = format!("DLPack {major}.{minor} is not known: {MAJOR}.x is");
            return Err(PyBufferError::new_err(text));
        }
        // SAFETY: the producer filled a structure of this major version, which has these fields.
        let known = unsafe { &*managed };
        let (tensor, is_read_only) = (known.tensor, known.flags & READ_ONLY != 0);
        return view(capsule, managed, &tensor, Some(is_read_only), options);
    }
    if let Some(managed) = find::<Managed>(capsule)? {
        // SAFETY: the producer filled the unversioned structure.
        let tensor = unsafe { (*managed).tensor };
        return view(capsule, managed, &tensor, None, options);
    }
    Err(PyBufferError::new_err("the capsule holds no DLPack tensor, or one that was taken before"))
}

/// Borrows the structure in a capsule named `M::CAPSULE_NAME`. `None` for other objects.
fn find<M: CapsuleStructure>(capsule: &Bound<'_, PyAny>) -> PyResult<Option<*mut M>> {
    let object = capsule.as_ptr();
    // SAFETY: the object is live and the GIL is held; for other objects the result is 0.
    if unsafe { ffi::PyCapsule_IsValid(object, M::CAPSULE_NAME.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: the object is a valid capsule of this name, as checked above.
    let managed = unsafe { ffi::PyCapsule_GetPointer(object, M::CAPSULE_NAME.as_ptr()) };
    if managed.is_null() { Err(PyErr::fetch(capsule.py())) } else { Ok(Some(managed.cast())) }
}

/// Takes the structure by renaming its capsule. The caller must free the structure.
fn take<M: CapsuleStructure>(capsule: &Bound<'_, PyAny>, managed: *mut M) -> PyResult<Owned<M>> {
    // SAFETY: `find` validated this capsule under the same hold of the GIL; the name is a static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::CONSUMED_NAME.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(Owned(managed))
}

/// Creates a view of a tensor. The capsule owns the structure until all checks have passed.
fn view<M: CapsuleStructure>(
    capsule: &Bound<'_, PyAny>,
    managed: *mut M,
    tensor: &Tensor,
    producers_flag: Option<bool>,
    options: ImportOptions,
) -> PyResult<PyView> {
    let py = capsule.py();
    let TensorDescription { element, shape, strides, address, bytes, device } = describe(tensor)?;
    let (is_dense, is_host) = (strides.is_none(), device.kind() == DeviceKind::CPU);
    let is_copied = options.copy == Some(true) || !is_dense;
    if options.copy == Some(false) && is_copied {
        let text = format!("memory of shape {shape:?} is not contiguous: copy=False forbids it");
        return Err(PyBufferError::new_err(text));
    }
    if !is_dense && !is_host {
        let text = format!("memory of {device} that is not contiguous is beyond the host's reach");
        return Err(PyBufferError::new_err(text));
    }
    if producers_flag == Some(true) && options.is_read_only == Some(false) && !is_copied {
        let text = "the memory is read-only, as its lender says, and readonly=False asks to write";
        return Err(PyBufferError::new_err(text));
    }
    let is_read_only = options.is_read_only.unwrap_or(!is_copied && producers_flag.unwrap_or(true));
    let is_aligned = bytes == 0 || element.may_begin_at(address.addr() as u64);
    if !is_aligned && !is_copied && !options.only_bytes {
        let text = misaligned("the memory", address.addr() as u64, element);
        return Err(PyBufferError::new_err(format!("{text}: copy=True copies it")));
    }
    if is_copied && is_host {
        let strides = strides.unwrap_or_else(|| strides_of(&shape, element.item_bytes));
        let elements = Strided::new(address, element.item_bytes, &shape, &strides);
        // SAFETY: the producer keeps the elements alive until the structure is freed. The program
        // does not write them during the call, as the contract of Python's API requires.
        let words = unsafe { gather_words(py, &elements) }?;
        Box::new(take(capsule, managed)?).take_back(py);
        let mut memory = ForeignMemory::owned(words, bytes);
        memory.is_read_only = is_read_only;
        return Ok(PyView::foreign(memory, element, shape));
    }
    let owned = Box::new(take(capsule, managed)?);
    let mut memory = ForeignMemory::new(address, bytes, is_read_only, owned);
    memory.device = device;
    let view = PyView::foreign(memory, element, shape);
    if !is_copied {
        return Ok(view);
    }
    let copy = view.copied(py)?;
    if is_read_only { copy.read_only(py) } else { Ok(copy) }
}

/// A tensor whose element type, device and size are supported.
struct TensorDescription {
    element: Element,
    shape: Vec<usize>,
    /// Counted in bytes; `None` for contiguous elements.
    strides: Option<Vec<isize>>,
    /// That of the first element, which need not be the lowest one.
    address: *mut u8,
    bytes: usize,
    device: Device,
}

fn describe(tensor: &Tensor) -> PyResult<TensorDescription> {
    let refusal = |text: &str| PyBufferError::new_err(text.to_owned());
    let device = device_of(tensor.device_type, tensor.device_id)?;
    let ElementType { code, bits, lanes } = tensor.element;
    let element = Element::of_dlpack(code, bits, lanes).ok_or_else(|| {
        let given = format!("elements of DLPack's type {code} with {bits} bits and {lanes} lanes");
        refusal(&format!("{given} are none of {}", Element::names()))
    })?;
    let count = usize::try_from(tensor.dimensions).map_err(|_| refusal("negative dimensions"))?;
    if count > ffi::PyBUF_MAX_NDIM {
        return Err(refusal(&format!("a shape has at most 64 dimensions, not {count}")));
    }
    let extents = read(tensor.shape, count).ok_or_else(|| refusal("the shape is missing"))?;
    let shape: Result<Vec<usize>, _> = extents.iter().map(|it| usize::try_from(*it)).collect();
    let shape = shape.map_err(|_| refusal(&format!("a negative extent: {extents:?}")))?;
    let product = shape.iter().try_fold(element.item_bytes, |all, it| all.checked_mul(*it));
    let bytes = product.filter(|bytes| isize::try_from(*bytes).is_ok());
    let too_large = || refusal(&format!("the shape {extents:?} of {} is too large", element.name));
    let bytes = bytes.ok_or_else(too_large)?;
    if bytes > 0 && tensor.data.is_null() {
        return Err(refusal("the address is null"));
    }
    let strides = read(tensor.strides, count).filter(|strides| !is_dense(&extents, strides, bytes));
    let item_bytes = element.item_bytes.cast_signed(); // at most 16
    let in_bytes = |stride: &i64| isize::try_from(*stride).ok()?.checked_mul(item_bytes);
    let strides = strides.map(|strides| {
        let all: Option<Vec<isize>> = strides.iter().map(in_bytes).collect();
        all.ok_or_else(|| refusal(&format!("strides out of range: {strides:?}")))
    });
    let strides = strides.transpose()?;
    let address = first_address(tensor, &shape, strides.as_deref(), element.item_bytes, bytes);
    let address = address.ok_or_else(|| {
        let (offset, first) = (tensor.byte_offset, tensor.data.addr());
        refusal(&format!("byte_offset {offset} from {first:#x} leads out of the address space"))
    })?;
    Ok(TensorDescription { element, shape, strides, address, bytes, device })
}

/// The address of the first element. `None` if some element lies outside of the address space.
fn first_address(
    tensor: &Tensor,
    shape: &[usize],
    strides: Option<&[isize]>,
    item_bytes: usize,
    bytes: usize,
) -> Option<*mut u8> {
    let offset = usize::try_from(tensor.byte_offset).ok()?;
    let first = tensor.data.addr().checked_add(offset)?;
    // The distances of the first byte of all elements and of the last one.
    let (mut lowest, mut highest) = (0_i128, bytes.saturating_sub(1) as i128);
    if let Some(strides) = strides.filter(|_| bytes > 0) {
        highest = item_bytes as i128 - 1;
        for (extent, stride) in shape.iter().zip(strides) {
            let reach = (*extent as i128 - 1) * *stride as i128;
            lowest += reach.min(0);
            highest += reach.max(0);
        }
    }
    let is_inside = |distance: i128| usize::try_from(first as i128 + distance).is_ok();
    let is_whole = is_inside(lowest) && is_inside(highest);
    is_whole.then(|| tensor.data.cast::<u8>().wrapping_add(offset))
}

/// True for contiguous elements in C order. Ignores strides of dimensions with one element.
fn is_dense(extents: &[i64], strides: &[i64], bytes: usize) -> bool {
    let mut dense = 1;
    let mut is_dense = true;
    for (extent, stride) in extents.iter().zip(strides).rev() {
        is_dense &= bytes == 0 || *extent == 1 || *stride == dense;
        dense = dense.wrapping_mul(*extent); // overflows only when the tensor is empty
    }
    is_dense
}

/// Reads `count` numbers. `None` for a null pointer, unless `count` is 0.
fn read(numbers: *const i64, count: usize) -> Option<Vec<i64>> {
    match (count, numbers.is_null()) {
        (0, _) => Some(Vec::new()),
        (_, true) => None,
        // SAFETY: the producer stores one number per dimension.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(numbers, count) }.to_vec()),
    }
}

/// The kind from outside: DLPack has one type for all of them.
fn extension_kind() -> PyResult<DeviceKind> {
    let mut kinds = DeviceKind::named().filter(|kind| kind.type_code() >= 64);
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => Ok(kind),
        (None, _) => Err(PyBufferError::new_err(
            "memory of DLPack's device type 12 is of a kind that is not loaded",
        )),
        (Some(one), Some(other)) => Err(PyBufferError::new_err(format!(
            "memory of DLPack's device type 12 may be of {one} or of {other}: DLPack does not tell"
        ))),
    }
}

/// The device for DLPack's type and index. `BufferError` for types other than cpu and xpu.
fn device_of(device_type: i32, device_id: i32) -> PyResult<Device> {
    let index = usize::try_from(device_id);
    match (device_type, index) {
        (CPU, _) => Ok(Device::cpu(0)),
        (ONE_API, Ok(index)) => Ok(Device::new(DeviceKind::XPU, index).or_raise()?),
        (EXTENSION, Ok(index)) => Ok(Device::new(extension_kind()?, index).or_raise()?),
        _ => Err(PyBufferError::new_err(format!(
            "memory of DLPack's device type {device_type} is neither cpu's nor xpu's"
        ))),
    }
}
