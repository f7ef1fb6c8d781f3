//! The structures of DLPack 1.x, and of the versions before.
#![expect(unsafe_code, reason = "structures that other libraries fill, and free")]

use std::ffi::{CStr, c_void};

use pyo3::prelude::*;

use crate::python::support::deferred_drops::Lender;

pub(crate) const CPU: i32 = 1;
pub(crate) const ONE_API: i32 = 14;
/// Devices of kinds that DLPack does not know: `kDLExtDev`.
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

/// Typed memory on a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) dimensions: i32,
    pub(crate) element: ElementType,
    pub(crate) shape: *mut i64,
    /// In elements; null means dense.
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

pub(crate) type Deleter<M> = Option<unsafe extern "C" fn(*mut M)>;

/// A tensor with the means to free it: the structure from before the versions.
#[repr(C)]
pub(crate) struct Managed {
    pub(crate) tensor: Tensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Deleter<Self>,
}

/// The same since version 1. The fields up to the deleter are the same in every version.
#[repr(C)]
pub(crate) struct ManagedVersioned {
    pub(crate) version: Version,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Deleter<Self>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// The structure in a capsule.
pub(crate) trait Carried: Sized + 'static {
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

/// A structure that we have to free.
pub(crate) struct Owned<M>(pub(crate) *mut M);

// SAFETY: other threads only move it; it is freed with the GIL.
unsafe impl<M> Send for Owned<M> {}

impl<M: Carried> Owned<M> {
    pub(crate) fn release_now(self, py: Python<'_>) {
        Box::new(self).take_back(py);
    }
}

impl<M: Carried> Lender for Owned<M> {
    fn take_back(self: Box<Self>, _py: Python<'_>) {
        // SAFETY: its creator took it out of its capsule, and it is freed only here.
        unsafe { free(self.0) };
    }
}

/// Frees a structure by its maker's deleter.
///
/// # Safety
/// It is live, and no other code frees it or uses it afterwards.
pub(crate) unsafe fn free<M: Carried>(managed: *mut M) {
    // SAFETY: the caller's promise.
    let deleter = unsafe { &*managed }.deleter();
    if let Some(deleter) = deleter {
        // SAFETY: as above; it is called once.
        unsafe { deleter(managed) };
    }
}
