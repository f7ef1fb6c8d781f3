//! The core: the formats that it does not name, and the folders that `make core` builds.

use super::repository::{Repository, Violation};
use super::source::Source;

/// The rooms of the core in `src`, and in `src/backend`: what `make core` leaves.
const ROOMS: &[&str] =
    &["base", "queue", "ffi", "backend", "engine", "memory", "compute", "runtime"];
const KINDS: &[&str] = &["contract", "registry", "fault", "driver", "null", "cpu"];

/// What the core neither reads nor writes nor talks to: that belongs into rooms beside it.
const STRANGERS: [&str; 6] = ["json", "pickle", "html", "numpy", "dask", "pyo3"];

/// No name and no text of the core's code has a word of those.
pub(crate) fn check_words(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.root().filter(|source| is_core(source)) {
        for (_, token) in source.product_code() {
            let text = token.text.to_lowercase();
            if let Some(word) = STRANGERS.iter().find(|word| text.contains(**word)) {
                let message = format!("the core knows no {word}: {}", token.text);
                violations.push(Violation::new("core", &source.path, token.line, message));
            }
        }
    }
    violations
}

fn is_core(source: &Source) -> bool {
    let path = source.module_path();
    let is_of =
        |place: usize, names: &[&str]| path.get(place).is_some_and(|it| names.contains(&&**it));
    is_of(1, ROOMS) && (path[1] != "backend" || path.len() == 2 || is_of(2, KINDS))
}

/// What the Makefile has for the core, when it is something else.
pub(crate) fn other_rooms(repository: &Repository) -> Option<String> {
    let makefile = repository.documents.iter().find(|document| document.path == "Makefile")?;
    let expected = [("CORE_ROOMS", ROOMS), ("CORE_KINDS", KINDS)]
        .map(|(name, rooms)| format!("{name} := {}", rooms.join(" ")));
    let is_there = |line: &String| makefile.text.lines().any(|it| it == line);
    expected.into_iter().find(|line| !is_there(line))
}

/// How often each file marks what `make core` deletes.
pub(crate) fn marks(repository: &Repository) -> Vec<(&str, usize)> {
    let count = |text: &str| text.matches("// `make core` deletes this block").count();
    let sources = repository.sources.iter().filter(|source| source.path.starts_with("src/"));
    let marked = sources.map(|source| (source.path.as_str(), count(&source.text)));
    marked.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{Repository, check_words, other_rooms};

    #[test]
    fn the_core_knows_no_formats_and_no_frameworks() {
        let count = |path, text| check_words(&Repository::of(&[(path, text)])).len();
        assert_eq!(count("src/memory/a.rs", "fn to_json() -> u8 { \"a.pickle\" }"), 2);
        assert_eq!(count("src/traces/a.rs", "fn to_json() {}"), 0);
        assert_eq!(count("src/memory/a.rs", "// Not JSON.\nfn f() {}"), 0);
    }

    #[test]
    fn a_makefile_with_other_rooms_is_found() {
        let repository = Repository::of(&[("Makefile", "CORE_ROOMS := base\n")]);
        assert!(
            other_rooms(&repository).is_some_and(|line| line.starts_with("CORE_ROOMS := base q"))
        );
    }
}
