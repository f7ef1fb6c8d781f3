//! The profile of a whole process, which `ACCELRT_PROFILE` asks for.
//!
//! It has the calls of those libraries that the environment makes verbose: their lines then go to
//! the profile in place of the standard output.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use crate::base::sync::{LockRank, Mutex};
use crate::integrations::verbose::{VerboseCapture, VerboseLibrary};
use crate::observe::output_file;
use crate::observe::profiler::Profile;
use crate::runtime::process_hooks::{self, ProcessHooks};
use crate::runtime::{Runtime, report};

/// How long the end of the process waits for the times of devices.
const DEVICES: Duration = Duration::from_millis(100);

struct Running {
    profile: Profile,
    file: String,
    captures: Vec<VerboseCapture>,
    /// What there is to say of captures that the system refused.
    refusals: Vec<String>,
}

/// The profile, from the begin of the process's runtime to its shutdown.
static PROFILE: Mutex<Option<Running>> = Mutex::new(LockRank::Runtime, None);

/// Lets `ACCELRT_PROFILE=FILE` profile the process's runtime from its first use to its shutdown,
/// which writes the trace to the file, unless nothing happened. Called before that first use;
/// accelrt's Python module does. With `MKL_VERBOSE` or `ONEDNN_VERBOSE` calls of these libraries
/// are in the trace, and the lines about them are not printed.
/// Later calls have no effect.
pub fn watch_environment() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        process_hooks::register(ProcessHooks { begin, end, ..ProcessHooks::default() });
    });
}

fn begin(runtime: &Runtime) {
    let Some(file) = runtime.config().profile.clone() else { return };
    let (mut captures, mut refusals) = (Vec::new(), Vec::new());
    for library in [VerboseLibrary::Mkl, VerboseLibrary::OneDnn] {
        if library.is_verbose_by_environment() {
            match VerboseCapture::begin_for_profiles(library) {
                Ok(capture) => captures.push(capture),
                Err(refusal) => refusals.push(format!("the profile has no {library}: {refusal}")),
            }
        }
    }
    if let Err(refusal) = output_file::check(Path::new(&file)) {
        report::line(&format!("the profile cannot be written to {file}: {refusal}"));
    }
    let profile = Profile::start(runtime);
    let earlier = PROFILE.lock().replace(Running { profile, file, captures, refusals });
    drop(earlier);
}

/// Returns what is to be told about what could not be captured or written.
fn end() -> Option<String> {
    let running = PROFILE.lock().take()?;
    let Running { profile, file, captures, mut refusals } = running;
    let trace = profile.stop_after_devices(DEVICES);
    drop(captures);
    // A process that did nothing here, as one that only reads a trace, leaves the file to others.
    if !trace.is_empty()
        && let Err(refusal) = trace.export_chrome_trace(&file)
    {
        refusals.push(format!("the profile could not be written to {file}: {refusal}"));
    }
    (!refusals.is_empty()).then(|| refusals.join("; "))
}
