//! Prose: words that comments avoid, because data and threads are no persons.

use super::repository::{Repository, Violation};

const AVOIDED: [&str; 3] = ["whoever", "somebody", "nobody"];

/// The subject of a sentence is the component: a thread, a caller, the consumer.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.product() {
        for comment in &source.comments {
            for (line, text) in (comment.line..).zip(comment.text.lines()) {
                let mut words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
                let avoided =
                    |word: &&str| AVOIDED.iter().any(|avoided| word.eq_ignore_ascii_case(avoided));
                if let Some(word) = words.find(avoided) {
                    let message = format!("{word}: name the component, as \"no other thread\"");
                    violations.push(Violation::new("prose", &source.path, line, message));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(&Repository::of(&[(path, text)]));
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn persons_in_comments_are_found() {
        assert_eq!(lines("src/a.rs", "//! A.\n/// Nobody waits.\nfn f() {} // whoever\n"), [2, 3]);
        assert_eq!(lines("src/a.rs", "fn f() {}\n/* One.\nSomebody. */\n"), [3]);
    }

    #[test]
    fn code_is_free() {
        assert!(lines("src/a.rs", "fn nobody() { g(\"somebody\") } // nobody_knows\n").is_empty());
    }
}
