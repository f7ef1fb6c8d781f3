//! The names of launched native functions, by address.

use std::collections::BTreeMap;

use accelrt::internal::{LockRank, Mutex};
use pyo3::prelude::*;

/// The `__name__` of each launched function object, by the function's address.
static NAMES: Mutex<BTreeMap<u64, String>> = Mutex::new(LockRank::Bindings, BTreeMap::new());

/// [`record`] clears `NAMES` at this length: a program may compile any number of functions.
const NAMES_LIMIT: usize = 4096;

/// Records the `__name__` of a function object, if it has one.
pub(crate) fn record(address: u64, object: &Bound<'_, PyAny>) {
    let Ok(name) = object.getattr("__name__").and_then(|name| name.extract()) else { return };
    let mut names = NAMES.lock();
    if names.len() >= NAMES_LIMIT {
        names.clear();
    }
    names.insert(address, name);
}

/// The name of the last launched function object with this address.
pub(crate) fn name_at(address: u64) -> Option<String> {
    NAMES.lock().get(&address).cloned()
}
