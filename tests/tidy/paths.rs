//! Paths in code: what `use` trees and inline paths name, resolved as far as one file can tell.

use super::lexer::{Kind, Token};
use super::source::Source;

/// A path as the code names it.
#[derive(Clone, Debug)]
pub(crate) struct PathUse {
    /// Whole: `["crate", "sync", "Mutex"]`, `["std", "env", "var"]`.
    pub(crate) segments: Vec<String>,
    /// The index of its last token in the code.
    pub(crate) index: usize,
    /// True inside a `use` declaration.
    pub(crate) is_import: bool,
}

impl PathUse {
    /// True when it names this, or something inside: `is_in(&["std", "env"])` for `std::env::var`.
    pub(crate) fn is_in(&self, place: &[&str]) -> bool {
        self.segments.len() >= place.len() && self.segments.iter().zip(place).all(|(a, b)| a == b)
    }

    pub(crate) fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// A name that a `use` declaration brings into a module.
#[derive(Debug)]
pub(crate) struct Import {
    /// The module that has the name afterwards.
    pub(crate) module: Vec<String>,
    pub(crate) name: String,
    pub(crate) target: Vec<String>,
    pub(crate) is_public: bool,
    pub(crate) index: usize,
}

/// The paths of a file.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) uses: Vec<PathUse>,
    pub(crate) imports: Vec<Import>,
}

impl Paths {
    /// Every path in the code of a file, tests included.
    ///
    /// Names resolve through `self`, `super`, imports of the same module and the file's own child
    /// modules; what comes through a glob stays as it is written.
    pub(crate) fn of(source: &Source) -> Self {
        let mut paths = Self { uses: Vec::new(), imports: Vec::new() };
        let mut in_use = vec![false; source.code.len()];
        for index in 0..source.code.len() {
            if is_use(source, index) {
                let end = paths.read_use(source, index);
                in_use[index..end].fill(true);
            }
        }
        paths.resolve_imports(source);
        for import in &paths.imports {
            let (segments, index) = (import.target.clone(), import.index);
            paths.uses.push(PathUse { segments, index, is_import: true });
        }
        for (index, _) in in_use.iter().enumerate().filter(|(_, in_use)| !**in_use) {
            if let Some((segments, last)) = read_path(source, index) {
                let module = source.module_path_at(index);
                if segments.len() > 1 || paths.find_import(&module, &segments[0]).is_some() {
                    let segments = paths.resolve(source, &module, &segments);
                    paths.uses.push(PathUse { segments, index: last, is_import: false });
                }
            }
        }
        paths
    }

    /// Reads the declaration whose `use` is at `index`; returns where it ends.
    fn read_use(&mut self, source: &Source, index: usize) -> usize {
        let is_public = source.code[source.item_start(index)].is_word("pub");
        let module = source.module_path_at(index);
        let start = index + 1;
        let start = start + usize::from(source.code.get(start).is_some_and(|t| t.is_sign("::")));
        self.read_tree(source, &module, is_public, &[], start)
    }

    /// Reads one tree of a `use` declaration behind `prefix`; returns where it ends.
    fn read_tree(
        &mut self,
        source: &Source,
        module: &[String],
        is_public: bool,
        prefix: &[String],
        start: usize,
    ) -> usize {
        let mut path = prefix.to_vec();
        let mut at = start;
        while let Some(token) = source.code.get(at) {
            if token.is_sign("{") {
                let close = source.outline.partners[at];
                at += 1;
                while at < close {
                    at = self.read_tree(source, module, is_public, &path, at);
                    at += usize::from(source.code.get(at).is_some_and(|t| t.is_sign(",")));
                }
                return close + 1;
            }
            let is_part = token.kind == Kind::Word || token.is_sign("*") || token.is_sign("::");
            if !is_part || token.is_word("as") {
                break;
            }
            if !token.is_sign("::") {
                path.push(token.text.clone());
            }
            at += 1;
        }
        let last = at - 1;
        if path.last().is_some_and(|segment| segment == "self") && path.len() > 1 {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if source.code.get(at).is_some_and(|token| token.is_word("as")) {
            name.clone_from(&source.code[at + 1].text);
            at += 2;
        }
        let module = module.to_vec();
        self.imports.push(Import { module, name, target: path, is_public, index: last });
        at.max(start + 1)
    }

    /// Makes the targets of imports whole. A name may come through another import.
    fn resolve_imports(&mut self, source: &Source) {
        let whole: Vec<_> = self
            .imports
            .iter()
            .map(|import| self.resolve(source, &import.module, &import.target))
            .collect();
        for (import, target) in self.imports.iter_mut().zip(whole) {
            import.target = target;
        }
    }

    fn find_import(&self, module: &[String], name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.module == module && import.name == name)
    }

    /// Makes a path whole that the code of `module` names.
    fn resolve(&self, source: &Source, module: &[String], segments: &[String]) -> Vec<String> {
        let mut path = segments.to_vec();
        // An import may name itself (`use loom::loom`), so the search is bounded.
        for _ in 0..4 {
            let import = self.find_import(module, &path[0]);
            let Some(import) = import.filter(|import| import.target[0] != path[0]) else { break };
            path.splice(..1, import.target.iter().cloned());
        }
        let base = match path[0].as_str() {
            "self" | "super" => module,
            name if has_child(source, module, name) => module,
            _ => return path,
        };
        let mut base = base.to_vec();
        let mut rest = path.as_slice();
        while let [head, tail @ ..] = rest {
            match head.as_str() {
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = tail;
        }
        base.extend(rest.iter().cloned());
        base
    }
}

/// `use` begins a declaration, except in `impl Trait + use<'a>`.
fn is_use(source: &Source, index: usize) -> bool {
    let next = source.code.get(index + 1);
    source.code[index].is_word("use") && next.is_some_and(|next| !next.is_sign("<"))
}

/// True when the file declares a module of this name inside `module`.
fn has_child(source: &Source, module: &[String], name: &str) -> bool {
    let outline = &source.outline;
    let files = outline.declarations.iter().map(|file| (&file.name, file.index));
    let inline = outline.modules.iter().map(|module| (&module.name, module.span.first - 1));
    files.chain(inline).any(|(n, index)| n == name && source.module_path_at(index) == module)
}

/// The path that starts at `index`, single names included, and the index of its last token.
fn read_path(source: &Source, index: usize) -> Option<(Vec<String>, usize)> {
    let is_sign = |token: Option<&Token>, sign| token.is_some_and(|token| token.is_sign(sign));
    let is_end = |token: Option<&Token>| {
        token.is_some_and(|token| token.kind == Kind::Word || token.is_sign(">"))
    };
    let previous = source.before(index, 1);
    let is_inside = is_sign(previous, "::") && is_end(source.before(index, 2));
    if source.code[index].kind != Kind::Word || is_sign(previous, ".") || is_inside {
        return None;
    }
    let mut segments = vec![source.code[index].text.clone()];
    let mut last = index;
    while is_sign(source.code.get(last + 1), "::") {
        match source.code.get(last + 2) {
            Some(next) if next.kind == Kind::Word => segments.push(next.text.clone()),
            _ => break,
        }
        last += 2;
    }
    Some((segments, last))
}

#[cfg(test)]
mod tests {
    use super::{Paths, Source};

    fn paths(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path, text);
        let mut paths: Vec<_> = Paths::of(&source).uses.iter().map(super::PathUse::text).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    #[test]
    fn nested_use_trees_unfold() {
        let text = "pub(crate) use crate::{a::{self, B as C}, d::*, e};";
        let expected = ["crate::a", "crate::a::B", "crate::d::*", "crate::e"];
        assert_eq!(paths("src/x.rs", text), expected);
        assert_eq!(paths("src/x.rs", "use ::std::env::{var};"), ["std::env::var"]);
        assert_eq!(paths("src/x.rs", "use a::{b, c::{d},};"), ["a::b", "a::c::d"]);
    }

    #[test]
    fn inline_paths_count_wherever_they_stand() {
        let text =
            "fn f(x: &crate::a::B<crate::c::D>) { <E as crate::g::H>::i(); $crate::j::k!() }";
        let found = paths("src/x.rs", text);
        for expected in ["crate::a::B", "crate::c::D", "crate::g::H", "crate::j::k"] {
            assert!(found.iter().any(|path| path == expected), "{expected} of {found:?}");
        }
    }

    #[test]
    fn self_and_super_become_whole_paths() {
        let path = "src/backend/cpu/clock.rs";
        assert_eq!(paths(path, "use super::super::null::N;"), ["crate::backend::null::N"]);
        assert_eq!(paths(path, "use self::a::b;"), ["crate::backend::cpu::clock::a::b"]);
        assert_eq!(paths(path, "mod m { use super::a; }"), ["crate::backend::cpu::clock::a"]);
        let text = "mod cpu; pub use cpu::Cpu;";
        assert_eq!(paths("src/backend/mod.rs", text), ["crate::backend::cpu::Cpu"]);
    }

    #[test]
    fn names_resolve_through_imports_of_their_own_module_only() {
        let text = "use crate::backend; fn f() { backend::cpu::g(); }";
        assert!(paths("src/x.rs", text).contains(&"crate::backend::cpu::g".to_owned()));
        let text = "use std::env as e; fn f() { e::var(); x.e(); }";
        assert_eq!(paths("src/x.rs", text), ["std::env", "std::env::var"]);
        let text = "use crate::sync::Mutex; mod t { use std::sync::Mutex; } fn f(m: Mutex) {}";
        assert_eq!(paths("src/x.rs", text), ["crate::sync::Mutex", "std::sync::Mutex"]);
    }

    #[test]
    fn text_and_comments_name_nothing() {
        assert!(paths("src/x.rs", "// crate::a::b\nconst A: &str = \"crate::a::b\";").is_empty());
    }
}
