//! The house rules, checked: layers, circles, heads, sizes, homes, unsafe code, orderings, words.
//!
//! Every rule is a function over a [`Repository`](tidy::repository::Repository). Beside it stands
//! the smallest repository that breaks it, so a rule that cannot fail does not pass.

mod tidy {
    pub(crate) mod avoided;
    pub(crate) mod circles;
    pub(crate) mod homes;
    pub(crate) mod internal;
    pub(crate) mod layers;
    pub(crate) mod lexer;
    pub(crate) mod orderings;
    pub(crate) mod outline;
    pub(crate) mod paths;
    pub(crate) mod prose;
    pub(crate) mod repository;
    pub(crate) mod semantics;
    pub(crate) mod source;
    pub(crate) mod text;
    pub(crate) mod unsafety;
}

use std::path::Path;
use std::process::Command;

use tidy::repository::{Repository, Violation};
use tidy::{
    avoided, circles, homes, internal, layers, orderings, prose, repository, semantics, text,
    unsafety,
};

struct Rule {
    name: &'static str,
    check: fn(&Repository) -> Vec<Violation>,
    /// A file that breaks this rule: path and text.
    offence: (&'static str, &'static str),
}

const LONG_LINE: &str = concat!(
    "// A comment that goes on and on, ",
    "through all the columns that a screen has, ",
    "and out of the window on the right."
);

const RULES: &[Rule] = &[
    Rule {
        name: "internal",
        check: internal::check,
        offence: ("src/internal.rs", "pub use crate::a::Unused;"),
    },
    Rule {
        name: "layers",
        check: layers::check,
        offence: ("src/engine/frontier.rs", "use super::stream::Stream;"),
    },
    Rule { name: "heads", check: text::check_heads, offence: ("src/a.rs", "fn f() {}") },
    Rule { name: "sizes", check: text::check_sizes, offence: ("src/a.rs", LONG_LINE) },
    Rule {
        name: "homes",
        check: homes::check_homes,
        offence: ("src/engine/event.rs", "use std::sync::Mutex;"),
    },
    Rule {
        name: "sleeps",
        check: homes::check_sleeps,
        offence: ("tests/a.rs", "fn f() { std::thread::sleep(d); }"),
    },
    Rule { name: "avoided", check: avoided::check, offence: ("src/a.rs", "fn is_kept() {}") },
    Rule {
        name: "prose",
        check: prose::check,
        offence: ("src/a.rs", "// Nobody waits.\nfn f() {}"),
    },
    Rule {
        name: "unsafe",
        check: unsafety::check_uses,
        offence: ("src/a.rs", "fn f() { unsafe { g() } }"),
    },
    Rule {
        name: "unsafe-list",
        check: unsafety::check_list,
        offence: ("src/a.rs", "fn f() { unsafe { g() } }"),
    },
    Rule {
        name: "orderings",
        check: orderings::check,
        offence: ("src/a.rs", "fn f() { a.load(Ordering::Relaxed) }"),
    },
    Rule {
        name: "glossary",
        check: text::check_glossary,
        offence: ("docs/glossary.md", "| use | a |\n| use (of a block) | b |"),
    },
    Rule {
        name: "places",
        check: text::check_places,
        offence: ("README.md", concat!("/ho", "me/me")),
    },
];

#[test]
fn the_house_is_tidy() {
    let repository = Repository::on_disk(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(repository.product().count() > 0, "the walk found no source files");
    let mut violations: Vec<_> = RULES.iter().flat_map(|rule| (rule.check)(&repository)).collect();
    violations.sort();
    let mut report: Vec<_> = violations.iter().map(Violation::to_string).collect();
    report.extend(text::long_files(&repository).into_iter().map(|note| format!("note: {note}")));
    print_report(&report);
    assert!(
        violations.is_empty(),
        "{} violations of the house rules, listed above",
        violations.len()
    );
}

#[test]
fn no_build_output_is_tracked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".git").exists() {
        return; // a source package has what it has
    }
    let listed = Command::new("git").arg("ls-files").current_dir(root).output();
    let listed = String::from_utf8(listed.expect("git runs in a checkout").stdout).unwrap();
    assert!(listed.lines().any(|path| path == "Cargo.toml"), "git listed the files");
    assert_eq!(repository::built_files(&listed), Vec::<&str>::new());
}

#[test]
fn build_output_is_found_in_a_listing() {
    let listing = "src/lib.rs\nfuzz/target/debug/a.d\nfuzz/corpus/b\nsrc/target.rs\n";
    assert_eq!(repository::built_files(listing), ["fuzz/target/debug/a.d"]);
}

#[test]
fn files_of_a_crate_import_in_no_circle() {
    let repository = Repository::on_disk(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert_eq!(circles::circles(&repository), Vec::<Vec<String>>::new());
    assert_eq!(circles::upward_imports(&repository), Vec::<[String; 2]>::new());
}

#[test]
fn semantics_names_nothing_of_the_engine() {
    let repository = Repository::on_disk(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert_eq!(semantics::complaint(&repository), None);
}

#[expect(clippy::print_stderr, reason = "the report is what a person runs this for")]
fn print_report(report: &[String]) {
    for line in report {
        eprintln!("{line}");
    }
}

#[test]
#[ignore = "writes a file: `make unsafe-list`"]
fn the_list_of_files_with_unsafe_code_is_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = unsafety::list(&Repository::on_disk(root));
    std::fs::write(root.join(unsafety::LIST), list).expect("the list can be written");
}

#[test]
fn every_rule_finds_the_offence_it_is_there_for() {
    for Rule { name, check, offence } in RULES {
        let violations = check(&Repository::of(&[*offence]));
        assert!(!violations.is_empty(), "{name} did not find {offence:?}");
        assert!(violations.iter().all(|violation| violation.rule == *name), "{violations:?}");
    }
}

#[test]
fn no_rule_finds_anything_in_a_tidy_file() {
    let text = "//! A tidy file: it has a head, a body and a test.\n\n\
                use crate::error::Result;\nuse crate::sync::{AtomicU64, Ordering};\n\n\
                /// Counts.\npub(crate) fn count(number: &AtomicU64) -> Result<u64> {\n    \
                // relaxed: a statistic.\n    Ok(number.load(Ordering::Relaxed))\n}\n\n\
                #[cfg(test)]\nmod tests {\n    #[test]\n    fn it_counts() {}\n}\n";
    let repository = Repository::of(&[("src/engine/frontier.rs", text)]);
    for rule in RULES {
        assert_eq!((rule.check)(&repository), [], "{}", rule.name);
    }
}
