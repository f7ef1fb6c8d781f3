//! The calls of libraries in the profile of a process.

use accelrt_observe::internal::{Captures, watch_environment_with};

use super::{VerboseCapture, VerboseLibrary};

/// As [`accelrt_observe::profiler::watch_environment`], with calls of libraries: with `MKL_VERBOSE`
/// or `ONEDNN_VERBOSE` the calls of these libraries are in the trace, and the lines about them are
/// not printed.
pub fn watch_environment() {
    watch_environment_with(begin_captures);
}

fn begin_captures() -> Captures {
    let mut captures = Captures::default();
    for library in [VerboseLibrary::Mkl, VerboseLibrary::OneDnn] {
        if library.is_verbose_by_environment() {
            match VerboseCapture::begin_for_profiles(library) {
                Ok(capture) => captures.running.push(Box::new(capture)),
                Err(refusal) => {
                    captures.refusals.push(format!("the profile has no {library}: {refusal}"));
                }
            }
        }
    }
    captures
}
