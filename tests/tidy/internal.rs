//! Internals: what `src/internal.rs` exports is used by another crate of the workspace.

use std::collections::BTreeSet;

use super::lexer::Kind;
use super::paths::Paths;
use super::repository::{Repository, Violation};

const EXPORTS: &str = "src/internal.rs";

/// Each exported name is imported by some crate from `accelrt::internal`. The compiler cannot
/// report an unused one, because other crates may name it. Globs are not allowed.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(exports) = repository.root().find(|source| source.path == EXPORTS) else {
        return Vec::new();
    };
    let used: BTreeSet<String> = repository
        .product()
        .filter(|source| !source.is_in_root())
        .flat_map(|source| Paths::of(source).uses)
        .filter(|path| path.is_in(&["accelrt", "internal"]))
        .filter_map(|path| path.segments.get(2).cloned())
        .collect();
    let mut violations = Vec::new();
    for (index, token) in exports.product_code() {
        let (before, next) = (exports.before(index, 1), exports.code.get(index + 1));
        let is_after =
            |signs: &[&str]| before.is_some_and(|it| signs.iter().any(|s| it.is_sign(s)));
        let is_before = |signs: &[&str]| next.is_some_and(|it| signs.iter().any(|s| it.is_sign(s)));
        let is_function = before.is_some_and(|it| it.is_word("fn"));
        let is_import = is_after(&["::", ":", "{", ","]) && is_before(&[";", ",", "}"]);
        let mut found = |message: String| {
            violations.push(Violation::new("internal", EXPORTS, token.line, message));
        };
        if token.is_sign("*") && is_before(&[";"]) {
            found("a glob hides what is exported".to_owned());
        }
        let is_name = token.kind == Kind::Word && (is_function || is_import);
        if is_name && !used.contains(&token.text) {
            found(format!("no crate uses {}", token.text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    #[test]
    fn exports_without_a_user_and_globs_are_found() {
        let count = |exports: &str| {
            let user = "use accelrt::internal::{Used, other::f};";
            let files = [("src/internal.rs", exports), ("crates/one/src/lib.rs", user)];
            check(&Repository::of(&files)).len()
        };
        assert_eq!(count("pub use crate::a::Used; pub use crate::other;"), 0);
        assert_eq!(count("pub use crate::a::Unused; pub use crate::other;"), 1);
        assert_eq!(count("pub use crate::a::*;"), 1);
    }
}
