//! Circles: the files of a crate import each other one way, so that each is read after those below.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::Exports;
use super::paths::Paths;
use super::repository::Repository;
use super::source::Source;

/// The folders of the Python crate from the lowest: a file imports no file of a higher folder.
const PYTHON_FOLDERS: [&str; 5] = ["support", "objects", "memory", "launch", "integrations"];

/// A module path, which names a file.
type Module = Vec<String>;

/// The circles of files, by the paths of their modules.
pub(crate) fn circles(repository: &Repository) -> Vec<Vec<String>> {
    let below = imports(repository);
    let reached: BTreeMap<_, _> =
        below.keys().map(|from| (from, reached_from(from, &below))).collect();
    let mut circles = BTreeSet::new();
    for from in below.keys() {
        let with = reached[from].iter().filter(|to| *to != from && reached[to].contains(from));
        let mut circle: Vec<&Module> = with.chain([from]).collect();
        circle.sort();
        if circle.len() > 1 {
            circles.insert(circle.iter().map(|module| module.join("::")).collect());
        }
    }
    circles.into_iter().collect()
}

/// The imports of a higher folder in the Python crate: the importing file and the imported one.
pub(crate) fn upward_imports(repository: &Repository) -> Vec<[String; 2]> {
    let level = |module: &Module| match &module[..] {
        [folder, name, inside, ..] if folder == "crates" && name == "accelrt-python" => {
            PYTHON_FOLDERS.iter().position(|folder| folder == inside)
        }
        _ => None,
    };
    let mut found = Vec::new();
    for (from, below) in imports(repository) {
        let is_higher = |to: &&Module| level(&from).is_some() && level(to) > level(&from);
        found.extend(below.iter().filter(is_higher).map(|to| [from.join("::"), to.join("::")]));
    }
    found
}

/// The files of the same crate that each file imports. The root has only declarations.
fn imports(repository: &Repository) -> BTreeMap<Module, BTreeSet<Module>> {
    let exports = Exports::of(repository);
    let is_read = |source: &&Source| !source.is_test_file && !source.path.ends_with("/lib.rs");
    let files: Vec<_> = repository.product().filter(is_read).collect();
    let modules: BTreeSet<Module> = files.iter().map(|source| source.module_path()).collect();
    let file_of = |path: &[String]| {
        (1..=path.len()).rev().find_map(|length| modules.get(&path[..length]).cloned())
    };
    let imports_of = |source: &Source| {
        let named = names(source).into_iter();
        named.filter_map(|path| file_of(&exports.resolve(&path))).collect()
    };
    files.iter().map(|source| (source.module_path(), imports_of(source))).collect()
}

/// What the product's code of a file names, apart from what it only exports again.
fn names(source: &Source) -> Vec<Module> {
    let Paths { uses, imports } = Paths::of(source);
    let is_exported = |index| imports.iter().any(|it| it.is_public && it.index == index);
    let for_tests: BTreeSet<_> =
        imports.iter().filter(|it| source.is_test(it.index)).map(|it| &it.target).collect();
    uses.iter()
        .filter(|it| !source.is_test(it.index) && !is_exported(it.index))
        .filter(|it| !for_tests.contains(&it.segments))
        .map(|it| source.in_crate(&it.segments))
        .collect()
}

fn reached_from(from: &Module, below: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(below[file].iter().filter(|next| reached.insert((*next).clone())));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Repository, circles, upward_imports};

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        circles(&Repository::of(files))
    }

    #[test]
    fn files_that_import_each_other_are_found_over_others_and_re_exports() {
        let a = ("src/a.rs", "use crate::b::B;");
        let b = ("src/native/b.rs", "fn f() { crate::A }");
        let root = ("src/lib.rs", "mod a; mod native; pub use a::A; use native::b;");
        let folder = ("src/native/mod.rs", "mod b;");
        assert!(found(&[root, a, folder, b]).is_empty(), "the b of the root is not native's");
        let a = ("src/a.rs", "use crate::c::C;");
        let c = ("src/c.rs", "use crate::native::b::B;");
        assert_eq!(found(&[root, a, c, folder, b]), [["crate::a", "crate::c", "crate::native::b"]]);
    }

    #[test]
    fn each_crate_is_looked_at() {
        let a = ("crates/one/src/a.rs", "use crate::b::B;");
        let b = ("crates/one/src/b.rs", "use super::A;");
        let root = ("crates/one/src/lib.rs", "mod a; mod b; pub use a::A;");
        assert_eq!(found(&[root, a, b]), [["crates::one::a", "crates::one::b"]]);
        let root = ("crates/two/src/lib.rs", "mod a; mod b; pub use a::A;");
        assert!(found(&[root, a, b]).is_empty(), "`super::A` is nothing here");
    }

    #[test]
    fn python_import_of_higher_folder_is_found() {
        let launch = ("crates/accelrt-python/src/launch/a.rs", "use crate::support::b::B;");
        let support = ("crates/accelrt-python/src/support/b.rs", "use crate::launch::a::A;");
        let upward = ["support::b", "launch::a"].map(|it| format!("crates::accelrt-python::{it}"));
        assert_eq!(upward_imports(&Repository::of(&[launch, support])), [upward]);
        let support = (support.0, "use crate::support::c::C;");
        assert!(upward_imports(&Repository::of(&[launch, support])).is_empty());
    }

    #[test]
    fn one_way_and_tests_are_free() {
        let a = ("src/a.rs", "use crate::b::B;");
        assert!(found(&[a, ("src/b.rs", "struct B;")]).is_empty());
        for test in [
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] use crate::a::A;\nfn f() { A() }\n#[cfg(not(test))] struct A();",
        ] {
            assert!(found(&[a, ("src/b.rs", test)]).is_empty(), "{test}");
        }
    }
}
