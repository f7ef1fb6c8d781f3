//! The kind in C: built by the house's C compiler, loaded as a library, and passed through the kit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use accelrt::backend::contract::Backend;
use accelrt::kinds::KindLibrary;
use accelrt::{Config, Error, Runtime};

/// Compiles the library once, under a name that no other process writes.
fn library() -> &'static str {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let name = format!("libnpu_{}.so", std::process::id());
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"];
        let status = Command::new("cc")
            .args(flags)
            .args(["-shared", "-fPIC", "-fvisibility=default", "-pthread", "-I"])
            .arg(folder.join("../../include"))
            .arg(folder.join("c/npu.c"))
            .arg("-o")
            .arg(&made)
            .status();
        assert!(status.expect("there is a C compiler").success());
        made
    });
    built.to_str().expect("a path in UTF-8")
}

fn opened() -> &'static KindLibrary {
    static OPENED: OnceLock<KindLibrary> = OnceLock::new();
    // SAFETY: the library keeps the contract of its header, which the kit proves.
    OPENED.get_or_init(|| unsafe { KindLibrary::open(library()) }.unwrap())
}

fn npu() -> Arc<dyn Backend> {
    opened().backend().unwrap()
}

accelrt_testing::conformance!(kit, npu());

#[test]
fn a_loaded_kind_is_used_as_ours_are() -> Result<(), Error> {
    opened().register()?;
    let runtime = Runtime::new(Config::default())?;
    let device = "npu:1".parse()?;
    let (produce, consume) = (runtime.stream(device)?, runtime.stream(device)?);
    let (first, second) = (runtime.empty(4096, device)?, runtime.empty(4096, device)?);
    first.fill(7, &produce)?;
    consume.wait_event(&produce.record_event()?)?;
    second.copy_from(&first, &consume)?;
    assert_eq!(second.copy_to_host(vec![0; 4096], &consume)?.wait()?, vec![7; 4096]);
    assert_eq!(runtime.properties(device)?.name, "Example NPU in C");
    Ok(())
}
