//! The runtime of the process: its creation, what happens at its begin and end, its messages.
//!
//! Messages go to standard error. Write errors are ignored, because no channel is left to report
//! them.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;

use crate::base::config::Config;
use crate::base::error::Result;
use crate::base::thread::contain;
use crate::memory::allocator::AllocatorConfig;
use crate::runtime::Runtime;

/// The runtime of this process, from the first call of [`Runtime::global`] on.
static GLOBAL: OnceLock<Runtime> = OnceLock::new();

impl Runtime {
    /// The runtime of this process, with the settings of the environment. At the end of the process
    /// (by `exit` or a return from `main`) the runtime finishes queued work, for at most
    /// `ACCELRT_EXIT_MS`.
    ///
    /// Fails when an `ACCELRT_*` variable is malformed. The next call tries again.
    pub fn global() -> Result<Self> {
        Self::of_process().cloned()
    }

    /// As [`Runtime::global`], by reference instead of a new handle.
    #[doc(hidden)]
    #[inline]
    pub fn of_process() -> Result<&'static Self> {
        if let Some(runtime) = GLOBAL.get() {
            return Ok(runtime);
        }
        let runtime = Self::build(Config::from_environment()?, [], true)?;
        Ok(GLOBAL.get_or_init(|| {
            unknown_variables();
            ignored_settings(runtime.inner.config.allocator.text());
            begin(&runtime);
            at_exit(|| GLOBAL.get().into_iter().for_each(Self::shutdown_and_report));
            runtime
        }))
    }

    /// The runtime of this process, if a call of [`Runtime::global`] has created it.
    #[doc(hidden)]
    pub fn existing_of_process() -> Option<&'static Self> {
        GLOBAL.get()
    }
}

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
pub fn register_process_hooks(hooks: ProcessHooks) {
    let is_placed = HOOKS.iter().any(|place| place.set(hooks).is_ok());
    assert!(is_placed, "more than {} crates register hooks", HOOKS.len());
}

fn hooks() -> impl DoubleEndedIterator<Item = &'static ProcessHooks> {
    HOOKS.iter().filter_map(OnceLock::get)
}

fn begin(runtime: &Runtime) {
    hooks().for_each(|hooks| (hooks.begin)(runtime));
}

pub(super) fn num_running() -> usize {
    hooks().map(|hooks| (hooks.num_running)()).sum()
}

pub(super) fn end() {
    hooks().rev().filter_map(|hooks| (hooks.end)()).for_each(|text| report_line(&text));
}

/// The end handler. The shutdown of the process's runtime calls it before any memory is freed.
static END_HANDLER: OnceLock<fn()> = OnceLock::new();

/// Registers a function that the shutdown of the process's runtime calls first, so that a library
/// above the runtime stops using the runtime's memory. Later registrations have no effect.
#[cfg(not(loom))] // only the host heap calls this, which loom builds lack
pub fn register_end_handler(handler: fn()) {
    END_HANDLER.get_or_init(|| handler);
}

pub(super) fn run_end_handler() {
    if let Some(handler) = END_HANDLER.get() {
        handler();
    }
}

/// Registers `handler` with the C library, which calls it once: at `exit`, at a return from `main`,
/// or when this library is closed. Later registrations have no effect.
fn at_exit(handler: fn()) {
    static HANDLER: OnceLock<fn()> = OnceLock::new();
    extern "C" fn call() {
        if let Some(handler) = HANDLER.get() {
            contain(handler);
        }
    }
    if HANDLER.set(handler).is_ok() {
        // SAFETY: `call` takes no arguments, and its code stays loaded until it has run: the C
        // library calls it when this library is closed.
        let refused = unsafe { libc::atexit(call) };
        assert_eq!(refused, 0, "atexit fails only without memory");
    }
}

fn unknown_variables() {
    let _ = std::io::stderr().write_all(ignored(&Config::unknown_variables()).as_bytes());
}

/// Prints the unknown keys of the allocator settings, when the settings allow unknown keys.
fn ignored_settings(settings: &str) {
    let keys = AllocatorConfig::ignored_keys(settings).unwrap_or_default(); // valid: parsed before
    if !keys.is_empty() {
        let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
        let names = names.join(", ");
        let _ = writeln!(std::io::stderr(), "accelrt: no effect in ACCELRT_ALLOC_CONF: {names}");
    }
}

/// Writes a line to standard error.
pub fn report_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "accelrt: {text}");
}

fn ignored(names: &[String]) -> String {
    names.iter().fold(String::new(), |mut text, name| {
        let _ = writeln!(text, "accelrt: {name} is ignored: no setting has this name");
        text
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_ignored_variable_has_a_line() {
        let names = ["ACCELRT_A".to_owned(), "ACCELRT_B".to_owned()];
        let expected = "accelrt: ACCELRT_A is ignored: no setting has this name\n\
                        accelrt: ACCELRT_B is ignored: no setting has this name\n";
        assert_eq!(ignored(&names), expected);
        assert_eq!(ignored(&[]), "");
    }
}
