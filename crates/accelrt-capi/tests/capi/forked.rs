//! Every function in a forked child: it answers or refuses, and takes no lock.
//!
//! Goal: a child hangs in no call, whatever the threads of its parent held at the fork. Method: the
//! functions and their parameters are read from `include/accelrt.h`, and are called with live
//! handles. In debug builds a lock that is taken in a child panics, which a call reports.

use std::collections::BTreeMap;
use std::process::Command;

use crate::child::{End, in_child};
use crate::handles::{Header, OK};
use crate::library::run as run_program;
use crate::outputs::World;

const FORKED: i32 = 14;

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
    in_child(End { runs_handlers: true }, || {
        let mut statuses = BTreeMap::new();
        // What destroys comes last: the others need its objects.
        let (last, first): (Vec<_>, Vec<_>) = header
            .functions
            .iter()
            .partition(|it| it.name.ends_with("_destroy") || it.name == "completion_finish");
        for function in first.into_iter().chain(last) {
            let status = world.call(header, function);
            statuses.insert(function.name.as_str(), status);
        }
        let wrong = statuses.iter().filter(|(_, status)| ![OK, FORKED].contains(status));
        let wrong: Vec<_> = wrong.collect();
        let answered = statuses.iter().filter(|(_, status)| **status == OK);
        let answered: Vec<_> = answered.map(|(name, _)| *name).collect();
        assert!(wrong.is_empty(), "{wrong:?}\nanswered: {answered:?}");
        assert_eq!(answered, ANSWERED);
    });
}

/// The calls that a child may make.
const ANSWERED: [&str; 0] = [];
