//! Names: a type that other files may name has its name for itself.

use std::collections::BTreeMap;

use super::repository::{Repository, Violation};
use super::source::Source;

/// No two types that the whole crate may name share a name, wherever they stand. Tests are free.
pub(crate) fn check_unique(repository: &Repository) -> Vec<Violation> {
    let files = repository.root().filter(|source| !source.is_test_file);
    let mut known: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut violations = Vec::new();
    for source in files {
        for (name, line) in shared_types(source) {
            let Some((path, first)) = known.insert(name, (&source.path, line)) else { continue };
            let message = format!("{name} is also a type of {path}:{first}");
            violations.push(Violation::new("names", &source.path, line, message));
        }
    }
    violations
}

/// The types of a file that are `pub` or `pub(crate)`, with their lines. Associated types have
/// their trait in front and are left out.
fn shared_types(source: &Source) -> impl Iterator<Item = (&str, usize)> {
    let keywords = ["struct", "enum", "trait", "union", "type"];
    let code = &source.code;
    let is_type = move |index: &usize| {
        keywords.iter().any(|keyword| code[*index].is_word(keyword))
            && !source.is_test(*index)
            && is_shared(source, *index)
    };
    (0..code.len().saturating_sub(1)).filter(is_type).map(|index| {
        let name = &code[index + 1];
        (name.text.as_str(), name.line)
    })
}

/// True for an item, by its keyword, that the whole crate may name.
fn is_shared(source: &Source, keyword: usize) -> bool {
    let mut index = source.item_start(keyword);
    while !source.code[index].is_word("pub") {
        if index == keyword {
            return false;
        }
        index += 1;
    }
    let words: Vec<_> = source.code[index + 1..].iter().take(2).map(|t| t.text.as_str()).collect();
    words[0] != "(" || words[1] == "crate"
}

#[cfg(test)]
mod tests {
    use super::{Repository, check_unique};

    fn messages(first: &str, second: &str) -> Vec<String> {
        let repository = Repository::of(&[("src/a.rs", first), ("src/b.rs", second)]);
        check_unique(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_that_two_files_share_is_found() {
        let second = "#[derive(Debug)]\npub(crate) enum State {}";
        let found = messages("pub struct State;", second);
        assert_eq!(found, ["src/b.rs:2: names: State is also a type of src/a.rs:1"]);
        assert_eq!(messages("pub trait T {}", "pub(crate) type T = u8;").len(), 1);
        assert_eq!(messages("pub unsafe trait T {}", "pub union T {}").len(), 1);
    }

    #[test]
    fn what_only_its_room_may_name_is_free() {
        for free in ["struct State;", "pub(super) struct State;", "pub(in crate::b) struct State;"]
        {
            assert!(messages("pub struct State;", free).is_empty(), "{free}");
        }
        let trait_ = "pub trait Other { type State; } impl Other for A { type State = u8; }";
        assert!(messages("pub struct State;", trait_).is_empty());
        let test = "#[cfg(test)] mod tests { pub struct State; }";
        assert!(messages("pub struct State;", test).is_empty());
    }
}
