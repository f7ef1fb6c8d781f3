//! What other crates do when the process's runtime begins and when it has finished.

use std::sync::OnceLock;

use crate::runtime::{Runtime, report};

/// Called once each, on the thread that begins or ends the runtime.
///
/// The hooks of several crates are called in the order of their registration, and their `end`s in
/// the opposite order.
#[derive(Clone, Copy, Debug)]
pub struct ProcessHooks {
    /// Called before anyone else gets the process's runtime.
    pub begin: fn(&Runtime),
    /// Called by the shutdown, when no task is left that will run. Returns what to report.
    pub end: fn() -> Option<String>,
    /// The number of tasks that threads of a binding are inside of.
    pub num_running: fn() -> usize,
}

impl Default for ProcessHooks {
    /// Hooks without an effect.
    fn default() -> Self {
        Self { begin: |_| {}, end: || None, num_running: || 0 }
    }
}

/// One for each crate that registers hooks.
static HOOKS: [OnceLock<ProcessHooks>; 8] = [const { OnceLock::new() }; 8];

/// Registers hooks. Those registered after the begin of the process's runtime miss it.
///
/// # Panics
/// When all places are taken: a crate registers once.
pub fn register(hooks: ProcessHooks) {
    let is_placed = HOOKS.iter().any(|place| place.set(hooks).is_ok());
    assert!(is_placed, "more than {} crates register hooks", HOOKS.len());
}

fn hooks() -> impl DoubleEndedIterator<Item = &'static ProcessHooks> {
    HOOKS.iter().filter_map(OnceLock::get)
}

pub(super) fn begin(runtime: &Runtime) {
    hooks().for_each(|hooks| (hooks.begin)(runtime));
}

pub(super) fn num_running() -> usize {
    hooks().map(|hooks| (hooks.num_running)()).sum()
}

pub(super) fn end() {
    hooks().rev().filter_map(|hooks| (hooks.end)()).for_each(|text| report::line(&text));
}
