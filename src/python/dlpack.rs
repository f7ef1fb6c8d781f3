//! The structures of DLPack 1.x, and of the time before it.
#![expect(unsafe_code, reason = "structures that other libraries fill, and free")]

use std::ffi::{CStr, c_void};

use pyo3::prelude::*;

use crate::python::parked::Lender;

pub(super) const CPU: i32 = 1;
pub(super) const ONE_API: i32 = 14;
pub(super) const MAJOR: u32 = 1;
pub(super) const MINOR: u32 = 1;
pub(super) const READ_ONLY: u64 = 1;
pub(super) const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ElementType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// Typed memory on a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device_type: i32,
    pub(super) device_id: i32,
    pub(super) dimensions: i32,
    pub(super) element: ElementType,
    pub(super) shape: *mut i64,
    /// In elements; null means dense.
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

pub(super) type Deleter<M> = Option<unsafe extern "C" fn(*mut M)>;

/// A tensor with the means to free it: the structure from before the versions.
#[repr(C)]
pub(super) struct Managed {
    pub(super) tensor: Tensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Deleter<Self>,
}

/// The same since version 1. The fields up to the deleter are the same in every version.
#[repr(C)]
pub(super) struct ManagedVersioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Deleter<Self>,
    pub(super) flags: u64,
    pub(super) tensor: Tensor,
}

/// What a capsule carries.
pub(super) trait Carried: Sized + 'static {
    const NAME: &'static CStr;
    const USED_NAME: &'static CStr;

    fn deleter(&self) -> Deleter<Self>;
}

impl Carried for Managed {
    const NAME: &'static CStr = c"dltensor";
    const USED_NAME: &'static CStr = c"used_dltensor";

    fn deleter(&self) -> Deleter<Self> {
        self.deleter
    }
}

impl Carried for ManagedVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED_NAME: &'static CStr = c"used_dltensor_versioned";

    fn deleter(&self) -> Deleter<Self> {
        self.deleter
    }
}

/// A structure that is ours to free.
pub(super) struct Owned<M>(pub(super) *mut M);

// SAFETY: other threads only move it; it is freed with the GIL.
unsafe impl<M> Send for Owned<M> {}

impl<M: Carried> Owned<M> {
    pub(super) fn release_now(self, py: Python<'_>) {
        Box::new(self).take_back(py);
    }
}

impl<M: Carried> Lender for Owned<M> {
    fn take_back(self: Box<Self>, _py: Python<'_>) {
        // SAFETY: whoever made this took it out of its capsule, and frees it here only.
        unsafe { free(self.0) };
    }
}

/// Frees a structure as its maker says.
///
/// # Safety
/// It is there, and nobody else frees it or uses it afterwards.
pub(super) unsafe fn free<M: Carried>(managed: *mut M) {
    // SAFETY: the caller's promise.
    let deleter = unsafe { &*managed }.deleter();
    if let Some(deleter) = deleter {
        // SAFETY: as above; it is called once.
        unsafe { deleter(managed) };
    }
}
