//! A small cache of data about Python objects, by their identity.

use pyo3::PyClass;
use pyo3::prelude::*;

use crate::base::spin::SpinMutex;

/// A power of two: the index of an object is a part of its address.
const PLACES: usize = 128;

/// Keeps its objects alive, so that an address is never reused by another object; a newer object
/// replaces an older one. No Python code runs under the lock, so the lock is free in a process that
/// forks with the GIL.
///
/// The values are Python objects too: a reference to one costs no locked operation.
pub(crate) struct IdentityCache<T> {
    places: SpinMutex<[Place<T>; PLACES]>,
}

type Place<T> = Option<(Py<PyAny>, Py<T>)>;

impl<T: PyClass> IdentityCache<T> {
    pub(crate) const fn new() -> Self {
        Self { places: SpinMutex::new([const { None }; PLACES]) }
    }

    /// The value of an object.
    #[inline]
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, T>> {
        let places = self.places.lock();
        match &places[place_of(object)] {
            Some((known, value)) if known.is(object) => Some(value.bind(object.py()).clone()),
            _ => None,
        }
    }

    /// Adds an object with its value.
    pub(crate) fn put(&self, object: &Bound<'_, PyAny>, value: &Bound<'_, T>) {
        let entry = Some((object.clone().unbind(), value.clone().unbind()));
        let place = place_of(object);
        let replaced = std::mem::replace(&mut self.places.lock()[place], entry);
        drop(replaced); // without the lock: it may be the last reference
    }
}

#[inline]
fn place_of(object: &Bound<'_, PyAny>) -> usize {
    let address = object.as_ptr().addr();
    (address >> 4 ^ address >> 11) % PLACES
}
