//! The library for C programs, built as `make build` does, and the compilers that programs need.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What C and C++ programs are compiled with.
const STRICT: [&str; 6] = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder of `libaccelrt.so`, under the name that `make install` gives it: the library that
/// cargo has built for these tests.
pub(crate) fn folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = built_library();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        fs::create_dir_all(&folder).expect("the folder can be made");
        let library = folder.join("libaccelrt.so");
        let mine = folder.join(format!("libaccelrt.so.{}", std::process::id()));
        fs::copy(built, &mine).expect("the library was built");
        fs::rename(&mine, &library).expect("what was copied can be renamed");
        folder
    })
}

/// The file of the library. Flags of a sanitizer, that the tests themselves are built with, are not
/// for a library that C programs link: with flags it is built for these tests alone.
fn built_library() -> PathBuf {
    const FLAGS: [&str; 3] = ["RUSTFLAGS", "RUSTC_BOOTSTRAP", "CARGO_ENCODED_RUSTFLAGS"];
    if FLAGS.iter().all(|flags| std::env::var_os(flags).is_none()) {
        let test = std::env::current_exe().expect("this binary has a path");
        return test.with_file_name("libaccelrt_capi.so");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi_plain");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--lib", "--package", "accelrt-capi"]);
    cargo.arg("--target-dir").arg(&target).current_dir(root());
    for flags in FLAGS {
        cargo.env_remove(flags);
    }
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug/libaccelrt_capi.so")
}

/// Compiles a program of C (`cc`) or C++ (`c++`) from files, and links the library.
pub(crate) fn program(name: &str, flags: &[&str], sources: &[PathBuf]) -> PathBuf {
    let target = folder().join(name);
    let mine = target.with_extension(format!("{}.tmp", std::process::id()));
    let is_cpp = sources.iter().any(|source| source.extension() == Some(OsStr::new("cpp")));
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let mut command = Command::new(compiler);
    command.arg(standard).args(STRICT).args(flags).arg("-I").arg(root().join("include"));
    command.arg("-o").arg(&mine).args(sources).arg("-L").arg(folder());
    command.arg(format!("-Wl,-rpath,{}", folder().to_str().expect("plain letters")));
    command.args(["-laccelrt", "-pthread", "-lm"]);
    let output = command.output().expect("a compiler of C and C++ is needed: cc, c++");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} does not compile:\n{text}");
    fs::rename(&mine, &target).expect("what was built can be renamed");
    target
}

/// The files of a folder with an extension, in the order of their names.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    found.sort();
    found
}

/// Runs a program to its end, which is a success; returns what it has printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{printed}{errors}", output.status);
    printed.into_owned()
}
