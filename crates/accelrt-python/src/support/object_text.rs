//! Texts of Python objects for messages: their `str`, their type, and the name of a function.

use pyo3::prelude::*;

/// The text of an object. `Display` of an object converts it once more, which runs signal handlers,
/// and drops what they raise.
pub(crate) fn text_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.str()?.to_string_lossy().into_owned())
}

pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "object".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The `__name__` of a function or class.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.getattr("__name__").and_then(|name| name.extract());
    name.unwrap_or_else(|_| "the function".to_owned())
}
