//! Call sites: which frame of a stack is the program's, and how its function is called.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Parts of the paths of what is no code of the program itself.
const LIBRARIES: [&str; 4] = ["site-packages", "dist-packages", "/lib/python", "<frozen "];

/// What a frame is, for the call site of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeKind {
    /// Code of the program.
    Program,
    /// Code of the program without a name of its own, inside of a function that has one.
    Anonymous,
    Library,
}

/// True for the name of a code object that is part of a function: a comprehension or a lambda.
pub(crate) fn is_anonymous(name: &str) -> bool {
    matches!(name, "<listcomp>" | "<setcomp>" | "<dictcomp>" | "<genexpr>" | "<lambda>")
}

/// The function around a comprehension or a lambda, by its qualified name: `f` of
/// `f.<locals>.<genexpr>.<lambda>`.
pub(crate) fn enclosing(qualified: &str) -> &str {
    let mut name = qualified;
    while let Some((outer, inner)) = name.rsplit_once('.') {
        if !is_anonymous(inner) && inner != "<locals>" {
            break;
        }
        name = outer;
    }
    if is_anonymous(name) { "<module>" } else { name }
}

/// Code outside of accelrt, of installed packages and of Python's library is the program's.
/// `text` returns an attribute of the code as text.
pub(crate) fn kind_of(
    py: Python<'_>,
    text: impl Fn(&Bound<'_, PyString>) -> Option<String>,
) -> CodeKind {
    let is_of_program = text(intern!(py, "co_filename")).is_some_and(|file| {
        let is_ours = package_folder(py).is_some_and(|folder| file.starts_with(&*folder));
        !is_ours && !LIBRARIES.iter().any(|part| file.contains(part))
    });
    match text(intern!(py, "co_name")) {
        _ if !is_of_program => CodeKind::Library,
        Some(name) if is_anonymous(&name) => CodeKind::Anonymous,
        _ => CodeKind::Program,
    }
}

/// The folder of accelrt's package, with a slash behind it.
fn package_folder(py: Python<'_>) -> Option<String> {
    let file: String = py.import("accelrt").ok()?.getattr("__file__").ok()?.extract().ok()?;
    Some(file[..=file.rfind('/')?].to_owned())
}
