//! Methods that read their arguments directly from the interpreter's array.
//!
//! pyo3 parses a signature at each call and copies `*args` into a tuple, which takes more
//! instructions than enqueueing a task. A [`FastMethod`] reads its arguments itself. During such a
//! call pyo3 does not know that the thread holds the GIL, so code that drops references first calls
//! [`Python::attach`].
#![expect(unsafe_code, reason = "the interpreter passes pointers and lengths")]

use std::any::Any;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use pyo3::exceptions::PyTypeError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyTuple, PyType};
use pyo3::{PyClass, ffi};

/// A Python method that the interpreter calls through [`enter`]. Returns None.
pub(crate) trait FastMethod {
    type Class: PyClass<Frozen = True> + Sync;
    const NAME: &'static CStr;
    /// The docstring, which starts with the signature in the form that `inspect.signature` reads.
    const DOC: &'static CStr;

    fn call(class: &Self::Class, arguments: &Arguments<'_, '_>) -> PyResult<()>;
}

pub(crate) struct Arguments<'a, 'py> {
    pub(crate) positional: &'a [Bound<'py, PyAny>],
    /// The values of the keyword arguments, in the order of `names`.
    keywords: &'a [Bound<'py, PyAny>],
    names: Option<&'a Bound<'py, PyTuple>>,
}

impl<'a, 'py> Arguments<'a, 'py> {
    #[inline]
    pub(crate) fn are_positional(&self) -> bool {
        self.names.is_none()
    }

    /// The values of the keyword arguments, in the order of `known`; `None` for an argument that
    /// the call lacks. Fails for a name that `known` lacks.
    pub(crate) fn by_name<const COUNT: usize>(
        &self,
        method: &str,
        known: [&str; COUNT],
    ) -> PyResult<[Option<&'a Bound<'py, PyAny>>; COUNT]> {
        let mut found = [None; COUNT];
        let names = self.names.into_iter().flatten();
        for (name, value) in names.zip(self.keywords) {
            let name: String = name.extract()?;
            let place = known.iter().position(|known| *known == name).ok_or_else(|| {
                let text = format!("{method}() got an unexpected keyword argument '{name}'");
                PyTypeError::new_err(text)
            })?;
            found[place] = Some(value);
        }
        Ok(found)
    }
}

pub(crate) fn add<M: FastMethod>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let ml_meth = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: enter::<M> };
    let (ml_name, ml_doc) = (M::NAME.as_ptr(), M::DOC.as_ptr());
    let ml_flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    // Leaks the definition, because the class lives as long as the process.
    let definition = Box::leak(Box::new(ffi::PyMethodDef { ml_name, ml_meth, ml_flags, ml_doc }));
    // SAFETY: the class is a live type; the definition is static, and its function has the kind
    // that the flags state.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: the call returned a new reference, or null with an exception.
    let method = unsafe { Bound::from_owned_ptr_or_err(class.py(), method) }?;
    class.setattr(M::NAME.to_string_lossy(), method)
}

/// The entry point of `M` in C: calls `M::call` and raises its error or panic as an exception.
///
/// # Safety
/// As the interpreter guarantees for `METH_FASTCALL | METH_KEYWORDS`: the GIL is held, and `object`
/// is of `M::Class`. `names` is a tuple or null, and `arguments` has `count` references, followed
/// by one reference per name.
unsafe extern "C" fn enter<M: FastMethod>(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with the GIL.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the method's descriptor checked the object's class. `Bound` is transparent over a
    // reference, and the borrow does not drop that reference.
    let object = unsafe { &*(&raw const object).cast::<Bound<'_, M::Class>>() };
    // SAFETY: the interpreter passes a tuple of names or null. Null is `None`, and the borrow does
    // not drop the reference to the tuple.
    let names = unsafe { &*(&raw const names).cast::<Option<Bound<'_, PyTuple>>>() }.as_ref();
    let (count, keyword_count) = (count.unsigned_abs(), names.map_or(0, PyTupleMethods::len));
    let given: &[Bound<'_, PyAny>] = match count + keyword_count {
        0 => &[], // the pointer may be null
        // SAFETY: during the call, the interpreter lends `count` references and one more per name.
        // `Bound` is transparent over a reference, and the borrow drops no reference.
        total => unsafe { slice::from_raw_parts(arguments.cast(), total) },
    };
    let (positional, keywords) = given.split_at(count);
    let arguments = Arguments { positional, keywords, names };
    match catch_unwind(AssertUnwindSafe(|| M::call(object.get(), &arguments))) {
        Ok(Ok(())) => py.None().into_ptr(),
        Ok(Err(error)) => raise(py, error),
        Err(panic) => raise(py, panicked(&*panic)),
    }
}

#[cold]
fn raise(py: Python<'_>, error: PyErr) -> *mut ffi::PyObject {
    error.restore(py);
    ptr::null_mut()
}

/// Converts a panic's payload to the exception that pyo3 raises for panics.
#[cold]
fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    PanicException::new_err(text.unwrap_or("panic from Rust code").to_owned())
}
