//! Avoided names: words whose meaning here a reader would have to be told, and the field's own.

use super::repository::{Repository, Violation};
use super::source::Source;

/// A word, and the names that an engineer guesses.
const AVOIDED: &[(&str, &str)] = &[
    ("books", "accounting, or a table"),
    ("kept", "cached, retained, retired"),
    ("own", "internal, builtin, current, into_owned"),
    ("out", "output, to_host"),
    ("live", "allocated, count"),
    ("here", "thread hints, on_this_thread"),
    ("alone", "last handle, unique"),
    ("front", "head"),
    ("stay", "pinned, retained"),
    ("stays", "is_pinned, is_retained"),
    ("ends", "on_end, bounds"),
    ("courier", "resume threads"),
    ("gate", "latch"),
    ("gates", "latches"),
    ("pace", "scheduling hints"),
    ("whoever", "the component"),
    ("somebody", "the component"),
    ("nobody", "the component"),
];

/// Terms of the field that have such a word in them.
const TERMS: [&str; 7] =
    ["out_of", "OutOf", "left_out", "LeftOut", "live_table", "LiveTable", "LiveEntry"];

/// Modules, types and functions are named by the field's words. Tests, whose names are sentences,
/// are free.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let files = repository.product().filter(|source| !source.is_test_file);
    let found = files.flat_map(|source| {
        items(source).filter_map(|(name, line)| {
            let (word, instead) = avoided_in(name)?;
            let message = format!("{name}: not `{word}`, but for example {instead}");
            Some(Violation::new("avoided", &source.path, line, message))
        })
    });
    found.collect()
}

/// The avoided word in a name, with what to call it.
fn avoided_in(name: &str) -> Option<&'static (&'static str, &'static str)> {
    let name = TERMS.iter().fold(name.to_owned(), |name, term| name.replace(term, ""));
    let words = words_of(&name);
    AVOIDED.iter().find(|(word, _)| words.iter().any(|found| found == word))
}

/// The words of a name in snake or camel case, in small letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
    }
    words
}

/// The names of a file's modules, types and functions outside of tests, with their lines.
fn items(source: &Source) -> impl Iterator<Item = (&str, usize)> {
    let keywords = ["mod", "fn", "struct", "enum", "trait", "union", "type"];
    let code = &source.code;
    let is_item = move |index: &usize| {
        keywords.iter().any(|keyword| code[*index].is_word(keyword)) && !source.is_test(*index)
    };
    (0..code.len().saturating_sub(1)).filter(is_item).map(|index| {
        let name = &code[index + 1];
        (name.text.as_str(), name.line)
    })
}

#[cfg(test)]
mod tests {
    use super::{Repository, check, words_of};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(&Repository::of(&[(path, text)]));
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn avoided_words_in_names_are_found_wherever_they_stand() {
        let text = "mod own;\nstruct FreeBooks;\nfn check_kept() {}\nenum Courier {}\n";
        assert_eq!(lines("src/a.rs", text), [1, 2, 3, 4]);
        assert_eq!(lines("src/a.rs", "trait T {\n    fn is_out(&self);\n}\n"), [2]);
        assert_eq!(lines("src/a.rs", "trait Gate {}\nunion Kept {}\ntype Own = u8;\n"), [1, 2, 3]);
    }

    #[test]
    fn terms_of_the_field_and_longer_words_are_free() {
        for free in ["fn out_of_memory() {}", "struct OutOfMemory;", "fn owner() {}", "mod pacer;"]
        {
            assert!(lines("src/a.rs", free).is_empty(), "{free}");
        }
    }

    #[test]
    fn tests_and_locals_are_free() {
        let test = "#[cfg(test)] mod tests { fn what_is_kept_stays() {} }";
        assert!(lines("src/a.rs", test).is_empty());
        assert!(lines("src/a.rs", "fn f() { let own = 1; }").is_empty());
    }

    #[test]
    fn a_name_falls_into_its_words() {
        assert_eq!(words_of("is_kept"), ["is", "kept"]);
        assert_eq!(words_of("OwnBooks")[1..], ["own", "books"]);
    }
}
