//! A fast read of a computed attribute: calls the descriptor without `getattr`'s search for it.
#![expect(unsafe_code, reason = "calls the slot that getattr would find")]

use std::mem;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A class's descriptor of one attribute. It reads the attribute of every object of the class.
pub(crate) struct Descriptor {
    object: Py<PyAny>,
    get: ffi::descrgetfunc,
}

impl Descriptor {
    /// Finds the descriptor that computes the attribute `name` in the class of `object`. Returns
    /// `None` when the class stores a plain value instead. Also returns `None` for a descriptor
    /// without a setter, because an attribute that the object itself stores takes precedence.
    pub(crate) fn of(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> Option<Self> {
        let found = object.get_type().getattr(name).ok()?;
        let class = found.get_type();
        // SAFETY: the class is a live type, and `Py_tp_descr_set` is a slot number.
        let set = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_descr_set) };
        // SAFETY: the class is a live type, and `Py_tp_descr_get` is a slot number.
        let get = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_descr_get) };
        // A descriptor with a setter takes precedence over the object's own attributes.
        if set.is_null() || get.is_null() {
            return None;
        }
        // SAFETY: `Py_tp_descr_get` is a function of this type, and the check above excludes null.
        let get = unsafe { mem::transmute::<*mut std::ffi::c_void, ffi::descrgetfunc>(get) };
        Some(Self { object: found.unbind(), get })
    }

    /// Reads the attribute of `object`, which must have the class that [`Descriptor::of`] searched.
    #[inline]
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (descriptor, class) = (self.object.as_ptr(), object.get_type_ptr());
        // SAFETY: `self` keeps the descriptor alive, and the descriptor keeps its class with the
        // slot alive. `object` is live, and its type proves that this thread holds the GIL.
        let value = unsafe { (self.get)(descriptor, object.as_ptr(), class.cast()) };
        // SAFETY: the slot returns a new reference, or null with an exception.
        unsafe { Bound::from_owned_ptr_or_err(object.py(), value) }
    }
}
