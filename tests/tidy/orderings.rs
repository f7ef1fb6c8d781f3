//! Atomic orderings: each names its partner, and relaxed says why.

use super::lexer::{Kind, Token};
use super::outline::Function;
use super::paths::Paths;
use super::repository::{Repository, Violation};
use super::source::Source;

/// What an explanation talks about when it stands further away than the line above.
const WORDS: [&str; 12] = [
    "pairs", "paired", "partner", "partners", "relaxed", "Relaxed", "Dekker", "ordering",
    "Acquire", "Release", "AcqRel", "SeqCst",
];
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
/// How far above the statement an explanation may end.
const LINES_ABOVE: usize = 3;

/// Every line of the shipped crate that names an atomic ordering is explained. Tests are free.
///
/// An explanation is one of:
/// 1. a comment on the line, inside the statement, or ending at most three lines above the
///    statement; documentation and `SAFETY:` comments count there only when they say one of
///    [`WORDS`], because they usually explain something else;
/// 2. an earlier comment in the same function, or its documentation, that says one of [`WORDS`]:
///    a protocol is explained once, not at each of its steps;
/// 3. a comment that says one of [`WORDS`] on the declaration, in the same file, of the field or
///    static that is accessed, or in the documentation of a type that names it: state tables stand
///    on the struct that holds the state;
/// 4. an earlier comment in the file that says "here and below" and names the same ordering.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.product() {
        for path in Paths::of(source).uses {
            let [.., owner, ordering] = path.segments.as_slice() else { continue };
            let is_ordering = owner == "Ordering" && ORDERINGS.contains(&ordering.as_str());
            let is_free = path.is_import || source.is_test(path.index);
            if is_ordering && !is_free && !is_explained(source, path.index) {
                let line = source.code[path.index].line;
                let message = format!("{ordering} without a comment that names its partner or why");
                violations.push(Violation::new("orderings", &source.path, line, message));
            }
        }
    }
    violations.sort();
    violations.dedup_by_key(|violation| (violation.path.clone(), violation.line));
    violations
}

fn is_explained(source: &Source, index: usize) -> bool {
    is_explained_nearby(source, index)
        || enclosing_function(source, index)
            .is_some_and(|function| is_explained_in(source, function, index))
        || is_explained_above(source, index)
        || accessed_name(source, index).is_some_and(|name| is_explained_at(source, &name))
}

fn is_explained_nearby(source: &Source, index: usize) -> bool {
    let line = source.code[index].line;
    let statement_line = source.code[source.statement_start(index)].line;
    let lines = statement_line.saturating_sub(LINES_ABOVE)..=line;
    source.comments.iter().filter(|comment| lines.contains(&comment.end_line())).any(|comment| {
        let is_about_code = comment.kind == Kind::Comment && !comment.text.contains("SAFETY:");
        is_about_code || talks_of_order(&comment.text)
    })
}

fn enclosing_function(source: &Source, index: usize) -> Option<&Function> {
    let holders = source.outline.functions.iter().filter(|f| f.span.contains(index));
    holders.max_by_key(|function| function.span.first)
}

fn is_explained_in(source: &Source, function: &Function, index: usize) -> bool {
    let first = function.span.first;
    let mut inside = source.comments_between(first + 1, index);
    inside.any(|comment| talks_of_order(&comment.text))
        || talks_of_order(&source.documentation(first))
}

/// "Relaxed, here and below: …" speaks for the rest of its file.
fn is_explained_above(source: &Source, index: usize) -> bool {
    let ordering = &source.code[index];
    let mut above = source.comments.iter().filter(|comment| comment.offset < ordering.offset);
    above.any(|comment| {
        comment.text.contains("here and below") && has_word(&comment.text, &ordering.text)
    })
}

/// The field or static whose method is called with the ordering: `head` in `self.head.load(…)`.
fn accessed_name(source: &Source, index: usize) -> Option<String> {
    let partners = &source.outline.partners;
    let open =
        (0..index).rev().find(|open| source.code[*open].is_sign("(") && partners[*open] > index)?;
    let dot = open.checked_sub(2).filter(|dot| source.code[*dot].is_sign("."))?;
    // An index or a call may come between, as in `self.slots[i].load(…)`.
    let mut at = dot.checked_sub(1)?;
    while partners[at] < at {
        at = partners[at].checked_sub(1)?;
    }
    Some(&source.code[at]).filter(|token| token.kind == Kind::Word).map(|name| name.text.clone())
}

fn is_explained_at(source: &Source, name: &str) -> bool {
    let is_sign = |token: Option<&Token>, sign| token.is_some_and(|token| token.is_sign(sign));
    let mut code = source.code.iter().enumerate();
    code.any(|(index, token)| {
        let is_declared = token.is_word(name) && is_sign(source.code.get(index + 1), ":");
        let is_type = ["struct", "enum"].iter().any(|keyword| token.is_word(keyword));
        let text = || source.documentation(index);
        (is_declared && talks_of_order(&text()))
            || (is_type && has_word(&text(), name) && talks_of_order(&text()))
    })
}

fn talks_of_order(text: &str) -> bool {
    WORDS.iter().any(|word| has_word(text, word))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    fn lines(text: &str) -> Vec<usize> {
        let violations = check(&Repository::of(&[("src/a.rs", text)]));
        violations.into_iter().map(|violation| violation.line).collect()
    }

    fn is_fine(text: &str) {
        assert!(lines(text).is_empty(), "{text}");
    }

    #[test]
    fn an_ordering_without_a_word_is_found() {
        assert_eq!(lines("fn f() {\n    A.load(Ordering::Relaxed);\n}"), [2]);
        assert_eq!(lines("fn f() { fence(std::sync::atomic::Ordering::SeqCst); }"), [1]);
        let bare = "use crate::sync::Ordering::{Acquire, Release as R};\n\nfn f() {\n    \
                    A.load(Acquire);\n    A.store(1, R);\n}";
        assert_eq!(lines(bare), [4, 5]);
        let pair = "fn f() {\n    A.swap_if(\n        0,\n        Ordering::AcqRel,\n        \
                    Ordering::Acquire,\n    );\n}";
        assert_eq!(lines(pair), [4, 5]);
    }

    #[test]
    fn a_comment_nearby_explains() {
        is_fine("fn f() { A.load(Ordering::Relaxed); // A statistic.\n}");
        is_fine("fn f() {\n// A statistic.\n\n\nA.load(Ordering::Relaxed); }");
        is_fine(
            "fn f() {\n// A.\nA.swap_if(\n0,\n1,\n2,\nOrdering::AcqRel,\nOrdering::Acquire); }",
        );
    }

    #[test]
    fn a_comment_about_something_else_does_not_explain() {
        assert_eq!(lines("fn f() {\n// Far.\n\n\n\nA.load(Ordering::Relaxed); }"), [6]);
        assert_eq!(lines("/// How many.\nfn f() { A.load(Ordering::Relaxed); }"), [2]);
        assert_eq!(lines("fn f() {\n// SAFETY: it is.\nA.load(Ordering::Relaxed); }"), [3]);
        assert_eq!(lines("fn f() { A.load(Ordering::Relaxed); }\n// Later."), [1]);
    }

    #[test]
    fn a_protocol_is_explained_once_in_its_function() {
        let far = "\n".repeat(9);
        is_fine(&format!(
            "fn f() {{\n// Pairs: it pairs with g.{far}A.load(Ordering::Acquire); }}"
        ));
        is_fine(&format!("/// The Dekker pair of g.\nfn f() {{{far}fence(Ordering::SeqCst); }}"));
        let other = format!(
            "fn g() {{\n// It pairs with f.\n}}\nfn f() {{{far}A.load(Ordering::Acquire); }}"
        );
        assert_eq!(lines(&other), [13]);
    }

    #[test]
    fn a_comment_on_the_field_or_its_type_explains() {
        let method = "impl Q { fn f(&self) { self.head.load(Ordering::Acquire); } }";
        is_fine(&format!(
            "struct Q {{\n/// Acquire pairs with push.\npub head: AtomicU64 }}\n{method}"
        ));
        is_fine(&format!(
            "/// `head` is stored with Release.\nstruct Q {{\nhead: A }}\n\n\n{method}"
        ));
        is_fine(&format!(
            "{}\n/// relaxed: a hint.\nstatic N: A = a();",
            "fn f() { N.load(Ordering::Relaxed); }"
        ));
        let silent = format!("struct Q {{\n/// The front.\nhead: A }}\n\n\n\n{method}");
        assert_eq!(lines(&silent), [7]);
        let other = format!("struct Q {{\n/// Acquire: of push.\ntail: A }}\n\n\n\n{method}");
        assert_eq!(lines(&other), [7]);
    }

    #[test]
    fn one_comment_speaks_for_its_ordering_in_the_rest_of_the_file() {
        let above = "fn f() {\n// Relaxed, here and below: a statistic.\n}\n\n\n\n\n\n";
        is_fine(&format!("{above}fn g() {{ A.load(Ordering::Relaxed); }}"));
        assert_eq!(lines(&format!("{above}fn g() {{ A.load(Ordering::Acquire); }}")), [9]);
        assert_eq!(lines(&format!("fn g() {{ A.load(Ordering::Relaxed); }}\n{above}")), [1]);
    }

    #[test]
    fn other_orderings_and_tests_are_free() {
        is_fine("use std::cmp::Ordering; fn f() { a == Ordering::Less }");
        is_fine("use crate::sync::Ordering::Relaxed;");
        is_fine("#[cfg(test)] mod tests { fn f() { A.load(Ordering::Relaxed); } }");
    }
}
