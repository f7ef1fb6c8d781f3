//! A small cache of data about Python objects, with an object's address as the key.

use accelrt::internal::SpinMutex;
use pyo3::PyClass;
use pyo3::prelude::*;

/// A power of two, so that `% SLOTS` takes low bits of the mixed address.
const SLOTS: usize = 128;

/// A direct-mapped cache: a new entry replaces the old entry in its slot. The cache keeps its keys
/// alive, so that no other object reuses an address. No Python code runs under the lock, so the
/// lock is free when a process forks with the GIL.
///
/// Values are Python objects too, whose reference counts change without a locked instruction.
pub(crate) struct IdentityCache<T> {
    slot: SpinMutex<[Slot<T>; SLOTS]>,
}

type Slot<T> = Option<(Py<PyAny>, Py<T>)>;

impl<T: PyClass> IdentityCache<T> {
    pub(crate) const fn new() -> Self {
        Self { slot: SpinMutex::new([const { None }; SLOTS]) }
    }

    #[inline]
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, T>> {
        let slot = self.slot.lock();
        match &slot[slot_of(object)] {
            Some((known, value)) if known.is(object) => Some(value.bind(object.py()).clone()),
            _ => None,
        }
    }

    pub(crate) fn put(&self, object: &Bound<'_, PyAny>, value: &Bound<'_, T>) {
        let entry = Some((object.clone().unbind(), value.clone().unbind()));
        let slot = slot_of(object);
        let replaced = std::mem::replace(&mut self.slot.lock()[slot], entry);
        drop(replaced); // after the lock: the drop may run Python code
    }
}

#[inline]
fn slot_of(object: &Bound<'_, PyAny>) -> usize {
    let address = object.as_ptr().addr();
    (address >> 4 ^ address >> 11) % SLOTS
}
