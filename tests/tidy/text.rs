//! Text: file heads, sizes, and words that betray the machine they were written on.

use std::collections::BTreeMap;

use super::repository::{Repository, Violation};
use super::source::Source;

const FILE_LINES: usize = 600;
const LONG_FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// Line 1 of a Rust file says what the file is: `//! ` and a sentence.
pub(crate) fn check_heads(repository: &Repository) -> Vec<Violation> {
    let is_sentence = |line: &str| {
        let text = line.strip_prefix("//! ").unwrap_or_default();
        text.contains(' ') && text.ends_with(['.', ':']) && text.trim_start() == text
    };
    let wrong = repository
        .sources
        .iter()
        .filter(|source| !is_sentence(source.text.lines().next().unwrap_or_default()));
    let message = "line 1 is `//! ` and a sentence that says what the file is";
    wrong.map(|source| Violation::new("heads", &source.path, 1, message)).collect()
}

/// Files, functions and lines have a size that a reader can hold.
///
/// A table row in a comment and a line with an address cannot be wrapped, so they may be longer.
pub(crate) fn check_sizes(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in &repository.sources {
        let mut found = |line, message| {
            violations.push(Violation::new("sizes", &source.path, line, message));
        };
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            found(1, format!("{lines} lines, at most {FILE_LINES}"));
        }
        for function in &source.outline.functions {
            let (first, last) = source.lines_of(function.span);
            let length = last - first + 1;
            if length > FUNCTION_LINES {
                let name = &function.name;
                found(first, format!("{name} has {length} lines, at most {FUNCTION_LINES}"));
            }
        }
        for (line, text) in (1..).zip(source.text.lines()) {
            let columns = text.chars().count();
            if columns > COLUMNS && !cannot_wrap(text) {
                found(line, format!("{columns} columns, at most {COLUMNS}"));
            }
        }
    }
    violations
}

fn cannot_wrap(line: &str) -> bool {
    let line = line.trim_start();
    let is_table = ["//! |", "/// |", "// |"].iter().any(|row| line.starts_with(row));
    is_table || (line.starts_with("//") && line.contains("://"))
}

/// Files that are long but not yet too long: to be split before they grow.
pub(crate) fn long_files(repository: &Repository) -> Vec<String> {
    let length = |source: &Source| source.text.lines().count();
    let is_long = |source: &&Source| (LONG_FILE_LINES + 1..=FILE_LINES).contains(&length(source));
    let long = repository.sources.iter().filter(is_long);
    long.map(|source| format!("{}: {} lines: split it soon", source.path, length(source))).collect()
}

/// No file names a folder of one machine, a folder beside the checkout, or a package index.
pub(crate) fn check_places(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in repository.texts() {
        for (line, text) in (1..).zip(text.lines()) {
            let folder = outside_folders().into_iter().find(|folder| names_folder(text, folder));
            if let Some(folder) = folder {
                let message = format!("{folder} is a folder outside the repository");
                violations.push(Violation::new("places", path, line, message));
            }
            if names_package_index(text) {
                violations.push(Violation::new("places", path, line, "names a package index"));
            }
        }
    }
    violations
}

/// The glossary has one row for each word.
pub(crate) fn check_glossary(repository: &Repository) -> Vec<Violation> {
    let (mut violations, mut known) = (Vec::new(), BTreeMap::new());
    for document in repository.documents.iter().filter(|file| file.path == "docs/glossary.md") {
        for (line, row) in (1..).zip(document.text.lines()) {
            let words = row.strip_prefix("| ").and_then(|row| Some(row.split_once(" |")?.0));
            let words = words.unwrap_or_default().split(", ").map(without_parenthesis);
            for word in words.filter(|word| !["", "word"].contains(word)) {
                if let Some(earlier) = known.insert(word, line) {
                    let message = format!("{word} has a row in line {earlier} already");
                    violations.push(Violation::new("glossary", &document.path, line, message));
                }
            }
        }
    }
    violations
}

fn without_parenthesis(word: &str) -> &str {
    word.split(" (").next().unwrap_or_default()
}

/// Put together from halves, as are the samples below, so that this file passes its own rule.
fn outside_folders() -> [String; 6] {
    let halves = [
        ["/wo", "rk/"],
        ["/ho", "me/"],
        ["/ro", "ot/"],
        ["/tmp/", "wt"],
        ["../sha", "red"],
        ["sha", "red/traces"],
    ];
    halves.map(|halves| halves.concat())
}

/// True when the folder begins a path: `docs/home/` and `https://host/home/` are somewhere else.
fn names_folder(text: &str, folder: &str) -> bool {
    let is_start =
        |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    text.match_indices(folder).any(|(at, _)| is_start(&text[..at]))
}

fn names_package_index(text: &str) -> bool {
    let options = [["index", "-url"], ["index", "_url"], ["_INDEX", "_URL"]];
    let is_option = options.iter().any(|halves| text.contains(&halves.concat()));
    let addresses = text.split(|c: char| c.is_whitespace() || "\"'<>`()[]".contains(c));
    let is_address = addresses.filter(|word| word.contains("://")).any(|address| {
        let path = address.trim_end_matches(['/', '.', ',']);
        path.ends_with("/simple") || address.contains("/simple/")
    });
    is_option || is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Repository) -> Vec<Violation>;

    fn lines(check: Check, path: &str, text: &str) -> Vec<usize> {
        check(&Repository::of(&[(path, text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_head_is_a_sentence_on_line_1() {
        for text in ["//! What it is.\n", "//! The map of `a`:\nfn f() {}"] {
            assert!(lines(check_heads, "src/a.rs", text).is_empty(), "{text}");
        }
        let wrong =
            ["", "\n//! What it is.", "//! Words", "// What it is.", "//!What it is.", "//! One."];
        for text in wrong {
            assert_eq!(lines(check_heads, "benches/a.rs", text), [1], "{text}");
        }
        assert!(lines(check_heads, "Makefile", "all:").is_empty());
    }

    #[test]
    fn long_files_are_found_and_longer_ones_are_wrong() {
        let text = |lines: usize| "\n".repeat(lines);
        assert!(lines(check_sizes, "src/a.rs", &text(600)).is_empty());
        assert_eq!(lines(check_sizes, "src/a.rs", &text(601)), [1]);
        let notes = |lines| long_files(&Repository::of(&[("src/a.rs", &text(lines))])).len();
        assert_eq!([notes(400), notes(401), notes(600), notes(601)], [0, 1, 1, 0]);
    }

    #[test]
    fn a_functions_lines_are_counted_from_fn_to_its_brace() {
        let text = |lines: usize| format!("/// Doc.\nfn f() {{{}}}", "\n".repeat(lines - 1));
        assert!(lines(check_sizes, "src/a.rs", &text(70)).is_empty());
        assert_eq!(lines(check_sizes, "src/a.rs", &text(71)), [2]);
        let hidden = format!("fn f() {{ \"fn g() {{ {} \"; }}", "\n".repeat(60));
        assert!(lines(check_sizes, "src/a.rs", &hidden).is_empty());
    }

    #[test]
    fn columns_are_characters() {
        let line = |start: &str, columns: usize| format!("{start:é<columns$}");
        assert!(lines(check_sizes, "src/a.rs", &line("// ", 100)).is_empty());
        assert_eq!(lines(check_sizes, "src/a.rs", &line("\n// ", 102)), [2]);
        assert!(lines(check_sizes, "src/a.rs", &line("//! | a", 130)).is_empty());
        assert!(lines(check_sizes, "src/a.rs", &line("// https://a.org/", 130)).is_empty());
    }

    #[test]
    fn folders_outside_are_found() {
        for folder in outside_folders() {
            for text in [format!("cd {folder}x"), format!("(file://{folder}x)"), folder.clone()] {
                assert_eq!(lines(check_places, "docs/a.md", &text), [1], "{text}");
            }
            let elsewhere = format!("docs{folder}x https://a.org{folder}x ..{folder}");
            assert!(lines(check_places, "docs/a.md", &elsewhere).is_empty(), "{elsewhere}");
        }
        let samples = ["/usr/lib", "/homes", "/tmp/w", "work/", "src/shared/mod.rs"];
        assert!(lines(check_places, "src/a.rs", &samples.join("\n")).is_empty());
    }

    #[test]
    fn package_indexes_are_found() {
        let address = ["https://a.org/", "simple"].concat();
        for text in [
            format!("pip install -i {address}"),
            format!("see <{address}/>."),
            format!("{address}/torch/"),
            ["--index", "-url"].concat(),
            ["UV_INDEX", "_URL"].concat(),
        ] {
            assert_eq!(lines(check_places, ".ci/run", &text), [1], "{text}");
        }
        let fine = "a simple index; https://a.org/simply; https://a.org/not-so-simple";
        assert!(lines(check_places, "README.md", fine).is_empty());
    }
}
