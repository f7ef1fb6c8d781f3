//! Every function in a forked child: it answers or refuses, and takes no lock.
//!
//! Goal: a child hangs in no call, whatever the threads of its parent held at the fork. Method: the
//! functions and their parameters are read from `include/accelrt.h`, and are called with live
//! handles. In debug builds a lock that is taken in a child panics, which a call reports.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::process::Command;

use crate::child::{End, in_child};
use crate::handles::{Header, OK, create};
use crate::library::run as run_program;
use crate::outputs::World;

const INTERNAL: i32 = 17;

extern "C" fn fail(_data: *mut c_void, _text: *mut c_char, _capacity: usize) -> i32 {
    1
}

#[test]
fn no_call_takes_a_lock_in_a_forked_child() {
    let program = std::env::current_exe().expect("this binary has a path");
    let arguments = ["--exact", "forked::every_call_answers_or_is_refused", "--ignored"];
    let printed = run_program(Command::new(program).args(arguments));
    assert!(printed.contains("1 passed"), "{printed}");
}

#[test]
#[ignore = "run by no_call_takes_a_lock_in_a_forked_child"]
fn every_call_answers_or_is_refused() {
    let header = Header::with_fake();
    let world = World::new(header);
    let mut held = Vec::new();
    create(header, "completion", &mut held);
    let busy = held.iter().find(|(noun, _)| *noun == "stream").expect("its task is held").1;
    let failed = create(header, "stream", &mut held);
    let run = (fail as *const ()).expose_provenance() as u64;
    assert_eq!(header.call("stream_launch", &[failed, run, 0, 0, 0, 0]), OK);
    let (mut is_over, mut info) = (0_i32, [0_u64; 16]);
    while is_over == 0 {
        let to = (&raw mut is_over).expose_provenance() as u64;
        assert_eq!(header.call("stream_query", &[failed, to]), OK);
    }
    in_child(End { runs_handlers: true }, || {
        let mut statuses = BTreeMap::new();
        // What destroys comes last: the others need its objects.
        let (last, first): (Vec<_>, Vec<_>) = header
            .functions
            .iter()
            .filter(|it| !WITHOUT_STATUS.contains(&it.name.as_str()))
            .partition(|it| it.name.ends_with("_destroy") || it.name == "completion_finish");
        for function in first.into_iter().chain(last) {
            statuses.insert(function.name.as_str(), world.call(header, function));
        }
        let mut is_done = 0_u64;
        let to = (&raw mut is_done).expose_provenance() as u64;
        statuses.insert("stream_query of a busy stream", header.call("stream_query", &[busy, to]));
        info[0] = 64;
        let to = (&raw mut info).expose_provenance() as u64;
        statuses.insert(
            "stream_get_info of a failed stream",
            header.call("stream_get_info", &[failed, to]),
        );
        let waited = header.call("stream_synchronize", &[failed, u64::MAX]);
        statuses.insert("stream_synchronize of a failed stream", waited);
        let failed: Vec<_> = statuses.iter().filter(|(_, it)| **it == INTERNAL).collect();
        let answered: Vec<_> =
            statuses.iter().filter(|(_, it)| **it == OK).map(|(name, _)| *name).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(answered, ANSWERED);
    });
}

/// Functions that return no status.
const WITHOUT_STATUS: [&str; 3] = ["abi_version", "error_text", "version"];

/// The calls that a child may make: what asks, and what gives up its handle.
const ANSWERED: [&str; 41] = [
    "buffer_destroy",
    "buffer_get_address",
    "buffer_get_info",
    "device_exchange",
    "device_get_count",
    "device_get_current",
    "device_get_memory",
    "device_get_name",
    "device_get_properties",
    "device_parse",
    "error_clear",
    "error_status",
    "event_destroy",
    "event_query",
    "generator_destroy",
    "history_destroy",
    "kernel_destroy",
    "kernel_get_argument_count",
    "kind_find",
    "kind_get_accelerator",
    "kind_get_name",
    "log_destroy",
    "memory_free",
    "memory_leave_tag",
    "observer_destroy",
    "pool_destroy",
    "pool_get_id",
    "program_destroy",
    "runtime_begin",
    "runtime_get_counters",
    "runtime_query",
    "runtime_shutdown",
    "setting_get",
    "snapshot_destroy",
    "snapshot_get_blocks",
    "snapshot_get_segments",
    "stream_destroy",
    "stream_get_info",
    "stream_get_info of a failed stream",
    "stream_query",
    "stream_query of a busy stream",
];
