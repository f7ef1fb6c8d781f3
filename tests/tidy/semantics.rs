//! The semantics: it stays small enough to be read as a whole, and knows nothing of the engine.

use std::collections::BTreeSet;

use super::repository::Repository;

/// The most lines with code that `tests/semantics` has, counted as those of the core.
const MOST_LINES: usize = 720;

/// What it may take from the crate that it is part of.
const ALLOWED: [&str; 1] = ["numbers"];

/// What is wrong with the semantics.
pub(crate) fn complaint(repository: &Repository) -> Option<String> {
    let files = || repository.sources.iter().filter(|it| it.path.starts_with("tests/semantics/"));
    let lines: BTreeSet<_> =
        files().flat_map(|it| it.code.iter().map(|token| (&*it.path, token.line))).collect();
    if lines.len() > MOST_LINES {
        return Some(format!("{} lines with code, of {MOST_LINES} at most", lines.len()));
    }
    let is_strange = |line: &&str| {
        let taken = line.split_once("crate::").map(|(_, rest)| rest);
        let is_allowed = |rest: &str| ALLOWED.iter().any(|name| rest.starts_with(name));
        line.contains("accelrt") || taken.is_some_and(|rest| !is_allowed(rest))
    };
    let strange = files().find_map(|it| it.text.lines().find(is_strange));
    strange.map(|line| format!("it knows what it is compared with: {line}"))
}

#[cfg(test)]
mod tests {
    use super::{MOST_LINES, Repository, complaint};

    fn said(text: &str) -> Option<String> {
        complaint(&Repository::of(&[("tests/semantics/a.rs", text), ("src/a.rs", "use crate::b;")]))
    }

    #[test]
    fn lines_with_code_count_and_what_is_taken_from_the_engine_is_found() {
        let long = |lines: usize| "// Why.\n\nfn f() {}\n".repeat(lines);
        assert_eq!(said(&long(MOST_LINES)), None);
        assert!(said(&long(MOST_LINES + 1)).is_some());
        assert_eq!(said("use super::order::Order;\nuse crate::numbers::Numbers;"), None);
        assert!(said("use crate::engine::event::Event;").is_some());
        assert!(said("use accelrt::Event;").is_some());
    }
}
