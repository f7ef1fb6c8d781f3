//! The profile of a whole process, which `ACCELRT_PROFILE` asks for.

use std::time::Duration;

use crate::base::sync::{LockRank, Mutex};
use crate::observe::profiler::profile::Profile;
use crate::runtime::Runtime;
use crate::runtime::process_hooks::{self, ProcessHooks};

/// How long the end of the process waits for the times of devices.
const DEVICES: Duration = Duration::from_millis(100);

/// The profile and its file, from the begin of the process's runtime to its shutdown.
static PROFILE: Mutex<Option<(Profile, String)>> = Mutex::new(LockRank::Runtime, None);

/// Lets `ACCELRT_PROFILE=FILE` profile the process's runtime from its first use to its shutdown,
/// which writes the trace to the file. Called before that first use; accelrt's Python module does.
pub fn watch_environment() {
    process_hooks::register(ProcessHooks { begin, end });
}

pub(crate) fn begin(runtime: &Runtime) {
    if let Some(file) = &runtime.config().profile {
        let profile = Profile::start(runtime);
        let earlier = PROFILE.lock().replace((profile, file.clone()));
        drop(earlier);
    }
}

/// Returns what is to be told about a file that could not be written.
pub(crate) fn end() -> Option<String> {
    let (profile, file) = PROFILE.lock().take()?;
    let trace = profile.stop_after_devices(DEVICES);
    let refusal = trace.export_chrome_trace(&file).err()?;
    Some(format!("the profile could not be written to {file}: {refusal}"))
}
