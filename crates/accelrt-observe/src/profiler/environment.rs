//! The profile of a whole process, which the variable `ACCELRT_PROFILE` enables.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex, ProcessHooks, register_process_hooks, report_line};

use crate::output_file;
use crate::profiler::Profile;

/// How long the end of the process waits for the devices to finish their tasks.
const MAX_DEVICE_WAIT: Duration = Duration::from_millis(100);

struct Running {
    profile: Profile,
    file: String,
    captures: Captures,
}

/// Captures of the calls of libraries, for the profile of a process.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "running captures have none")]
pub struct Captures {
    /// Values whose drops end the captures.
    pub running: Vec<Box<dyn Send>>,
    /// The reasons for captures that are missing.
    pub refusals: Vec<String>,
}

/// Begins captures when a profile begins.
pub(crate) type BeginCaptures = fn() -> Captures;

static BEGIN_CAPTURES: OnceLock<BeginCaptures> = OnceLock::new();

/// The profile, from the begin of the process's runtime to its shutdown.
static PROFILE: Mutex<Option<Running>> = Mutex::new(LockRank::Runtime, None);

/// Enables the variable `ACCELRT_PROFILE=FILE`, which profiles the process's runtime from its first
/// use to its shutdown. The shutdown writes the trace to the file, unless the trace is empty.
///
/// Call this function before the first use of that runtime. Calls after the first have no effect.
/// The Python module of accelrt calls it when it is imported.
pub fn watch_environment() {
    watch_environment_with(Captures::default);
}

/// As [`watch_environment`], for profiles with calls of libraries.
#[doc(hidden)]
pub fn watch_environment_with(begin_captures: BeginCaptures) {
    BEGIN_CAPTURES.get_or_init(|| {
        register_process_hooks(ProcessHooks { begin, end, ..ProcessHooks::default() });
        begin_captures
    });
}

fn begin(runtime: &Runtime) {
    let Some(file) = runtime.config().profile.clone() else { return };
    let captures = BEGIN_CAPTURES.get().map(|begin_captures| begin_captures()).unwrap_or_default();
    if let Err(refusal) = output_file::check(Path::new(&file)) {
        report_line(&format!("the profile cannot be written to {file}: {refusal}"));
    }
    let profile = Profile::start(runtime);
    let earlier = PROFILE.lock().replace(Running { profile, file, captures });
    drop(earlier);
}

/// Ends the profile and writes its trace. Returns a message if some calls could not be captured or
/// the trace could not be written.
fn end() -> Option<String> {
    let running = PROFILE.lock().take()?;
    let Running { profile, file, captures: Captures { running, mut refusals } } = running;
    let trace = profile.stop_after_devices(MAX_DEVICE_WAIT);
    drop(running);
    // An empty trace does not replace the file. Else a program that only reads an earlier trace
    // would overwrite it.
    if !trace.is_empty()
        && let Err(refusal) = trace.export_chrome_trace(&file)
    {
        refusals.push(format!("the profile could not be written to {file}: {refusal}"));
    }
    (!refusals.is_empty()).then(|| refusals.join("; "))
}
