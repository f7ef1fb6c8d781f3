//! What the rules look at: every text file of the repository, and the Rust ones understood.

use std::fmt;
use std::fs;
use std::path::Path;

use super::source::Source;

/// The folders that hold the product; what else lies in a checkout is nobody's business.
const FOLDERS: [&str; 12] = [
    "src", "crates", "tests", "benches", "examples", "python", "include", "fuzz", "docs", ".ci",
    ".cargo", ".github",
];
/// Names of folders whose contents are made, not written.
const MADE: [&str; 6] = ["target", "__pycache__", ".venv", "corpus", "artifacts", "coverage"];

/// A text file that is not Rust.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) sources: Vec<Source>,
    pub(crate) documents: Vec<Document>,
}

impl Repository {
    /// A repository in memory.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut repository = Self::default();
        for (path, text) in files {
            repository.add(path, text);
        }
        repository.find_test_files();
        repository
    }

    /// The repository below `root`.
    pub(crate) fn on_disk(root: &Path) -> Self {
        let mut repository = Self::default();
        repository.add_folder(root, "");
        repository.find_test_files();
        repository
    }

    fn add(&mut self, path: &str, text: &str) {
        if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
            self.sources.push(Source::new(path, text));
        } else {
            self.documents.push(Document { path: path.into(), text: text.into() });
        }
    }

    /// Adds the files of a folder and of those below it; leaves out links and what is no text.
    fn add_folder(&mut self, folder: &Path, prefix: &str) {
        let entries = fs::read_dir(folder).expect("a folder of the repository can be listed");
        let mut entries: Vec<_> =
            entries.map(|entry| entry.expect("an entry can be read").path()).collect();
        entries.sort();
        for path in entries.into_iter().filter(|path| !path.is_symlink()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let inside = format!("{prefix}{name}");
            if path.is_dir() {
                if is_written(prefix, &name) {
                    self.add_folder(&path, &format!("{inside}/"));
                }
            } else if inside == ".git" {
                // In a linked working tree this is a file, and names a folder of the machine.
            } else if let Ok(text) = fs::read_to_string(&path) {
                self.add(&inside, &text);
            }
        }
    }

    /// `#[cfg(test)] mod name;` makes a test of the file, and of the files below it.
    fn find_test_files(&mut self) {
        let mut modules: Vec<Vec<String>> = Vec::new();
        for source in self.sources.iter().filter(|source| source.is_product()) {
            for declaration in &source.outline.declarations {
                if source.is_test(declaration.index) {
                    let mut module = source.module_path_at(declaration.index);
                    module.push(declaration.name.clone());
                    modules.push(module);
                }
            }
        }
        for source in self.sources.iter_mut().filter(|source| source.is_product()) {
            let path = source.module_path();
            source.is_test_file |= modules.iter().any(|module| path.starts_with(module));
        }
    }

    /// The files of all crates' products.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_product())
    }

    /// The files of the root crate's product.
    pub(crate) fn root(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_in_root())
    }

    /// Path and text of every file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let documents = self.documents.iter().map(|file| (&*file.path, &*file.text));
        self.sources.iter().map(|source| (&*source.path, &*source.text)).chain(documents)
    }
}

/// True for a folder of the product, and below it for everything that is not made by a tool.
fn is_written(prefix: &str, folder: &str) -> bool {
    if prefix.is_empty() { FOLDERS.contains(&folder) } else { !MADE.contains(&folder) }
}

/// The files of a listing, a path a line, that a tool has built. A corpus is committed.
pub(crate) fn built_files(listing: &str) -> Vec<&str> {
    let is_built = |folder: &str| folder != "corpus" && MADE.contains(&folder);
    listing.lines().filter(|path| path.split('/').any(is_built)).collect()
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

impl Violation {
    pub(crate) fn new(
        rule: &'static str,
        path: &str,
        line: usize,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::{Repository, Violation};

    #[test]
    fn a_file_declared_for_tests_is_a_test_with_all_below_it() {
        let repository = Repository::of(&[
            ("src/queue/mod.rs", "mod ring;\n#[cfg(all(test, loom))]\nmod models;"),
            ("src/queue/ring.rs", "fn a() {}"),
            ("src/queue/models/mod.rs", "mod two;"),
            ("src/queue/models/two.rs", "fn b() {}"),
        ]);
        let tests: Vec<_> = repository.product().map(|source| source.is_test_file).collect();
        assert_eq!(tests, [false, false, true, true]);
    }

    #[test]
    fn a_violation_reads_as_editors_expect_it() {
        let violation = Violation::new("rule", "src/a.rs", 7, "what is wrong");
        assert_eq!(violation.to_string(), "src/a.rs:7: rule: what is wrong");
    }
}
