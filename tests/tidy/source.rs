//! One Rust file: its text, its code and comments, its outline, and its place in the crate.

use super::lexer::{Kind, Token, lex};
use super::outline::{Outline, Span};

#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Tokens without comments.
    pub(crate) code: Vec<Token>,
    pub(crate) comments: Vec<Token>,
    pub(crate) outline: Outline,
    /// True for a file that only tests are built from.
    pub(crate) is_test_file: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (comments, code): (Vec<_>, Vec<_>) = lex(text).into_iter().partition(Token::is_comment);
        let outline = Outline::of(&code);
        let is_test_file = place(path).is_none() || path.ends_with("tests.rs");
        Self { path: path.into(), text: text.into(), code, comments, outline, is_test_file }
    }

    /// True for the product, false for tests, benches, examples and fuzz targets.
    pub(crate) fn is_product(&self) -> bool {
        place(&self.path).is_some()
    }

    /// True for the root crate's product.
    pub(crate) fn is_in_root(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// True when only test builds have this token of the code.
    pub(crate) fn is_test(&self, index: usize) -> bool {
        self.is_test_file || self.outline.tests.iter().any(|span| span.contains(index))
    }

    /// The tokens of the code that every build may have, with their indices.
    pub(crate) fn product_code(&self) -> impl Iterator<Item = (usize, &Token)> {
        self.code.iter().enumerate().filter(|(index, _)| !self.is_test(*index))
    }

    /// `["crate", "backend", "cpu"]` for `src/backend/cpu/mod.rs`, and
    /// `["crates", "accelrt-python", "memory"]` for `crates/accelrt-python/src/memory/mod.rs`.
    pub(crate) fn module_path(&self) -> Vec<String> {
        let (of, inside) = place(&self.path).unwrap_or((None, &self.path));
        let stem = inside.strip_suffix(".rs").unwrap_or(inside);
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        let segments = stem.split('/').filter(|segment| !["lib", "main"].contains(segment));
        let root = of.map_or(vec!["crate"], |of| vec!["crates", of]);
        root.into_iter().chain(segments).map(str::to_owned).collect()
    }

    /// The path of the module, inline ones included, that holds this token.
    pub(crate) fn module_path_at(&self, index: usize) -> Vec<String> {
        let holders = self.outline.modules.iter().filter(|module| module.span.contains(index));
        self.module_path().into_iter().chain(holders.map(|module| module.name.clone())).collect()
    }

    /// A path of this file, with the place of its crate for `crate`.
    pub(crate) fn in_crate(&self, path: &[String]) -> Vec<String> {
        match (place(&self.path), path) {
            (Some((Some(of), _)), [root, rest @ ..]) if root == "crate" => {
                let root = ["crates".to_owned(), of.to_owned()];
                root.into_iter().chain(rest.iter().cloned()).collect()
            }
            _ => path.to_vec(),
        }
    }

    /// The token of the code, if there is one; `back` of 1 is the one before `index`.
    pub(crate) fn before(&self, index: usize, back: usize) -> Option<&Token> {
        self.code.get(index.checked_sub(back)?)
    }

    /// First and last line of a span.
    pub(crate) fn lines_of(&self, span: Span) -> (usize, usize) {
        (self.code[span.first].line, self.code[span.last].end_line())
    }

    /// The first token of the statement or item that holds this one: what follows the nearest
    /// semicolon or brace before it.
    pub(crate) fn statement_start(&self, index: usize) -> usize {
        let is_border = |token: &Token| ["{", "}", ";"].iter().any(|sign| token.is_sign(sign));
        self.code[..index].iter().rposition(is_border).map_or(0, |border| border + 1)
    }

    /// The comments between the token before `first` and the token `last`.
    pub(crate) fn comments_between(
        &self,
        first: usize,
        last: usize,
    ) -> impl Iterator<Item = &Token> {
        let from = self.before(first, 1).map_or(0, |token| token.offset);
        let to = self.code[last].offset;
        self.comments.iter().filter(move |comment| (from..to).contains(&comment.offset))
    }

    /// The first token of the item of which this is the keyword or the name: visibility, qualifiers
    /// and attributes come before.
    pub(crate) fn item_start(&self, index: usize) -> usize {
        let qualifiers =
            ["pub", "const", "async", "unsafe", "extern", "static", "mut", "safe", "default"];
        let mut start = index;
        while let Some(token) = self.before(start, 1) {
            let opening = self.outline.partners[start - 1];
            let is_visibility =
                token.is_sign(")") && self.before(opening, 1).is_some_and(|t| t.is_word("pub"));
            let is_attribute =
                token.is_sign("]") && self.before(opening, 1).is_some_and(|t| t.is_sign("#"));
            let is_qualifier = token.kind == Kind::Word && qualifiers.contains(&&*token.text);
            let is_abi = token.kind == Kind::Text;
            start = match () {
                () if is_visibility || is_attribute => opening - 1,
                () if is_qualifier || is_abi => start - 1,
                () => return start,
            };
        }
        start
    }

    /// The text of the documentation and comments in front of the item whose keyword or name is at
    /// `index`.
    pub(crate) fn documentation(&self, index: usize) -> String {
        let comments = self.comments_between(self.item_start(index), index);
        comments.map(|comment| comment.text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// The crate, `None` for the root one, and the path in its `src` of a file of the product.
fn place(path: &str) -> Option<(Option<&str>, &str)> {
    if let Some(inside) = path.strip_prefix("src/") {
        return Some((None, inside));
    }
    let (of, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    Some((Some(of), rest.strip_prefix("src/")?))
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn find(source: &Source, word: &str) -> usize {
        source.code.iter().position(|token| token.text == word).expect("the word is there")
    }

    #[test]
    fn a_file_knows_its_place() {
        let module = |path| Source::new(path, "").module_path().join("::");
        assert_eq!(module("src/lib.rs"), "crate");
        assert_eq!(module("src/event.rs"), "crate::event");
        assert_eq!(module("src/backend/cpu/mod.rs"), "crate::backend::cpu");
        assert_eq!(module("src/backend/cpu/clock.rs"), "crate::backend::cpu::clock");
        assert_eq!(module("crates/one/src/lib.rs"), "crates::one");
        assert_eq!(module("crates/one/src/a/b.rs"), "crates::one::a::b");

        let source = Source::new("src/a.rs", "mod b { mod c { one } } two");
        assert_eq!(source.module_path_at(find(&source, "one")).join("::"), "crate::a::b::c");
        assert_eq!(source.module_path_at(find(&source, "two")).join("::"), "crate::a");
    }

    #[test]
    fn files_of_tests_are_tests_throughout() {
        for path in [
            "tests/tidy.rs",
            "benches/queue.rs",
            "crates/one/tests/a.rs",
            "src/engine/stream/order_tests.rs",
        ] {
            assert!(Source::new(path, "fn a() {}").is_test(0), "{path}");
        }
        for path in ["src/engine/stream/order.rs", "crates/one/src/a.rs"] {
            assert!(!Source::new(path, "fn a() {}").is_test(0), "{path}");
        }
    }

    #[test]
    fn documentation_is_found_over_attributes_and_qualifiers() {
        let text = "use a;\n/// Words.\n#[inline]\npub(crate) const unsafe extern \"C\" fn f() {}";
        let source = Source::new("src/a.rs", text);
        assert_eq!(source.documentation(find(&source, "fn")), "/// Words.");
        let source = Source::new("src/a.rs", "struct S {\n/// A.\na: u8,\n/// B.\npub b: u8 }");
        assert_eq!(source.documentation(find(&source, "b")), "/// B.");
    }

    #[test]
    fn a_statement_starts_behind_the_last_border() {
        let source = Source::new("src/a.rs", "fn f() { a(); let b = c(d)\n.e(target); }");
        let start = source.statement_start(find(&source, "target"));
        assert!(source.code[start].is_word("let"));
    }
}
