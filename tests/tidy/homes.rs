//! Homes: what only one file may name, and sleeps of tests.

use super::paths::{PathUse, Paths};
use super::repository::{Repository, Violation};
use super::source::Source;

/// Things with a home: everything inside these paths belongs into one file.
const HOMES: &[(&str, &[&[&str]])] = &[
    (
        "src/base/config.rs",
        &[
            &["std", "env", "var"],
            &["std", "env", "var_os"],
            &["std", "env", "vars"],
            &["std", "env", "vars_os"],
            &["std", "env", "set_var"],
            &["std", "env", "remove_var"],
            &["libc", "getenv"],
            &["libc", "setenv"],
        ],
    ),
    (
        "src/base/dylib.rs",
        &[
            &["libloading"],
            &["libc", "dlopen"],
            &["libc", "dlmopen"],
            &["libc", "dlsym"],
            &["libc", "dlclose"],
        ],
    ),
    (
        "src/base/sync.rs",
        &[
            &["std", "sync", "atomic"],
            &["core", "sync", "atomic"],
            &["std", "sync", "Mutex"],
            &["std", "sync", "RwLock"],
            &["std", "sync", "Condvar"],
            &["std", "sync", "Barrier"],
            &["std", "thread", "park"],
            &["std", "thread", "park_timeout"],
            &["loom"],
            &["parking_lot"],
        ],
    ),
];

/// The environment, libraries, and atomics and locks are each reached through one file. Tests are
/// free.
pub(crate) fn check_homes(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.root() {
        for path in product_paths(source) {
            for (home, places) in HOMES.iter().filter(|(home, _)| !is_home(home, &source.path)) {
                if places.iter().any(|place| path.is_in(place)) {
                    let message = format!("{} belongs into {home}", path.text());
                    violations.push(at("homes", source, path.index, message));
                }
            }
        }
    }
    violations.sort();
    violations.dedup();
    violations
}

/// The file itself and its parts, which stand in a folder of its name.
fn is_home(home: &str, path: &str) -> bool {
    let rest = home.strip_suffix(".rs").and_then(|folder| path.strip_prefix(folder));
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// A test waits for what it tests, never for a clock. Proving that something stays idle needs time
/// to pass: a comment with the word "idle" within three lines above says that.
pub(crate) fn check_sleeps(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &repository.sources {
        let is_measured =
            ["benches/", "examples/", "fuzz/"].iter().any(|f| source.path.starts_with(f));
        for path in Paths::of(source).uses {
            let is_sleep = path.is_in(&["std", "thread", "sleep"]);
            if is_sleep && !path.is_import && !is_measured && source.is_test(path.index) {
                let line = source.code[path.index].line;
                let is_proof = source.comments.iter().any(|comment| {
                    (line.saturating_sub(3)..=line).contains(&comment.end_line())
                        && comment.text.contains("idle")
                });
                if !is_proof {
                    let message = "a test that sleeps waits on a clock: wait for what it tests";
                    violations.push(at("sleeps", source, path.index, message));
                }
            }
        }
    }
    violations
}

fn product_paths(source: &Source) -> impl Iterator<Item = PathUse> {
    Paths::of(source).uses.into_iter().filter(|path| !source.is_test(path.index))
}

fn at(rule: &'static str, source: &Source, index: usize, message: impl Into<String>) -> Violation {
    Violation::new(rule, &source.path, source.code[index].line, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Repository) -> Vec<Violation>;

    fn count(check: Check, path: &str, text: &str) -> usize {
        check(&Repository::of(&[(path, text)])).len()
    }

    #[test]
    fn the_environment_is_read_at_its_home_only() {
        let reads = [
            "fn f() { std::env::var(\"A\"); }",
            "use std::env; fn f() { env::var_os(\"A\"); }",
            "fn f() { unsafe { libc::getenv(a) } }",
        ];
        for text in reads {
            assert_eq!(count(check_homes, "src/engine/stream/mod.rs", text), 1, "{text}");
            assert_eq!(count(check_homes, "src/base/config.rs", text), 0, "{text}");
            assert_eq!(count(check_homes, "tests/a.rs", text), 0, "{text}");
        }
        let text = "use std::env; fn f() { env::temp_dir(); env!(\"A\"); } // std::env::var";
        assert_eq!(count(check_homes, "src/engine/stream/mod.rs", text), 0);
    }

    #[test]
    fn libraries_are_opened_at_their_home_only() {
        for text in ["use libloading::Library;", "fn f() { libc::dlopen(a, b); }"] {
            assert_eq!(count(check_homes, "src/backend/cuda/sys.rs", text), 1, "{text}");
            assert_eq!(count(check_homes, "src/base/dylib.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn atomics_and_locks_come_through_their_door() {
        for text in [
            "use std::sync::atomic::AtomicU64;",
            "use std::sync::{Arc, Mutex};",
            "fn f() { core::sync::atomic::fence(o); }",
            "use std::thread; fn f() { thread::park(); }",
            "fn f() { loom::model(g); }",
        ] {
            assert_eq!(count(check_homes, "src/engine/stream/mod.rs", text), 1, "{text}");
            assert_eq!(count(check_homes, "src/base/sync.rs", text), 0, "{text}");
            assert_eq!(count(check_homes, "src/base/sync/part.rs", text), 0, "{text}");
            assert_eq!(count(check_homes, "src/sync_other.rs", text), 1, "{text}");
        }
        let free = "use std::sync::{Arc, OnceLock, mpsc}; use std::thread; use crate::sync::Mutex;\
                    #[cfg(loom)] fn f(m: Mutex) {}\
                    #[cfg(test)] mod tests { use std::sync::Mutex; fn g() { loom::model(h); } }";
        assert_eq!(count(check_homes, "src/engine/stream/mod.rs", free), 0);
    }

    #[test]
    fn sleeping_tests_are_found_unless_they_prove_idleness() {
        let sleep = "use std::thread;\nfn f() { thread::sleep(d); }";
        assert_eq!(count(check_sleeps, "tests/a.rs", sleep), 1);
        assert_eq!(
            count(check_sleeps, "src/a.rs", &format!("#[cfg(test)] mod t {{ {sleep} }}")),
            1
        );
        assert_eq!(count(check_sleeps, "src/a.rs", sleep), 0);
        assert_eq!(count(check_sleeps, "benches/a.rs", sleep), 0);
        let proof = "fn f() {\n// Workers stay idle meanwhile.\nstd::thread::sleep(d); }";
        assert_eq!(count(check_sleeps, "tests/a.rs", proof), 0);
    }
}
