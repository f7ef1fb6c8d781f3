//! A process's messages on standard error: settings without an effect, and lost work.
//!
//! The functions ignore write errors, because no channel is left to report them.

use std::fmt::Write as _;
use std::io::Write as _;

use super::shutdown::ShutdownReport;
use crate::base::config::Config;
use crate::memory::allocator::AllocatorConfig;

pub(super) fn unknown_variables() {
    let _ = std::io::stderr().write_all(ignored(&Config::unknown_variables()).as_bytes());
}

/// Prints the unknown keys of the allocator settings, when the settings allow unknown keys.
pub(super) fn ignored_settings(settings: &str) {
    let keys = AllocatorConfig::ignored_keys(settings).unwrap_or_default(); // valid: parsed before
    if !keys.is_empty() {
        let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
        let names = names.join(", ");
        let _ = writeln!(std::io::stderr(), "accelrt: no effect in ACCELRT_ALLOC_CONF: {names}");
    }
}

pub(super) fn unclean_shutdown(report: &ShutdownReport) {
    if !report.is_clean() {
        let _ = write!(std::io::stderr(), "{report}");
    }
}

/// Writes a line to standard error.
pub fn line(text: &str) {
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
