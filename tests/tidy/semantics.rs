//! The semantics: it names nothing of the engine that it is compared with.

use super::repository::Repository;

/// What it may take from the crate that it is part of.
const ALLOWED: [&str; 1] = ["numbers"];

/// What is wrong with the semantics.
pub(crate) fn complaint(repository: &Repository) -> Option<String> {
    let files = || repository.sources.iter().filter(|it| it.path.starts_with("tests/semantics/"));
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
    use super::{Repository, complaint};

    fn said(text: &str) -> Option<String> {
        complaint(&Repository::of(&[("tests/semantics/a.rs", text), ("src/a.rs", "use crate::b;")]))
    }

    #[test]
    fn imports_from_the_engine_are_found() {
        assert_eq!(said("use super::order::Order;\nuse crate::numbers::Numbers;"), None);
        assert!(said("use crate::engine::event::Event;").is_some());
        assert!(said("use accelrt::Event;").is_some());
    }
}
