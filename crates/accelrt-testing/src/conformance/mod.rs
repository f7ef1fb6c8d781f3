//! The conformance kit: proves that a kind of device does what the contract says.
//!
//! A maker of a device gives the kit a fresh backend for each test, and has a test for each promise
//! of [`contract`](accelrt::backend::contract), written against the contract alone:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use accelrt::backend::contract::Backend;
//! # use accelrt_testing::null::{NullBackend, NullConfig};
//! # fn backend() -> Arc<dyn Backend> { NullBackend::new(NullConfig::default()) }
//! // In a file of `tests/`: one `#[test]` for each promise, in a module of this name.
//! accelrt_testing::conformance!(npu, backend());
//!
//! // In a program: the same as a table of promises, tests, and what is wrong.
//! fn main() {
//!     print!("{}", accelrt_testing::conformance::report(backend));
//! }
//! ```
//!
//! No test dereferences an address of a device: contents are seen through copies to host memory.
//! Work is waited for with channels, marks by asking the backend; nothing reads a clock but for a
//! deadline that only a hang reaches. `docs/devices.md` walks through the contract.

mod commands;
mod engine;
mod memory;
mod streams;
mod support;
mod threads;

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fmt, thread};

pub use support::Subject;

/// A test of the kit, with what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    noun: &'static str,
    test: &'static str,
    text: &'static str,
    run: fn(&Subject),
}

impl Promise {
    /// The promise in words; several tests may share one.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The name of the test, as in `marks::a_callback_comes_exactly_once`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}::{}", self.noun, self.test)
    }

    pub(crate) fn run(&self, subject: &Subject) {
        (self.run)(subject);
    }
}

/// Makes a module with one test function for each promise of the kit:
/// `conformance!(module, expression)`, or `conformance!(module, expression, attribute)` with an
/// attribute for each test, as `ignore = "needs a board"`.
///
/// The expression makes a fresh backend or [`Subject`] for each test.
///
/// ```
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// accelrt_testing::conformance!(null, NullBackend::new(NullConfig::default()));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        $crate::conformance!($name, $make, cfg(test));
    };
    ($name:ident, $make:expr, $attribute:meta) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "the expression may name nothing of the file")]
            use super::*;
            $crate::conformance!(@list @tests $make, $attribute;);
        }
    };
    (@tests $make:expr, $attribute:meta;
     $($noun:ident in $file:ident { $($text:literal { $($test:ident)* })* })*) => {
        $(mod $noun {
            #[allow(unused_imports, reason = "as above")]
            use super::*;
            $($(
                #[test]
                #[$attribute]
                fn $test() {
                    $crate::conformance::check(
                        concat!(stringify!($noun), "::", stringify!($test)),
                        || $make,
                    );
                }
            )*)*
        })*
    };
    (@table $($noun:ident in $file:ident { $($text:literal { $($test:ident)* })* })*) => {
        &[$($($(Promise {
            noun: stringify!($noun),
            test: stringify!($test),
            text: $text,
            run: $crate::conformance::$file::$test,
        },)*)*)*]
    };
    // The promises: each noun, the file with its tests, and the tests of each promise.
    (@list $($head:tt)*) => {
        $crate::conformance! { $($head)*
            probing in streams {
                "a kind tells what it has before anything is used" {
                    a_kind_has_devices_that_can_be_counted
                    a_device_says_what_it_is
                    memory_info_agrees_with_the_properties
                    priorities_go_from_the_first_to_the_last_through_zero
                }
                "asking what exists changes nothing" {
                    probing_changes_nothing
                }
            }
            streams in streams {
                "a stream has a handle, any priority of its device, and begins idle" {
                    streams_of_a_driver_have_distinct_handles
                    a_stream_can_have_any_priority_of_its_range
                    a_fresh_stream_is_idle
                }
                "work runs once, in order, on the thread that the kind says" {
                    submitted_work_runs_where_the_kind_says
                    submitted_work_runs_in_order_on_a_kind_that_uses_the_calling_thread
                    tasks_of_one_stream_run_in_order
                    every_work_runs_exactly_once
                }
                "resumed work never runs on the caller's stack" {
                    resumed_work_never_runs_on_the_callers_stack
                    work_that_resumes_another_does_not_execute_it
                }
                "a stream is idle when its work is done, and may be given back before" {
                    a_stream_is_idle_after_a_synchronise
                    a_stream_becomes_idle_by_being_asked
                    a_stream_can_be_given_back_right_behind_its_submissions
                }
                "native handles name the same stream, or are unsupported" {
                    native_handles_come_back_as_the_same_stream_or_are_unsupported
                }
            }
            marks in streams {
                "a mark is reached behind the work before it, and stays so" {
                    a_mark_becomes_done_by_being_asked
                    a_mark_that_was_waited_for_remains_done
                    marks_of_one_stream_complete_in_order
                    a_wait_for_a_later_mark_completes_the_earlier_ones
                }
                "a wait orders streams, through others and without its mark" {
                    a_mark_behind_a_wait_is_never_done_before_what_it_waits_for
                    waits_are_transitive_across_streams_and_devices
                    a_stream_may_wait_for_a_mark_of_itself
                    a_wait_outlives_the_mark_it_was_made_with
                }
                "a callback comes exactly once" {
                    a_callback_comes_exactly_once
                    callbacks_come_once_each_when_registered_from_many_threads
                    a_callback_comes_also_when_the_mark_is_given_back_first
                }
                "a callback may wait for its stream and give it back" {
                    a_callback_may_wait_for_its_stream_and_give_it_back
                }
                "a mark can be given back at any time" {
                    a_mark_can_be_given_back_at_any_time
                }
                "time between marks goes forward" {
                    elapsed_time_is_not_negative_and_adds_up
                    elapsed_time_across_a_wait_is_not_negative
                }
            }
            memory in memory {
                "memory is aligned, and nobody else's" {
                    allocations_are_aligned_as_asked
                    allocations_do_not_overlap
                }
                "an address is known with its allocation, and a strange one is not" {
                    every_address_of_an_allocation_has_its_owner
                    host_memory_has_an_owner_that_says_so
                    memory_of_others_has_no_owner
                }
                "shared memory is where the properties say so" {
                    shared_memory_is_there_where_the_properties_say_so
                }
                "free memory is told truly; a refusal takes nothing" {
                    free_memory_comes_back_with_a_release
                    too_much_is_refused_with_true_numbers
                    a_full_device_serves_again_after_a_release
                    devices_have_separate_capacities
                }
            }
            copies in commands {
                "a copy or a fill changes its bytes and no others" {
                    bytes_survive_the_way_through_a_device
                    odd_sizes_and_offsets_touch_nothing_else
                    a_fill_sets_its_range_and_nothing_else
                }
                "copies run in the order of streams and waits" {
                    copies_of_one_stream_run_in_order
                    copies_across_streams_run_in_the_order_of_their_waits
                    a_copy_behind_a_wait_has_the_bytes_of_the_copy_before_the_mark
                }
                "what is done has its bytes where they belong" {
                    copies_before_a_mark_that_is_done_have_arrived
                    copies_before_a_callback_have_arrived
                    copies_of_a_stream_that_is_idle_have_arrived
                }
                "bytes go between devices, and to the host" {
                    bytes_go_from_device_to_device
                    the_host_and_a_device_see_the_same_bytes_of_shared_memory
                }
            }
            virtual_memory in memory {
                "reserving takes addresses, physical memory counts" {
                    a_reservation_takes_addresses_and_no_memory
                    physical_memory_counts_against_the_capacity
                    too_much_physical_memory_is_refused_with_true_numbers
                }
                "pages are where they are mapped, with their bytes" {
                    mapped_pages_have_an_owner_where_they_are
                    several_pages_come_and_move_in_one_call
                    pages_keep_their_bytes_while_they_move
                    pages_that_touch_are_one_range
                    a_place_is_used_again_after_its_page_left
                }
            }
            kernels in commands {
                "a program is compiled, or refused with the compiler's words" {
                    a_program_has_the_kernels_of_its_text
                    a_text_that_is_no_program_is_refused_with_the_compilers_words
                    a_binary_that_is_none_is_refused
                }
                "launches get their arguments, in order" {
                    launches_of_one_stream_run_in_order
                    a_launch_takes_memory_values_and_memory_of_its_groups
                    kernels_may_be_given_back_before_their_launches_are_done
                    one_kernel_is_launched_from_many_threads_with_separate_arguments
                }
            }
            order in engine {
                "programs of the engine leave the bytes of their text" {
                    random_programs_leave_the_bytes_of_their_text
                }
            }
            allocator in engine {
                "the allocator's laws hold on the kind" {
                    buffers_of_policy_native_share_no_byte_and_go_back
                    buffers_of_policy_torch_share_no_byte_and_go_back
                    a_full_device_serves_a_buffer_again_when_others_are_freed
                }
            }
            faults in engine {
                "a failure of any call is told, breaks nothing and leaks nothing" {
                    a_failure_of_any_call_is_told_and_the_next_program_succeeds
                }
            }
            threads in threads {
                "any thread may call anything, and each thread's order is kept" {
                    tasks_from_many_threads_keep_each_threads_order
                    every_method_may_be_called_from_any_thread
                    a_mark_of_one_thread_is_waited_for_by_others
                    streams_wait_for_each_other_without_deadlock
                }
            }
            shutdown in threads {
                "a shutdown ends what is left, once, by its deadline" {
                    an_unused_backend_stops
                    a_second_shutdown_finds_nothing
                    work_before_a_shutdown_runs_or_is_dropped
                    a_thread_inside_user_code_continues
                }
                "what comes after a shutdown neither hangs nor fails" {
                    work_after_a_shutdown_is_dropped_or_over_at_once
                    work_resumed_after_a_shutdown_is_not_on_the_callers_stack
                    everything_can_be_given_back_after_a_shutdown
                }
            }
        }
    };
}

const PROMISES: &[Promise] = crate::conformance!(@list @table);

/// Every test of the kit, in the order in which [`report`](crate::conformance::report()) runs them.
pub fn promises() -> impl Iterator<Item = Promise> {
    PROMISES.iter().copied()
}

/// A promise, and why a test of it was not passed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The promise and the name of its test.
    pub promise: Promise,
    /// What the test said; `None` when it passed.
    pub why_not: Option<String>,
}

/// What a kind does of what the contract says. `Display` makes a table: promise, test, and `passed`
/// or why not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KitReport {
    /// One a test, in the order of [`promises`].
    pub outcomes: Vec<Verdict>,
}

impl KitReport {
    /// True when every test passed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.failed().is_empty()
    }

    /// The names of the tests that were not passed.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        let failed = self.outcomes.iter().filter(|outcome| outcome.why_not.is_some());
        failed.map(|outcome| outcome.promise.name()).collect()
    }
}

impl fmt::Display for KitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: fn(&Promise) -> usize| {
            self.outcomes.iter().map(|outcome| of(&outcome.promise)).max().unwrap_or(0)
        };
        let wide = widest(|it| it.text().len());
        let test_wide = widest(|it| it.name().len());
        writeln!(f, "{:wide$}  {:test_wide$}  outcome", "promise", "test")?;
        let mut last = "";
        for Verdict { promise: it, why_not } in &self.outcomes {
            let words = if it.text() == last { "" } else { it.text() };
            last = it.text();
            // A table has one line a test: the rest of a message stands in the test's own output.
            let why_not = why_not.as_deref().map(|text| text.replace('\n', " "));
            let outcome = why_not.as_deref().unwrap_or("passed");
            writeln!(f, "{words:wide$}  {:test_wide$}  {outcome}", it.name())?;
        }
        let (count, failed) = (self.outcomes.len(), self.failed().len());
        writeln!(f, "{} of {count} tests passed", count - failed)
    }
}

/// Far beyond what any test takes: only a hang lasts as long. The clock goes on while a process or
/// its whole machine is stopped; a stop takes one of the seconds.
const HANG_S: u32 = 60;

type Panic = Box<dyn Any + Send>;

/// How a test ended.
enum End {
    Passed,
    Panicked(Panic),
    /// The test's thread is left alone.
    Hangs,
}

/// Makes a fresh subject in a thread of its own and runs a test on it.
fn run<S: Into<Subject>>(promise: Promise, make: impl FnOnce() -> S + Send + 'static) -> End {
    let (done, over) = mpsc::channel::<()>();
    let test = move || {
        let _done = done;
        let subject = make().into();
        promise.run(&subject);
        subject.finish();
    };
    let name = promise.name();
    let thread = thread::Builder::new().name(name).spawn(test).expect("a thread can be started");
    for _ in 0..HANG_S {
        if over.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
            return thread.join().map_or_else(End::Panicked, |()| End::Passed);
        }
    }
    End::Hangs
}

/// Finds a test by its noun and name, as in `marks::a_callback_comes_exactly_once`.
///
/// # Panics
/// When the kit has no such test.
fn find(name: &str) -> Promise {
    let found = promises().find(|promise| promise.name() == name);
    found.unwrap_or_else(|| panic!("the kit has no test {name:?}"))
}

/// Runs one test of the kit, as the functions of [`conformance!`](crate::conformance!) do.
///
/// # Panics
/// When the subject does not keep the promise, when the test hangs, and when the kit has no test of
/// this name.
pub fn check<S: Into<Subject>>(name: &str, make: impl FnOnce() -> S + Send + 'static) {
    match run(find(name), make) {
        End::Passed => {}
        End::Panicked(panic) => resume_unwind(panic),
        End::Hangs => panic!("{name} hangs"),
    }
}

/// Runs one test of the kit, and returns why the subject did not pass it.
///
/// # Panics
/// When the kit has no test of this name.
pub fn verdict<S: Into<Subject>>(
    name: &str,
    make: impl FnOnce() -> S + Send + 'static,
) -> Result<(), String> {
    match run(find(name), make) {
        End::Passed => Ok(()),
        End::Panicked(panic) => Err(text_of(&*panic)),
        End::Hangs => Err(format!("hangs: no end after {HANG_S} s")),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

/// Runs every test of the kit, one after the other, each on a fresh subject. A test that hangs
/// takes a minute; its thread is left alone.
pub fn report<S: Into<Subject>>(make: impl Fn() -> S + Clone + Send + 'static) -> KitReport {
    let each = promises().map(|promise| {
        let why_not = verdict(&promise.name(), make.clone()).err();
        Verdict { promise, why_not }
    });
    KitReport { outcomes: each.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::{NullBackend, NullConfig};

    fn null() -> Subject {
        NullBackend::new(NullConfig::default()).into()
    }

    #[test]
    fn what_a_failed_test_said_stands_in_the_table_beside_its_promise() {
        let outcome = |(promise, failed): (Promise, bool)| Verdict {
            promise,
            why_not: failed.then(|| "left: 1\nright: 2".to_owned()),
        };
        let outcomes = promises().zip([false, true, false]).map(outcome).collect();
        let report = KitReport { outcomes };
        let table = report.to_string();
        let lines: Vec<&str> = table.lines().collect();
        let [first, second] = [0, 1].map(|place| promises().nth(place).unwrap());
        assert!(lines[1].contains(first.text()) && lines[1].contains(&first.name()), "{table}");
        assert!(lines[1].ends_with("  passed"), "{table}");
        assert!(lines[2].contains(&second.name()), "{table}");
        assert!(lines[2].ends_with("  left: 1 right: 2"), "{table}");
        assert_eq!(lines.last(), Some(&"2 of 3 tests passed"));
        assert_eq!((report.is_passed(), report.failed().len()), (false, 1));
    }

    #[test]
    fn a_check_at_the_end_of_a_test_is_a_part_of_it() {
        let name = "streams::a_fresh_stream_is_idle";
        assert_eq!(verdict(name, null), Ok(()));
        let leaky = || null().with_end_check(|| panic!("one stream is left"));
        assert_eq!(verdict(name, leaky), Err("one stream is left".to_owned()));
    }

    #[test]
    #[should_panic(expected = "the kit has no test \"streams::nothing\"")]
    fn a_test_that_the_kit_does_not_have_is_no_passed_test() {
        check("streams::nothing", null);
    }
}
