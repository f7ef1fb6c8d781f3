//! What another module wants to do when the process's runtime begins and when it has finished.

use std::sync::OnceLock;

use crate::runtime::{Runtime, report};

/// Called once each, on the thread that begins or ends the runtime.
#[derive(Debug)]
pub struct ProcessHooks {
    /// Called before anyone else gets the process's runtime.
    pub begin: fn(&Runtime),
    /// Called by the shutdown, when no task is left that will run. Returns what to report.
    pub end: fn() -> Option<String>,
    /// The number of tasks that threads of a binding are inside of.
    pub num_running: fn() -> usize,
}

static HOOKS: OnceLock<ProcessHooks> = OnceLock::new();

/// Registers hooks. Later registrations, and those behind the begin, have no effect.
#[cfg(not(loom))] // only the profiler calls this, which loom builds lack
pub fn register(hooks: ProcessHooks) {
    HOOKS.get_or_init(|| hooks);
}

pub(super) fn begin(runtime: &Runtime) {
    if let Some(hooks) = HOOKS.get() {
        (hooks.begin)(runtime);
    }
}

pub(super) fn num_running() -> usize {
    HOOKS.get().map_or(0, |hooks| (hooks.num_running)())
}

pub(super) fn end() {
    if let Some(text) = HOOKS.get().and_then(|hooks| (hooks.end)()) {
        report::line(&text);
    }
}
