//! Unsafe code: lifted per file, explained per use, listed in one place.

use super::lexer::Kind;
use super::repository::{Repository, Violation};
use super::source::Source;

const LIST: &str = "ARCHITECTURE.md";
const HEADING: &str = "Unsafe files";

/// What an `unsafe` introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A block, an implementation or foreign declarations: proves something. Comment: `SAFETY:`.
    Proof,
    /// A function or a trait: asks for something. Documentation: `# Safety`.
    Demand,
    /// An attribute such as `#[unsafe(no_mangle)]`: the name is the reason.
    Attribute,
}

/// Files with unsafe code say so and why in a lint exception; `mod.rs` and `lib.rs` have none; each
/// use is explained. Tests are free.
pub(crate) fn check_uses(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.src() {
        let uses = unsafe_uses(source);
        let mut found = |index: usize, message: &str| {
            let line = source.code[index].line;
            violations.push(Violation::new("unsafe", &source.path, line, message));
        };
        let Some((first, _)) = uses.first() else { continue };
        if source.path.ends_with("/mod.rs") || source.path.ends_with("/lib.rs") {
            found(*first, "unsafe code belongs into a file of its own, not here");
        } else if !has_exception(source) {
            found(*first, "the file begins with #![expect(unsafe_code, reason = \"…\")]");
        }
        for (index, what) in uses {
            match what {
                Use::Proof if !is_proven(source, index) => {
                    found(index, "a `// SAFETY:` comment says before it why this is sound");
                }
                Use::Demand if !is_documented(source, index) => {
                    found(index, "a `# Safety` section says what the caller promises");
                }
                _ => {}
            }
        }
    }
    violations
}

/// ARCHITECTURE.md lists exactly the files with unsafe code.
pub(crate) fn check_list(repository: &Repository) -> Vec<Violation> {
    let listed = listed_files(repository);
    let has_unsafe = |source: &&Source| !unsafe_uses(source).is_empty();
    let files: Vec<_> = repository.src().filter(has_unsafe).map(|source| &source.path).collect();
    let mut violations = Vec::new();
    for path in files.iter().filter(|path| !listed.iter().any(|(listed, _)| listed == **path)) {
        let message = format!("not listed under \"{HEADING}\" in {LIST}");
        violations.push(Violation::new("unsafe-list", path, 1, message));
    }
    for (path, line) in listed.iter().filter(|(path, _)| !files.contains(&path)) {
        let message = format!("{path} has no unsafe code");
        violations.push(Violation::new("unsafe-list", LIST, *line, message));
    }
    violations
}

/// The bullets ``- `src/…` `` under the heading, with their lines.
fn listed_files(repository: &Repository) -> Vec<(String, usize)> {
    let mut files = Vec::new();
    for document in repository.documents.iter().filter(|document| document.path == LIST) {
        let mut is_inside = false;
        for (line, text) in (1..).zip(document.text.lines()) {
            if text.starts_with('#') {
                is_inside = text.trim_start_matches('#').trim() == HEADING;
            }
            let bullet = text.strip_prefix("- `").filter(|path| path.starts_with("src/"));
            if let Some((path, _)) = bullet.filter(|_| is_inside).and_then(|b| b.split_once('`')) {
                files.push((path.to_owned(), line));
            }
        }
    }
    files
}

/// The uses of `unsafe` in a file that need a lint exception, by the index of the word.
fn unsafe_uses(source: &Source) -> Vec<(usize, Use)> {
    let words = source.product_code().filter(|(_, token)| token.is_word("unsafe"));
    words.filter_map(|(index, _)| Some((index, classify(source, index)?))).collect()
}

/// A function pointer's type is no unsafe code, and the lint does not ask for an exception.
fn classify(source: &Source, index: usize) -> Option<Use> {
    let mut next = index + 1;
    while source.code.get(next)?.kind == Kind::Text || source.code[next].is_word("extern") {
        next += 1;
    }
    let is_name = source.code.get(next + 1).is_some_and(|name| name.kind == Kind::Word);
    match source.code[next].text.as_str() {
        "fn" => is_name.then_some(Use::Demand),
        "trait" | "auto" => Some(Use::Demand),
        "(" => Some(Use::Attribute),
        _ => Some(Use::Proof),
    }
}

/// `#![expect(unsafe_code, reason = "…")]`, whatever its line breaks.
fn has_exception(source: &Source) -> bool {
    let shape = ["#", "!", "[", "expect", "(", "unsafe_code", ",", "reason", "="];
    source.code.windows(shape.len() + 1).any(|window| {
        let (start, reason) = window.split_at(shape.len());
        start.iter().zip(shape).all(|(token, text)| token.text == text)
            && reason[0].kind == Kind::Text
            && reason[0].text.len() > "\"\"".len()
    })
}

/// A comment in the same statement before it, or directly above the statement.
fn is_proven(source: &Source, index: usize) -> bool {
    let start = source.statement_start(index);
    source.comments_between(start, index).any(|comment| comment.text.contains("SAFETY:"))
}

/// Functions of a trait's implementation promise what the trait documents.
fn is_documented(source: &Source, index: usize) -> bool {
    source.documentation(index).contains("# Safety") || is_in_trait_implementation(source, index)
}

fn is_in_trait_implementation(source: &Source, index: usize) -> bool {
    let partners = &source.outline.partners;
    let opens =
        (0..index).rev().find(|open| source.code[*open].is_sign("{") && partners[*open] > index);
    let Some(open) = opens else { return false };
    let header = &source.code[source.statement_start(open)..open];
    let is_word = |word: &str| header.iter().any(|token| token.is_word(word));
    is_word("impl") && is_word("for")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCEPTION: &str = "#![expect(unsafe_code, reason = \"maps memory\")]\n";

    fn uses(path: &str, text: &str) -> Vec<String> {
        let violations = check_uses(&Repository::of(&[(path, text)]));
        violations.into_iter().map(|violation| violation.to_string()).collect()
    }

    fn with_exception(text: &str) -> Vec<String> {
        uses("src/a.rs", &format!("{EXCEPTION}{text}"))
    }

    #[test]
    fn a_file_with_unsafe_code_has_an_exception_with_a_reason() {
        let block = "fn f() {\n// SAFETY: it is.\nunsafe { g() } }";
        assert!(with_exception(block).is_empty());
        assert_eq!(uses("src/a.rs", block).len(), 1);
        let empty = format!("#![expect(unsafe_code, reason = \"\")]\n{block}");
        assert_eq!(uses("src/a.rs", &empty).len(), 1);
        let split = format!("#![expect(\n    unsafe_code,\n    reason = r\"a\"\n)]\n{block}");
        assert!(uses("src/a.rs", &split).is_empty());
        assert!(uses("tests/a.rs", block).is_empty());
        assert!(uses("src/a.rs", &format!("#[cfg(test)] mod tests {{ {block} }}")).is_empty());
    }

    #[test]
    fn roots_of_modules_have_no_unsafe_code() {
        let text = format!("{EXCEPTION}fn f() {{\n// SAFETY: it is.\nunsafe {{ g() }} }}");
        for path in ["src/queue/mod.rs", "src/lib.rs"] {
            assert_eq!(uses(path, &text).len(), 1, "{path}");
        }
        assert!(uses("src/lib.rs", "//! Says unsafe.\nfn r#unsafe() {}").is_empty());
    }

    #[test]
    fn each_proof_has_its_own_comment() {
        for text in [
            "fn f() {\n    // SAFETY: a.\n    let x = g(1,\n        unsafe { h() });\n}",
            "// SAFETY: a.\n#[inline]\nunsafe impl Send for A {}",
            "fn f() { match x {\n// SAFETY: a.\nA => unsafe { h() },\n_ => 1 } }",
            "fn f() { g(|p| /* SAFETY: a. */ unsafe { h(p) }); }",
            "// SAFETY: the header says so.\nunsafe extern \"C\" { fn g(); }",
        ] {
            assert!(with_exception(text).is_empty(), "{text}");
        }
        for text in [
            "fn f() { unsafe { h() } }",
            "// SAFETY: of f.\nfn f() { unsafe { h() } }",
            "// Sends.\nunsafe impl Send for A {}",
            "fn f() {\n// SAFETY: a.\nunsafe { g() };\nunsafe { h() } }",
            "unsafe extern \"C\" { fn g(); }",
        ] {
            assert_eq!(with_exception(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn each_demand_is_documented() {
        for text in [
            "/// A.\n///\n/// # Safety\n/// B.\n#[inline]\npub unsafe extern \"C\" fn f() {}",
            "/// # Safety\n/// B.\npub(crate) unsafe trait T {}",
            "unsafe impl<T> GlobalAlloc for A<T> {\n    unsafe fn alloc(&self) {}\n}",
        ] {
            let text = text.replace("unsafe impl", "// SAFETY: a.\nunsafe impl");
            assert!(with_exception(&text).is_empty(), "{text}");
        }
        for text in ["/// A.\nunsafe fn f() {}", "unsafe trait T {}", "impl A { unsafe fn f() {} }"]
        {
            assert_eq!(with_exception(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn types_of_function_pointers_are_no_unsafe_code() {
        let text = "type F = unsafe extern \"C\" fn(u32) -> i32;\nstruct S { f: unsafe fn() }";
        assert!(uses("src/a.rs", text).is_empty());
        assert_eq!(uses("src/a.rs", "#[unsafe(no_mangle)]\nfn f() {}").len(), 1);
        assert!(with_exception("#[unsafe(no_mangle)]\nfn f() {}").is_empty());
    }

    #[test]
    fn the_list_is_complete_and_has_nothing_else() {
        let list = "## Unsafe files\n\nWhy.\n- `src/a.rs`: because.\n- `src/b.rs`\n\n## More\n\
                    - `src/c.rs`\n";
        let code = "fn f() { unsafe { g() } }";
        let found = |files: &[(&str, &str)]| {
            let violations = check_list(&Repository::of(files));
            violations.iter().map(|v| (v.path.clone(), v.line)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[("src/a.rs", code), ("src/b.rs", code), (LIST, list)]), []);
        assert_eq!(found(&[("src/a.rs", code), (LIST, list)]), [(LIST.to_owned(), 5)]);
        let with_c = [("src/a.rs", code), ("src/b.rs", code), ("src/c.rs", code), (LIST, list)];
        assert_eq!(found(&with_c), [("src/c.rs".to_owned(), 1)]);
        assert_eq!(found(&[("src/a.rs", code)]), [("src/a.rs".to_owned(), 1)]);
        assert_eq!(found(&[("src/a.rs", "fn f() {}")]), []);
    }
}
