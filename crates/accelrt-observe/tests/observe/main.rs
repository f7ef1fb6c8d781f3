//! Observers of whole programs: waits in profiles, and forks while memory is recorded.

use std::time::Duration;

#[path = "../../../../tests/common/child.rs"]
mod child;
mod findings;
mod fork;
#[path = "../../../../tests/common/process.rs"]
mod process;
#[path = "../../../../tests/common/timed_waits.rs"]
mod timed_waits;
mod waits;
#[path = "../../../../tests/common/watchdog.rs"]
mod watchdog;

const HANG: Duration = Duration::from_secs(20);

#[test]
#[ignore = "run by others, in a process of its own"]
fn program() {
    let act = match process::program().as_deref() {
        Some("forks while memory is recorded") => fork::fork_while_memory_is_recorded,
        other => panic!("{other:?} is no program"),
    };
    watchdog::finishes_within(HANG, act);
}
