//! Circles: the files of a room import each other one way, so that each is read behind those below.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::Exports;
use super::paths::Paths;
use super::repository::Repository;

/// Rooms that are held, by the paths of their files.
const ROOMS: [&str; 1] = ["src/memory/allocator/"];

/// Files that may import each other: records that name each other by number.
const RECORDS: [&str; 6] = ["area", "block", "free_blocks", "heap", "index", "slab"];

/// The circles of files that are no records, by the last names of their modules.
pub(crate) fn circles(repository: &Repository) -> Vec<Vec<String>> {
    let exports = Exports::of(repository);
    let is_held = |path: &str| ROOMS.iter().any(|room| path.starts_with(room));
    let files: Vec<_> = repository
        .root()
        .filter(|source| is_held(&source.path) && !source.is_test_file)
        .filter(|source| !source.path.ends_with("/mod.rs"))
        .collect();
    let modules: BTreeSet<Vec<String>> = files.iter().map(|source| source.module_path()).collect();
    let file_of = |path: &[String]| {
        (1..=path.len()).rev().find_map(|length| modules.get(&path[..length]).cloned())
    };
    let below: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = files
        .iter()
        .map(|source| {
            let uses = Paths::of(source).uses.into_iter().filter(|it| !source.is_test(it.index));
            let named = uses.filter_map(|it| file_of(&exports.resolve(&it.segments))).collect();
            (source.module_path(), named)
        })
        .collect();
    let reached: BTreeMap<_, _> =
        below.keys().map(|from| (from, reached_from(from, &below))).collect();
    let mut circles = BTreeSet::new();
    for from in below.keys() {
        let with = reached[from].iter().filter(|to| *to != from && reached[to].contains(from));
        let mut circle: Vec<String> =
            with.chain([from]).map(|it| it[it.len() - 1].clone()).collect();
        circle.sort();
        if circle.len() > 1 && circle != RECORDS {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached_from(
    from: &Vec<String>,
    below: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
) -> BTreeSet<Vec<String>> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(below[file].iter().filter(|next| reached.insert((*next).clone())));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{RECORDS, Repository, circles};

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let paths: Vec<_> =
            files.iter().map(|(path, _)| format!("src/memory/allocator/{path}")).collect();
        let texts = files.iter().map(|(_, text)| *text);
        let files: Vec<_> = paths.iter().map(String::as_str).zip(texts).collect();
        circles(&Repository::of(&files))
    }

    #[test]
    fn files_that_import_each_other_are_found_over_others_and_re_exports() {
        let a = ("a.rs", "use crate::memory::allocator::b::B;");
        let b = ("native/b.rs", "fn f() { crate::memory::allocator::A }");
        let root = ("mod.rs", "mod a; mod native; pub use a::A; use native::b;");
        let folder = ("native/mod.rs", "mod b;");
        assert!(found(&[root, a, folder, b]).is_empty(), "b of the room is not native's");
        let a = ("a.rs", "use crate::memory::allocator::c::C;");
        let c = ("c.rs", "use crate::memory::allocator::native::b::B;");
        assert_eq!(found(&[root, a, c, folder, b]), [["a", "b", "c"]]);
    }

    #[test]
    fn one_way_tests_and_records_are_free() {
        let a = ("a.rs", "use crate::memory::allocator::b::B;");
        assert!(found(&[a, ("b.rs", "struct B;")]).is_empty());
        let test = "#[cfg(test)] mod tests { use crate::memory::allocator::a::A; }";
        assert!(found(&[a, ("b.rs", test)]).is_empty());
        let paths = RECORDS.map(|name| format!("{name}.rs"));
        let next = RECORDS.iter().cycle().skip(1);
        let texts = next.map(|name| format!("use crate::memory::allocator::{name}::R;"));
        let texts: Vec<_> = texts.take(RECORDS.len()).collect();
        let records = paths.iter().map(String::as_str).zip(texts.iter().map(String::as_str));
        assert!(found(&records.collect::<Vec<_>>()).is_empty());
    }
}
