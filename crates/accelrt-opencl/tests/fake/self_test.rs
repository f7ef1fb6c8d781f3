//! The fake OpenCL loader keeps its promises: the C program `self_test.c`, a process a test.
//!
//! Goal: what tests over the fake say can be believed. Method: the fake is called as a program
//! calls OpenCL, and shown to be late, in order, unreadable, and to count what lives.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::library;

/// The program, linked with the fake.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let fake = library::whole();
        let program = fake.with_file_name("fake_opencl_self_test");
        let folder = fake.parent().expect("a file is in a folder").to_str().expect("plain letters");
        let mut sources = library::sources(|source| source == "self_test.c");
        sources.push(fake.to_owned());
        library::compile(&program, &[&format!("-Wl,-rpath,{folder}")], &sources);
        program
    })
}

fn run(name: &str) {
    let output = Command::new(program()).arg(name).env_remove("FAKE_OPENCL").output();
    let output = output.expect("the self-test starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

macro_rules! self_tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

self_tests! {
    nothing_runs_before_it_is_flushed
    commands_run_later_and_in_order
    the_host_cannot_read_device_memory
    a_wait_list_orders_queues
    calls_fail_as_planned
    a_lost_device_ends_what_is_queued_and_refuses_the_rest
    callbacks_come_from_another_thread_and_late_when_held
    limits_of_memory_are_told_apart
    times_follow_each_other
    kernels_compute_with_device_memory
    unknown_kernels_do_not_build_and_a_log_says_why
    a_rule_that_is_broken_is_counted
    a_vendor_with_threads_does_not_answer_in_a_child
}
