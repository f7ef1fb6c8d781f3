//! `__dlpack__`: capsules that export accelrt's memory.
#![expect(unsafe_code, reason = "the consumer frees these structures")]

use std::ffi::c_void;
use std::ptr;

use accelrt::internal::contain;
use accelrt::{Device, DeviceKind};
use pyo3::exceptions::{PyAssertionError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::memory::dlpack::{
    CPU, CapsuleStructure, EXTENSION, ElementType, IS_COPIED, MAJOR, Managed, ManagedVersioned,
    ONE_API, READ_ONLY, Tensor, Version, free,
};
use crate::memory::element::Element;
use crate::memory::view_memory::{MemoryExport, ViewMemory, export_on_device};
use crate::support::parameters::{Flag, pair};
use crate::support::stacks::freeing;

/// The checked arguments of `__dlpack__`.
pub(crate) struct ExportRequest {
    is_versioned: bool,
    wants_copy: bool,
}

impl ExportRequest {
    pub(crate) fn read<'py>(
        device: Device,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<Flag<'_>>,
    ) -> PyResult<Self> {
        check_stream(stream, device)?;
        let max_version = pair("max_version", max_version)?;
        let dl_device = pair("dl_device", dl_device)?;
        let wants_copy = copy.map_or(Ok(false), |copy| copy.get("copy"))?;
        let (kind, index) = device_of(device);
        if dl_device.is_some_and(|wanted| wanted != (kind.into(), index.into())) {
            let text = format!("memory of {device} is exported where it is, on no other device");
            return Err(PyBufferError::new_err(text));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= MAJOR.into());
        Ok(Self { is_versioned, wants_copy })
    }

    /// Creates a capsule of the memory, or of a copy on request. Waits for the memory's uses.
    pub(crate) fn capsule<'py>(
        &self,
        py: Python<'py>,
        memory: &ViewMemory,
        element: Element,
        shape: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        let waited = memory.export_on_device(py)?; // a copy is of what all streams have written
        let export =
            if self.wants_copy { export_on_device(py, &memory.copied(py)?)? } else { waited };
        let is_read_only = export.is_read_only;
        if is_read_only && !self.is_versioned {
            let text = "read-only memory can be exported with max_version=(1, 0) or later only";
            return Err(PyBufferError::new_err(text));
        }
        let content = Content::new(export, device_of(memory.device()), element, shape);
        if !self.is_versioned {
            return capsule(py, content, |tensor, context| Managed {
                tensor,
                context,
                deleter: Some(delete::<Managed>),
            });
        }
        let read_only = if is_read_only { READ_ONLY } else { 0 };
        let flags = read_only | if self.wants_copy { IS_COPIED } else { 0 };
        capsule(py, content, |tensor, context| ManagedVersioned {
            version: Version { major: MAJOR, minor: element.dlpack_minor() },
            context,
            deleter: Some(delete::<ManagedVersioned>),
            flags,
            tensor,
        })
    }
}

/// Refuses every stream but None and -1, because the export itself waits for the memory's uses.
fn check_stream(stream: Option<&Bound<'_, PyAny>>, device: Device) -> PyResult<()> {
    let Some(stream) = stream else { return Ok(()) };
    if !stream.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err("stream must be ``int`` or ``none``"));
    }
    if matches!(stream.extract::<i64>(), Ok(-1)) {
        return Ok(());
    }
    let text = format!("stream should be None on {}.", device.kind());
    Err(PyAssertionError::new_err(text))
}

/// DLPack's type and index of a device. Every cpu device is the host, with index 0.
pub(crate) fn device_of(device: Device) -> (i32, i32) {
    let index = i32::try_from(device.index()).unwrap_or(0);
    match device.kind() {
        DeviceKind::CPU => (CPU, 0),
        DeviceKind::CUDA => (2, index),
        DeviceKind::XPU => (ONE_API, index),
        _ => (EXTENSION, index), // a registered kind: the host may be unable to access its memory
    }
}

/// What the pointers of a DLPack tensor refer to: the memory, the shape and the strides.
struct Content {
    export: MemoryExport,
    device: (i32, i32),
    element: Element,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// One allocation for a DLPack structure and the content that it points to.
struct ExportBlock<M> {
    managed: M,
    _content: Content,
}

impl Content {
    fn new(export: MemoryExport, device: (i32, i32), element: Element, shape: &[usize]) -> Self {
        let signed = |extent: &usize| i64::try_from(*extent).unwrap_or(i64::MAX);
        let mut strides: Vec<i64> = Vec::with_capacity(shape.len());
        let mut stride = 1_i64;
        for extent in shape.iter().rev() {
            strides.push(stride);
            stride = stride.saturating_mul(signed(extent).max(1));
        }
        strides.reverse();
        Self { export, device, element, shape: shape.iter().map(signed).collect(), strides }
    }

    /// A tensor that points to the elements of `shape` and `strides`, which a move of `self` leaves
    /// in place.
    fn tensor(&mut self) -> Tensor {
        let bits = u8::try_from(self.element.item_bytes * 8).unwrap_or(0); // at most 128
        Tensor {
            data: self.export.pointer().cast(),
            device_type: self.device.0,
            device_id: self.device.1,
            dimensions: i32::try_from(self.shape.len()).unwrap_or(i32::MAX),
            element: ElementType { code: self.element.code, bits, lanes: 1 },
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        }
    }
}

fn capsule<M: CapsuleStructure>(
    py: Python<'_>,
    mut content: Content,
    managed: impl FnOnce(Tensor, *mut c_void) -> M,
) -> PyResult<Bound<'_, PyAny>> {
    // The deleter finds the `ExportBlock` by the address of its field `managed`.
    let managed = managed(content.tensor(), ptr::null_mut());
    let block = Box::into_raw(Box::new(ExportBlock { managed, _content: content }));
    // SAFETY: `into_raw` returned a live allocation.
    let managed = unsafe { &raw mut (*block).managed };
    // SAFETY: the name is a static, the structure lives until its deleter is called, and the GIL is
    // held.
    let capsule = unsafe {
        ffi::PyCapsule_New(managed.cast(), M::CAPSULE_NAME.as_ptr(), Some(end_capsule::<M>))
    };
    if capsule.is_null() {
        // SAFETY: the capsule was not created, so the allocation has no other owner.
        drop(unsafe { Box::from_raw(block) });
    }
    // SAFETY: `PyCapsule_New` returned a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// The deleter of exported structures. Consumers call the deleter on any thread, without the GIL.
///
/// # Safety
/// `managed` must come from a capsule that `capsule` created, and must be freed only once.
unsafe extern "C" fn delete<M: CapsuleStructure>(managed: *mut M) {
    let block = managed.wrapping_byte_sub(std::mem::offset_of!(ExportBlock<M>, managed));
    // SAFETY: `capsule` leaked the box that contains the structure, and a consumer calls the
    // deleter once.
    let block = unsafe { Box::from_raw(block.cast::<ExportBlock<M>>()) };
    contain(|| drop(block));
}

/// The capsule's destructor. Frees the structure, unless a consumer has taken it.
///
/// # Safety
/// Called only by the interpreter, with a capsule that is being destroyed.
unsafe extern "C" fn end_capsule<M: CapsuleStructure>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter passes a live capsule and holds the GIL.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::CAPSULE_NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: the interpreter passes a live capsule, whose name was checked.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, M::CAPSULE_NAME.as_ptr()) };
    // SAFETY: the name shows that no consumer took the structure, so this call frees it.
    freeing(|| unsafe { free(managed.cast::<M>()) });
}
