//! Forks while memory is recorded: a child ends what its parent began, and begins the same.
//!
//! Method: threads hold the locks of names, allocators and the log most of the time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use accelrt::{Config, Device, Runtime};
use accelrt_observe::memory_history::{MemoryHistory, memory_tag};
use accelrt_observe::profiler::{Profile, ProfileOptions, record_function};

use crate::child::{self, End};
use crate::process;

const FORKS: usize = 40;
const CPU: Device = Device::cpu(0);

#[test]
fn a_child_forked_while_memory_is_recorded_and_named_does_not_hang() {
    let output = process::run("program", "forks while memory is recorded", &[]);
    assert_eq!(process::stderr_of_success(&output), "");
}

fn profile(runtime: &Runtime) -> Profile {
    let mut options = ProfileOptions::default();
    options.has_memory = true;
    Profile::with_options(runtime, &options)
}

fn fork_often(runtime: &Runtime) {
    let is_silent = |history: &MemoryHistory| history.events(CPU).is_empty();
    for _ in 0..FORKS {
        let (begun, history) = (profile(runtime), MemoryHistory::start(runtime, 100));
        child::in_child(End { runs_handlers: true }, move || {
            drop(memory_tag("of the child"));
            drop(record_function("of the child"));
            assert!(is_silent(&history));
            assert!(begun.stop().streams().is_empty());
            drop(history);
            assert!(is_silent(&MemoryHistory::start(runtime, 100)));
            assert!(profile(runtime).stop().streams().is_empty());
        });
    }
}

pub(crate) fn fork_while_memory_is_recorded() {
    let runtime = Runtime::new(Config::builder().cpu_threads(1).build().unwrap()).unwrap();
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        for name in ["one", "other"] {
            let (runtime, is_over) = (&runtime, &is_over);
            scope.spawn(move || {
                // Relaxed: it orders nothing.
                while !is_over.load(Ordering::Relaxed) {
                    let _tag = memory_tag(name);
                    let _ = runtime.allocator(CPU).unwrap().tag_statistics();
                    drop(record_function(name));
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| fork_often(&runtime)));
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    assert!(outcome.is_ok(), "a child failed");
}
