//! The C interface, as C programs see it: the tests of `*.c`, and the programs of `examples/c`.
//!
//! Goal: what `include/accelrt.h` says of each function is true. Method: the library is built as a
//! user builds it; one C program with all tests is linked to it, strictly compiled, and runs each
//! test in a process of its own, plainly and under the address sanitizer. So do the examples.

#[path = "../../../../tests/common/child.rs"]
mod child;
#[path = "../../../accelrt-opencl/tests/fake_opencl/library.rs"]
mod fake_opencl;
mod forked;
mod handles;
mod library;
#[path = "../../../../tests/common/numbers.rs"]
mod numbers;
mod outputs;
#[path = "../../../../tests/common/seed.rs"]
mod seed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use library::{files, folder, program, root, run};

/// What the second builds are compiled with. Leaks too are failures.
const SANITIZED: [&str; 2] = ["-fsanitize=address", "-fno-omit-frame-pointer"];

/// The test that forks: what threads held that its child lacks counts as leaked there.
const FORKS: &str = "a_forked_child_is_refused";

/// A kind of device from outside, in C.
const NPU: &str = "examples/device/c/npu.c";

/// The tests that load it as a library, with what the environment says of it.
const WITH_LIBRARY: [(&str, bool); 3] = [
    ("a_kind_is_loaded_from_its_library", false),
    ("a_kind_that_comes_too_late_is_refused", false),
    ("the_environment_brings_a_kind", true),
];

/// The C program, plain and sanitized.
fn tests(is_sanitized: bool) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    BUILT[usize::from(is_sanitized)].get_or_init(|| {
        let version = concat!("-DVERSION=\"", env!("CARGO_PKG_VERSION"), "\"");
        let mut flags = vec![version];
        flags.extend(SANITIZED.iter().filter(|_| is_sanitized));
        let name = if is_sanitized { "tests_sanitized" } else { "tests_plain" };
        let mut sources = files(&root().join("crates/accelrt-capi/tests/capi"), "c");
        sources.push(root().join(NPU));
        program(name, &flags, &sources)
    })
}

/// The kind in C as a library.
fn npu_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| program("libnpu.so", &["-shared", "-fPIC"], &[root().join(NPU)]))
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["ACCELRT_ACCELERATOR", "ACCELRT_CPU_DEVICES", "ACCELRT_OPENCL_LIBRARY"] {
        command.env_remove(name);
    }
    // Of cargo: there may be another library of this name, as Python's module.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// What the fake OpenCL is told for the tests that need a driver.
const ON_FAKE: [(&str, &str); 3] = [
    ("kernels_are_compiled_and_launched", "strict=1"),
    ("a_stream_of_the_driver_is_wrapped", "strict=1"),
    ("a_lost_device_is_lost_for_good", "strict=1,lose=after:9"),
];

fn run_test(name: &str) {
    for is_sanitized in [false, true] {
        let mut command = command(tests(is_sanitized));
        if let Some((_, settings)) = ON_FAKE.iter().find(|(test, _)| *test == name) {
            command.env("ACCELRT_OPENCL_LIBRARY", fake_opencl::whole());
            command.env("FAKE_OPENCL", settings);
        }
        if let Some((_, is_named)) = WITH_LIBRARY.iter().find(|(test, _)| *test == name) {
            command.env("TEST_NPU_LIBRARY", npu_library());
            if *is_named {
                command.env("ACCELRT_KINDS", format!("npu={}", npu_library().display()));
                command.env("ACCELRT_ACCELERATOR", "npu");
            }
        }
        if is_sanitized && name == FORKS {
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        run(command.arg(name));
    }
}

macro_rules! c_tests {
    ($(fn $name:ident;)*) => {
        $(#[test]
        fn $name() {
            run_test(stringify!($name));
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

c_tests! {
    fn versions_and_the_table_agree;
    fn settings_before_the_first_use_count;
    fn a_wrong_setting_fails_the_first_use;
    fn devices_are_counted_named_and_made_current;
    fn streams_run_tasks_in_order_behind_events;
    fn a_stream_has_one_handle_which_counts;
    fn waits_have_limits;
    fn an_event_tells_when_it_was_passed;
    fn data_is_dropped_once_whatever_becomes_of_the_task;
    fn a_failed_task_fails_its_stream_with_its_text;
    fn buffers_are_copied_filled_and_viewed;
    fn memory_of_a_use_stays_until_the_task_has_run;
    fn host_memory_is_given_back_behind_its_copy;
    fn addresses_are_copied_and_filled;
    fn stale_handles_are_errors;
    fn null_is_an_error;
    fn counts_that_no_array_has_are_errors;
    fn structs_of_other_versions_are_filled_as_far_as_both_go;
    fn errors_belong_to_their_thread;
    fn handles_come_and_go_on_many_threads;
    fn a_forked_child_is_refused;
    fn what_comes_behind_the_shutdown_is_refused;
    fn memory_is_allocated_and_found_by_its_address;
    fn statistics_count_what_is_allocated;
    fn limits_and_settings_hold;
    fn a_snapshot_has_segments_and_blocks;
    fn a_history_tells_what_allocators_did;
    fn the_log_tells_what_ran;
    fn generators_give_the_same_bits_everywhere;
    fn kernels_are_compiled_and_launched;
    fn a_stream_of_the_driver_is_wrapped;
    fn a_lost_device_is_lost_for_good;
    fn a_kind_is_registered_by_its_table;
    fn a_kind_is_loaded_from_its_library;
    fn a_kind_that_comes_too_late_is_refused;
    fn the_environment_brings_a_kind;
    fn a_wrong_kind_of_the_environment_fails_the_first_use;
    fn a_deferred_task_is_finished_by_another_thread;
    fn a_described_task_has_its_name_and_memory_in_the_log;
    fn tasks_that_block_do_not_hold_back_other_streams;
    fn handles_may_be_destroyed_while_their_call_is_throttled;
    fn a_log_holds_at_most_its_records;
    fn a_pool_serves_the_threads_inside_of_it;
    fn tags_say_what_memory_is_for;
    fn an_observer_is_told_of_shortages;
    fn pools_have_their_options;
}

#[test]
fn every_test_of_the_program_is_run() {
    let listed = run(&mut command(tests(false)));
    assert_eq!(listed.lines().collect::<Vec<_>>(), NAMES);
}

#[test]
fn the_program_of_the_documentation_runs() {
    let page = fs::read_to_string(root().join("docs/c.md")).expect("docs/c.md can be read");
    let code = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = folder().join("documentation.c");
    fs::write(&source, code.expect("it has a first program")).expect("a file can be written");
    let printed = run(&mut command(&program("documentation", &SANITIZED, &[source])));
    assert!(
        printed.starts_with("a worker runs this\nthe bytes are there: loading took "),
        "{printed}"
    );
}

#[test]
fn the_examples_compute_what_they_say() {
    for extension in ["c", "cpp"] {
        for example in files(&root().join("examples/c"), extension) {
            let name = example.file_stem().and_then(|name| name.to_str()).expect("plain letters");
            for (kind, flags) in [("plain", &[][..]), ("sanitized", &SANITIZED)] {
                let name = format!("example_{name}_{extension}_{kind}");
                run(&mut command(&program(&name, flags, std::slice::from_ref(&example))));
            }
        }
    }
    assert!(folder().join("example_two_streams_c_plain").exists());
}
