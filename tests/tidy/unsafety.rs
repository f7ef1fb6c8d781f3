//! Unsafe code: lifted per file, explained per use, listed in one place.

use super::lexer::Kind;
use super::repository::{Repository, Violation};
use super::source::Source;

/// Made by [`list`]; `make unsafe-list` writes it.
pub(crate) const LIST: &str = "docs/unsafe.md";

const HEAD: &str = "# Files with unsafe code\n\n\
    `unsafe_code` is denied; each of these files lifts that for itself, for the reason that\n\
    stands on its head and here. Every block names the pre-condition, what makes it true, and\n\
    what keeps it true. `make unsafe-list` writes this file, and `make tidy` compares it.\n\n\
    | file | reason |\n|---|---|\n";

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
    for source in repository.product() {
        let uses = unsafe_uses(source);
        let mut found = |index: usize, message: &str| {
            let line = source.code[index].line;
            violations.push(Violation::new("unsafe", &source.path, line, message));
        };
        let Some((first, _)) = uses.first() else { continue };
        if source.path.ends_with("/mod.rs") || source.path.ends_with("/lib.rs") {
            found(*first, "unsafe code belongs into a file of its own, not here");
        } else if exception(source).is_none() {
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

/// The list has exactly the files with unsafe code, and their reasons.
pub(crate) fn check_list(repository: &Repository) -> Vec<Violation> {
    let expected = list(repository);
    let there = repository.documents.iter().find(|document| document.path == LIST);
    let there = there.map_or(HEAD, |document| document.text.as_str());
    let differs = (1..).zip(expected.lines()).find(|(line, text)| {
        there.lines().nth(line - 1) != Some(text) // of a hundred lines
    });
    let line = match differs {
        Some((line, _)) => line,
        None if there == expected => return Vec::new(),
        None => expected.lines().count() + 1,
    };
    let message = "differs from the files; `make unsafe-list` writes it".to_owned();
    vec![Violation::new("unsafe-list", LIST, line, message)]
}

/// A table of the files with unsafe code, by their paths.
pub(crate) fn list(repository: &Repository) -> String {
    let with_unsafe = repository.product().filter(|source| !unsafe_uses(source).is_empty());
    let row = |source: &Source| {
        let reason = exception(source).unwrap_or("none is given");
        format!("| `{}` | {reason} |\n", source.path)
    };
    let mut rows: Vec<_> = with_unsafe.map(row).collect();
    rows.sort();
    HEAD.to_owned() + &rows.concat()
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

/// The reason of `#![expect(unsafe_code, reason = "…")]`, whatever its line breaks; one that is
/// empty is none.
fn exception(source: &Source) -> Option<&str> {
    let shape = ["#", "!", "[", "expect", "(", "unsafe_code", ",", "reason", "="];
    source.code.windows(shape.len() + 1).find_map(|window| {
        let (start, reason) = window.split_at(shape.len());
        let is_exception = start.iter().zip(shape).all(|(token, text)| token.text == text);
        let text = reason[0].text.trim_start_matches('r').trim_matches('"');
        (is_exception && reason[0].kind == Kind::Text && !text.is_empty()).then_some(text)
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
        let code = format!("{EXCEPTION}fn f() {{ unsafe {{ g() }} }}");
        let both = [("src/a.rs", code.as_str()), ("src/b.rs", code.as_str())];
        let made = list(&Repository::of(&both));
        assert!(made.ends_with("| `src/a.rs` | maps memory |\n| `src/b.rs` | maps memory |\n"));
        let lines_found = |files: &[(&str, &str)]| -> Vec<usize> {
            let violations = check_list(&Repository::of(files));
            violations.iter().map(|violation| violation.line).collect()
        };
        let head = HEAD.lines().count();
        assert_eq!(lines_found(&[both[0], both[1], (LIST, &made)]), []);
        assert_eq!(lines_found(&[both[1], (LIST, &made)]), [head + 1]);
        assert_eq!(lines_found(&[both[0], (LIST, &made)]), [head + 2]);
        assert_eq!(lines_found(&[both[0], both[1]]), [head + 1]);
        assert_eq!(lines_found(&[("src/a.rs", "fn f() {}")]), []);
    }
}
