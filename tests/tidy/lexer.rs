//! A lexer for Rust: enough of the language that no rule mistakes text or comments for code.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword; a raw identifier keeps its `r#`, so it is never a keyword.
    Word,
    /// `'a`.
    Lifetime,
    /// A string of any sort: plain, raw, byte, C.
    Text,
    /// A character or byte literal.
    Character,
    Number,
    /// Punctuation: one character, except `::`, which is one token.
    Sign,
    /// A comment that is not documentation.
    Comment,
    /// `///` or `/** */`: documents what follows.
    OuterDoc,
    /// `//!` or `/*! */`: documents what it is in.
    InnerDoc,
}

/// A piece of source text.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// Where it starts, in bytes from the beginning of the file.
    pub(crate) offset: usize,
    /// The line it starts on, from 1.
    pub(crate) line: usize,
}

impl Token {
    /// The line it ends on.
    pub(crate) fn end_line(&self) -> usize {
        self.line + self.text.matches('\n').count()
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::OuterDoc | Kind::InnerDoc)
    }

    /// True for this punctuation.
    pub(crate) fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    /// True for this identifier or keyword.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }
}

/// The tokens of a file, comments included, white space left out.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut offset, mut line) = (0, 1);
    while let Some(first) = text[offset..].chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            offset += first.len_utf8();
            continue;
        }
        let (kind, length) = measure(&text[offset..], first);
        let token = Token { kind, text: text[offset..offset + length].to_owned(), offset, line };
        line = token.end_line();
        offset += length;
        tokens.push(token);
    }
    tokens
}

/// The kind and the length in bytes of the token that `rest` begins with.
fn measure(rest: &str, first: char) -> (Kind, usize) {
    if rest.starts_with("//") {
        return (comment_kind(rest, "//"), rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (comment_kind(rest, "/*"), block_comment_length(rest));
    }
    if let Some(length) = string_length(rest) {
        return (Kind::Text, length);
    }
    if rest.starts_with("b'") {
        return (Kind::Character, 1 + quoted_length(&rest[1..], '\''));
    }
    if first == '\'' {
        return quote(rest);
    }
    if is_word_start(first) {
        return (Kind::Word, word_length(rest));
    }
    if first.is_ascii_digit() {
        return (Kind::Number, number_length(rest));
    }
    (Kind::Sign, if rest.starts_with("::") { 2 } else { first.len_utf8() })
}

/// `////` and `/***` are plain comments, and so is the empty `/**/`.
fn comment_kind(rest: &str, opening: &str) -> Kind {
    let inside = &rest[2..];
    let mark = if opening == "//" { '/' } else { '*' };
    let is_outer = inside.strip_prefix(mark).is_some_and(|after| !after.starts_with([mark, '/']));
    match inside.starts_with('!') {
        true => Kind::InnerDoc,
        false if is_outer => Kind::OuterDoc,
        false => Kind::Comment,
    }
}

/// Block comments nest.
fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest.as_bytes()[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.as_bytes()[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string that `rest` begins with, whatever its prefix, if it is one.
fn string_length(rest: &str) -> Option<usize> {
    let letters = rest.find(|c: char| !matches!(c, 'b' | 'c' | 'r'))?;
    let prefix = &rest[..letters];
    if !["", "b", "c", "r", "br", "cr"].contains(&prefix) {
        return None;
    }
    if !prefix.ends_with('r') {
        let is_string = rest[letters..].starts_with('"');
        return is_string.then(|| letters + quoted_length(&rest[letters..], '"'));
    }
    let hashes = rest[letters..].find(|c| c != '#')?;
    let inside = rest[letters + hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&closing).map_or(rest.len(), |at| {
        letters + hashes + 1 + at + closing.len() // prefix, hashes, quote, contents, end
    });
    Some(end)
}

/// The length of a literal with escapes, both of its quotes included.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are characters; `'a` is a lifetime.
fn quote(rest: &str) -> (Kind, usize) {
    let mut after = rest[1..].chars();
    let is_character = after.next() == Some('\\') || after.next() == Some('\'');
    if is_character {
        (Kind::Character, quoted_length(rest, '\''))
    } else {
        (Kind::Lifetime, 1 + word_length(&rest[1..]))
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn word_length(rest: &str) -> usize {
    let raw = rest.strip_prefix("r#").is_some_and(|name| name.starts_with(is_word_start));
    let start = if raw { 2 } else { 0 };
    let end = rest[start..].find(|c: char| c != '_' && !c.is_alphanumeric());
    end.map_or(rest.len(), |end| start + end)
}

/// A dot belongs to a number only before another digit, so that ranges stay ranges.
fn number_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let belongs = |at: usize| match bytes[at] {
        b'.' => bytes.get(at + 1).is_some_and(u8::is_ascii_digit) && bytes[at - 1] != b'.',
        byte => byte == b'_' || byte.is_ascii_alphanumeric(),
    };
    (1..bytes.len()).find(|at| !belongs(*at)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::{Kind, lex};

    fn kinds(text: &str) -> Vec<(Kind, String)> {
        lex(text).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    fn one(kind: Kind, text: &str) {
        assert_eq!(kinds(text), [(kind, text.to_owned())], "{text}");
    }

    #[test]
    fn every_sort_of_literal_is_one_token() {
        for text in [
            r#""plain""#,
            r#""a \" quote and // no comment""#,
            "\"over\ntwo lines\"",
            r##"r#"raw " inside"#"##,
            r#"r"no \""#,
            r#"b"bytes""#,
            r##"br#"raw " bytes"#"##,
            r#"c"for C""#,
            "\"it ends nowhere",
        ] {
            one(Kind::Text, text);
        }
        for text in ["'a'", r"'\''", r"'\u{1F600}'", "'\"'", "b'x'", r"b'\''", "'/'", "'é'"] {
            one(Kind::Character, text);
        }
        for text in ["'a", "'static", "'_"] {
            one(Kind::Lifetime, text);
        }
        for text in ["0", "1_000u64", "0xFF_u8", "1.5", "2.5e3"] {
            one(Kind::Number, text);
        }
    }

    #[test]
    fn comments_nest_and_documentation_is_told_apart() {
        one(Kind::Comment, "// unsafe { }");
        one(Kind::Comment, "//// a rule");
        one(Kind::Comment, "/* a /* nested */ one */");
        one(Kind::Comment, "/**/");
        one(Kind::Comment, "/*** stars */");
        one(Kind::OuterDoc, "/// Documentation.");
        one(Kind::OuterDoc, "/** Documentation. */");
        one(Kind::InnerDoc, "//! A head.");
        one(Kind::InnerDoc, "/*! A head. */");
    }

    #[test]
    fn lifetimes_and_characters_do_not_swallow_each_other() {
        let texts: Vec<_> = lex("f::<'a,'b>('c','\\'')").into_iter().map(|t| t.text).collect();
        let expected = ["f", "::", "<", "'a", ",", "'b", ">", "(", "'c'", ",", "'\\''", ")"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn ranges_and_raw_identifiers_are_what_they_look_like() {
        let texts = |text| lex(text).into_iter().map(|t| t.text).collect::<Vec<_>>();
        assert_eq!(texts("0..KIB"), ["0", ".", ".", "KIB"]);
        assert_eq!(texts("0..10"), ["0", ".", ".", "10"]);
        assert_eq!(texts("x.0.max(1)"), ["x", ".", "0", ".", "max", "(", "1", ")"]);
        assert_eq!(texts("r#unsafe br rb"), ["r#unsafe", "br", "rb"]);
    }

    #[test]
    fn lines_are_counted_through_literals_and_comments() {
        let tokens = lex("a\n/* 2\n3 */ b\n\"4\n5\" c");
        let lines: Vec<_> = tokens.iter().map(|token| (token.line, token.end_line())).collect();
        assert_eq!(lines, [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5)]);
    }
}
