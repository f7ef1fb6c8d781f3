//! DLPack's C structures: those of version 1, and the older one without a version.
#![expect(unsafe_code, reason = "structures that other libraries fill, and free")]

use std::ffi::{CStr, c_void};

use pyo3::prelude::*;

use crate::support::deferred_drops::Lender;

pub(crate) const CPU: i32 = 1;
pub(crate) const ONE_API: i32 = 14;
/// The device type for devices that DLPack does not name: `kDLExtDev`.
pub(crate) const EXTENSION: i32 = 12;
pub(crate) const MAJOR: u32 = 1;
pub(crate) const MINOR: u32 = 1;
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ElementType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// DLPack's `DLTensor`: memory of a device with its element type and shape.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) dimensions: i32,
    pub(crate) element: ElementType,
    pub(crate) shape: *mut i64,
    /// In elements, not bytes; null for contiguous memory.
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

pub(crate) type Deleter<M> = Option<unsafe extern "C" fn(*mut M)>;

/// DLPack's `DLManagedTensor`: a tensor with its deleter, without a version.
#[repr(C)]
pub(crate) struct Managed {
    pub(crate) tensor: Tensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Deleter<Self>,
}

/// DLPack's `DLManagedTensorVersioned`. All versions have the same fields up to the deleter.
#[repr(C)]
pub(crate) struct ManagedVersioned {
    pub(crate) version: Version,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Deleter<Self>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// A DLPack structure that a Python capsule carries.
pub(crate) trait CapsuleStructure: Sized + 'static {
    const CAPSULE_NAME: &'static CStr;
    const CONSUMED_NAME: &'static CStr;

    fn deleter(&self) -> Deleter<Self>;
}

impl CapsuleStructure for Managed {
    const CAPSULE_NAME: &'static CStr = c"dltensor";
    const CONSUMED_NAME: &'static CStr = c"used_dltensor";

    fn deleter(&self) -> Deleter<Self> {
        self.deleter
    }
}

impl CapsuleStructure for ManagedVersioned {
    const CAPSULE_NAME: &'static CStr = c"dltensor_versioned";
    const CONSUMED_NAME: &'static CStr = c"used_dltensor_versioned";

    fn deleter(&self) -> Deleter<Self> {
        self.deleter
    }
}

/// A structure that was taken from its capsule. [`Lender::take_back`] frees it.
pub(crate) struct Owned<M>(pub(crate) *mut M);

// SAFETY: other threads only move the structure. Only `take_back` frees it, with the GIL.
unsafe impl<M> Send for Owned<M> {}

impl<M: CapsuleStructure> Lender for Owned<M> {
    fn take_back(self: Box<Self>, _py: Python<'_>) {
        // SAFETY: the creator of `Owned` took the structure from its capsule, and only this call
        // frees the structure.
        unsafe { free(self.0) };
    }
}

/// Frees a structure with its producer's deleter.
///
/// # Safety
/// The structure must be live, and no other code may use or free it afterwards.
pub(crate) unsafe fn free<M: CapsuleStructure>(managed: *mut M) {
    // SAFETY: the caller guarantees that the structure is live.
    let deleter = unsafe { &*managed }.deleter();
    if let Some(deleter) = deleter {
        // SAFETY: the structure is live, and only this call frees it, as the caller guarantees.
        unsafe { deleter(managed) };
    }
}
