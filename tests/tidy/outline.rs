//! The shape of a file: its functions, its inline modules, and what is compiled only for tests.

use super::lexer::{Kind, Token};

/// A run of tokens of the code, by index, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl Span {
    pub(crate) fn contains(self, index: usize) -> bool {
        (self.first..=self.last).contains(&index)
    }
}

/// A function with a body; the span is from `fn` to the closing brace.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// `mod name { … }`; the span is what the braces hold.
#[derive(Debug)]
pub(crate) struct InlineModule {
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// `mod name;`.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    /// The index of its `mod`.
    pub(crate) index: usize,
}

#[derive(Debug)]
pub(crate) struct Outline {
    /// For every bracket the index of its partner; for every other token its own.
    pub(crate) partners: Vec<usize>,
    pub(crate) functions: Vec<Function>,
    pub(crate) modules: Vec<InlineModule>,
    pub(crate) declarations: Vec<Declaration>,
    /// Items that only test builds have.
    pub(crate) tests: Vec<Span>,
}

impl Outline {
    /// The outline of code, that is of tokens without comments.
    pub(crate) fn of(code: &[Token]) -> Self {
        let partners = partners(code);
        let tests = test_items(code, &partners);
        let mut outline =
            Self { partners, tests, functions: vec![], modules: vec![], declarations: vec![] };
        for index in 0..code.len() {
            outline.note(code, index);
        }
        outline
    }

    fn note(&mut self, code: &[Token], index: usize) {
        let Some(name) = code.get(index + 1).filter(|next| next.kind == Kind::Word) else { return };
        let name = name.text.clone();
        if code[index].is_word("fn") {
            if let Some(open) = body(code, &self.partners, index) {
                let span = Span { first: index, last: self.partners[open] };
                self.functions.push(Function { name, span });
            }
        } else if code[index].is_word("mod") {
            match code.get(index + 2) {
                Some(next) if next.is_sign("{") => {
                    let span = Span { first: index + 2, last: self.partners[index + 2] };
                    self.modules.push(InlineModule { name, span });
                }
                Some(next) if next.is_sign(";") => {
                    self.declarations.push(Declaration { name, index });
                }
                _ => {}
            }
        }
    }
}

/// Pairs brackets; one without a partner is its own.
fn partners(code: &[Token]) -> Vec<usize> {
    let mut partners: Vec<usize> = (0..code.len()).collect();
    let mut open = Vec::new();
    for (index, token) in code.iter().enumerate().filter(|(_, token)| token.kind == Kind::Sign) {
        match token.text.as_str() {
            "(" | "[" | "{" => open.push(index),
            ")" | "]" | "}" => {
                if let Some(opening) = open.pop() {
                    (partners[opening], partners[index]) = (index, opening);
                }
            }
            _ => {}
        }
    }
    partners
}

/// The opening brace that follows `from` outside of parentheses, unless a semicolon comes first.
fn body(code: &[Token], partners: &[usize], from: usize) -> Option<usize> {
    let mut index = from;
    while let Some(token) = code.get(index) {
        match token.text.as_str() {
            "{" if token.kind == Kind::Sign => return Some(index),
            ";" if token.kind == Kind::Sign => return None,
            "(" | "[" if token.kind == Kind::Sign => index = partners[index].max(index) + 1,
            _ => index += 1,
        }
    }
    None
}

/// Items behind `#[test]`, or behind a `#[cfg(…)]` that holds only in test builds.
fn test_items(code: &[Token], partners: &[usize]) -> Vec<Span> {
    let is_attribute = |index: usize| {
        let is_open = code.get(index + 1).is_some_and(|next| next.is_sign("["));
        is_open && code[index].is_sign("#")
    };
    let mut items = Vec::new();
    let mut index = 0;
    while index < code.len() {
        if !is_attribute(index) {
            index += 1;
            continue;
        }
        let first = index;
        let mut is_test = false;
        while index < code.len() && is_attribute(index) {
            let last = partners[index + 1];
            is_test |= marks_a_test(&code[index + 2..last.max(index + 2)]);
            index = last.max(index + 1) + 1;
        }
        if is_test {
            let last = item_end(code, partners, index);
            items.push(Span { first, last });
            index = last + 1;
        }
    }
    items
}

/// True for the inside of `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn marks_a_test(attribute: &[Token]) -> bool {
    match attribute {
        [word] => word.is_word("test"),
        [cfg, open, predicate @ .., close] if cfg.is_word("cfg") => {
            open.is_sign("(") && close.is_sign(")") && implies_test(predicate)
        }
        _ => false,
    }
}

/// True when the predicate of a `cfg` cannot hold without `test`.
fn implies_test(predicate: &[Token]) -> bool {
    match predicate {
        [word] => word.is_word("test"),
        [word, _, inside @ .., _] if word.is_word("all") => arguments(inside).any(implies_test),
        [word, _, inside @ .., _] if word.is_word("any") => {
            arguments(inside).filter(|argument| !argument.is_empty()).all(implies_test)
        }
        _ => false,
    }
}

/// Splits at the commas that are outside of parentheses.
fn arguments(inside: &[Token]) -> impl Iterator<Item = &[Token]> {
    let mut depth = 0;
    inside.split(move |token| {
        depth += i32::from(token.is_sign("(")) - i32::from(token.is_sign(")"));
        depth == 0 && token.is_sign(",")
    })
}

/// The last token of the item, field or statement that starts at `start`.
fn item_end(code: &[Token], partners: &[usize], start: usize) -> usize {
    let last = code.len() - 1;
    let keyword = code[start.min(last)..].iter().find_map(|token| {
        let words = ["fn", "mod", "impl", "struct", "enum", "union", "trait", "macro_rules"];
        let ends = ["use", "static", "let", "type", "const"];
        let is_prefix = ["pub", "crate", "super", "unsafe", "extern", "async", "in"];
        match token.text.as_str() {
            text if words.contains(&text) => Some("braces"),
            text if ends.contains(&text) => Some("semicolon"),
            text if is_prefix.contains(&text) || token.kind != Kind::Word => None,
            _ => Some("field"),
        }
    });
    let mut index = start;
    while index < last {
        let token = &code[index];
        let is_brace = token.is_sign("{");
        let is_end = match keyword {
            Some("braces") => is_brace || token.is_sign(";"),
            Some("semicolon") => token.is_sign(";"),
            _ => is_brace || token.is_sign(";") || token.is_sign(","),
        };
        if is_end {
            return if is_brace { partners[index].max(index) } else { index };
        }
        index = partners[index].max(index) + 1;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;

    fn test_lines(text: &str) -> Vec<usize> {
        let source = Source::new("src/a.rs", text);
        let code = source.code.iter().enumerate();
        let mut lines: Vec<_> =
            code.filter(|(at, _)| source.is_test(*at)).map(|(_, token)| token.line).collect();
        lines.dedup();
        lines
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "fn a(x: [u8; 2]) -> u8\nwhere\n    u8: Copy,\n{\n    fn b() {}\n    '}';\n}\n\
                    trait T {\n    fn none(&self);\n    fn some(&self) {}\n}\ntype F = fn(u8);\n";
        let source = Source::new("src/a.rs", text);
        let lines: Vec<_> = source
            .outline
            .functions
            .iter()
            .map(|function| (function.name.as_str(), source.lines_of(function.span)))
            .collect();
        assert_eq!(lines, [("a", (1, 7)), ("b", (5, 5)), ("some", (10, 10))]);
    }

    #[test]
    fn test_items_are_found_whatever_their_predicate() {
        assert_eq!(test_lines("#[cfg(test)]\nmod tests {\n}\nfn a() {}"), [1, 2, 3]);
        assert_eq!(test_lines("#[cfg(all(test, not(loom)))]\nmod tests {\n}"), [1, 2, 3]);
        assert_eq!(test_lines("#[test]\n#[ignore]\nfn a() {}\nfn b() {}"), [1, 2, 3]);
        assert_eq!(test_lines("#[cfg(test)]\nuse a::{b, c};\nuse d;"), [1, 2]);
        assert_eq!(test_lines("struct S {\n#[cfg(test)]\na: u8,\nb: u8 }"), [2, 3]);
        assert_eq!(test_lines("#[cfg(any(test, test))]\nmod a;\nmod b;"), [1, 2]);
    }

    #[test]
    fn what_other_builds_have_too_is_no_test() {
        assert!(test_lines("#[cfg(not(test))]\nmod a {}").is_empty());
        assert!(test_lines("#[cfg(any(test, feature = \"python\"))]\nmod a {}").is_empty());
        assert!(test_lines("#[cfg(loom)]\nmod a {}").is_empty());
        assert!(test_lines("#[derive(Debug)]\nstruct Test;").is_empty());
    }
}
