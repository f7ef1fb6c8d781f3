//! Which values of a store share their memory with other code, so that no move would free it.
//!
//! Nothing here drops parked objects, whose destructors may wait: stores call this with their lock.
#![expect(unsafe_code, reason = "reads reference counts")]

use std::collections::HashMap;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::memory::buffer::PyBuffer;
use crate::memory::view::PyView;
use crate::memory::view_memory::ViewMemory;
use crate::support::object_text::type_name;

/// True when no slice, view, `detach()` or export other than `memory` itself holds the memory of a
/// buffer or view. False for memory of other libraries. References to `memory` do not count.
#[pyfunction]
pub(crate) fn is_only_holder(memory: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(own) = RetainedHandles::of(memory) else {
        if memory.is_instance_of::<PyView>() {
            return Ok(false);
        }
        let text = format!("expected a Buffer or a View, not {}", type_name(memory));
        return Err(PyTypeError::new_err(text));
    };
    let owner = owner_of(memory);
    let of_owner = owner.as_ref().and_then(|owner| RetainedHandles::of(owner));
    let of_owner = of_owner.filter(|of_owner| of_owner.allocation == own.allocation);
    // Two references: the view's and `owner`.
    let is_owner_used = owner.is_some_and(|owner| num_references(&owner) > 2);
    let known = own.count + of_owner.map_or(0, |of_owner| of_owner.count);
    Ok(!is_owner_used && own.all <= known)
}

/// The keys of the buffers and views whose memory is also held outside of `values`, and of views of
/// other libraries' memory. Values that share memory only with each other are not among them.
#[pyfunction]
pub(crate) fn keys_of_shared_memory<'py>(values: &Bound<'py, PyDict>) -> Vec<Bound<'py, PyAny>> {
    let mut holders: HashMap<usize, Holder<'_>> = HashMap::new();
    for (_, value) in values {
        if let Some(owner) = owner_of(&value) {
            // Once for each view, even for a view with several keys.
            let is_new = !holders.contains_key(&value.as_ptr().addr());
            Holder::at(&mut holders, owner).references += usize::from(is_new);
        }
        Holder::at(&mut holders, value).references += 1;
    }
    let mut allocations: HashMap<usize, Handles> = HashMap::new();
    for holder in holders.values() {
        let Some(own) = RetainedHandles::of(&holder.object) else { continue };
        let handles = allocations.entry(own.allocation).or_default();
        handles.all = own.all;
        handles.known += own.count;
        handles.is_used |= holder.is_used();
    }
    let is_shared = |value: &Bound<'_, PyAny>| match RetainedHandles::of(value) {
        Some(own) => allocations.get(&own.allocation).is_some_and(Handles::are_shared),
        None => value.is_instance_of::<PyView>(),
    };
    let shared = values.iter().filter(|(_, value)| is_shared(value));
    shared.map(|(key, _)| key).collect()
}

/// An object with handles: a value, or the buffer that counts the writes of a view.
struct Holder<'py> {
    object: Bound<'py, PyAny>,
    /// The references of the dictionary and of its views.
    references: usize,
}

impl<'py> Holder<'py> {
    fn at<'a>(holders: &'a mut HashMap<usize, Self>, object: Bound<'py, PyAny>) -> &'a mut Self {
        let entry = holders.entry(object.as_ptr().addr());
        entry.or_insert_with(|| Self { object, references: 0 })
    }

    /// True when other code has a reference. One more than the known ones is that of `object`.
    fn is_used(&self) -> bool {
        num_references(&self.object) > self.references + 1
    }
}

/// The handles of one allocation.
#[derive(Default)]
struct Handles {
    all: usize,
    known: usize,
    /// Whether other code has a reference to one of the holders.
    is_used: bool,
}

impl Handles {
    fn are_shared(&self) -> bool {
        self.is_used || self.all > self.known
    }
}

/// The handles of an allocation that one object keeps.
struct RetainedHandles {
    allocation: usize,
    count: usize,
    /// The number of all handles of the allocation.
    all: usize,
}

impl RetainedHandles {
    /// `None` for memory of other libraries, and for objects without memory.
    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        if let Ok(buffer) = object.cast::<PyBuffer>() {
            let buffer = buffer.get().state.buffer(object.py()); // one more handle
            let (allocation, all) = (buffer.allocation_id(), buffer.num_handles() - 1);
            return Some(Self { allocation, count: 1, all });
        }
        let view = object.cast::<PyView>().ok()?.get();
        let ViewMemory::Ours(buffer) = &*view.memory else { return None };
        let (allocation, all) = (buffer.allocation_id(), buffer.num_handles());
        // The export for array interfaces lives as long as the view, and its users hold the view.
        Some(Self { allocation, count: 1 + usize::from(view.has_interface()), all })
    }
}

/// The buffer that counts the writes of a view.
fn owner_of<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let owner = object.cast::<PyView>().ok()?.get().owner.as_ref()?;
    Some(owner.bind(object.py()).clone().into_any())
}

fn num_references(object: &Bound<'_, PyAny>) -> usize {
    // SAFETY: the object is live and the GIL is held, as `Bound` proves.
    let count = unsafe { ffi::Py_REFCNT(object.as_ptr()) };
    usize::try_from(count).unwrap_or(usize::MAX)
}
