//! The fake OpenCL loader as a library: compiled when it is needed, by the house's C compiler.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What everything is compiled with.
const FLAGS: [&str; 7] = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];

/// Where the fake's sources are.
pub(crate) fn folder() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate is in a folder");
    crates.join("accelrt-opencl/tests/fake_opencl")
}

/// The fake with everything that a loader exports.
pub(crate) fn whole() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("whole", &[]))
}

/// The fake, compiled with more options, as the library of this name.
pub(crate) fn build(name: &str, defines: &[&str]) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libfake_opencl_{name}.so"));
    let mut arguments = vec!["-shared", "-fPIC", "-fvisibility=hidden"];
    arguments.extend(defines);
    let sources = sources(|source| source != "self_test.c");
    if !is_newer(&library) {
        compile(&library, &arguments, &sources);
    }
    library
}

/// True when a file was made after all of the fake's files.
fn is_newer(made: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let Ok(made) = time(made) else { return false };
    let entries = fs::read_dir(folder()).expect("the fake's folder can be listed");
    let mut times = entries.map(|entry| entry.and_then(|entry| time(&entry.path())));
    times.all(|source| source.is_ok_and(|source| source < made))
}

/// The C files whose names are wanted.
pub(crate) fn sources(is_wanted: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the fake's folder can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "c");
    let mut found: Vec<_> = paths
        .filter(is_source)
        .filter(|path| is_wanted(path.file_name().expect("a file has a name")))
        .collect();
    found.sort();
    found
}

/// Compiles files into `target`, which appears whole or not at all: other processes build it too.
pub(crate) fn compile(target: &Path, arguments: &[&str], sources: &[PathBuf]) {
    let mine = target.with_extension(format!("{}.tmp", std::process::id()));
    let mut command = Command::new("cc");
    command.args(FLAGS).args(arguments).arg("-o").arg(&mine).args(sources);
    let output = command.output().expect("a C compiler is needed: cc");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the fake does not compile:\n{text}");
    fs::rename(&mine, target).expect("what was built can be renamed");
}
