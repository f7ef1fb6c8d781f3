//! The promises of the kit: each with its tests, in one list that the macro and the table share.

use crate::conformance::support::Subject;

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
     $($noun:ident { $($text:literal { $($test:ident)* })* })*) => {
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
    (@table $($noun:ident { $($text:literal { $($test:ident)* })* })*) => {
        &[$($($(Promise {
            noun: stringify!($noun),
            test: stringify!($test),
            text: $text,
            run: $crate::conformance::$noun::$test,
        },)*)*)*]
    };
    (@list $($head:tt)*) => {
        $crate::conformance! { $($head)*
            probing {
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
            streams {
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
            marks {
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
            memory {
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
            copies {
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
            virtual_memory {
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
            kernels {
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
            order {
                "programs of the engine leave the bytes of their text" {
                    random_programs_leave_the_bytes_of_their_text
                }
            }
            allocator {
                "the allocator's laws hold on the kind" {
                    buffers_of_policy_native_share_no_byte_and_go_back
                    buffers_of_policy_torch_share_no_byte_and_go_back
                    a_full_device_serves_a_buffer_again_when_others_are_freed
                }
            }
            faults {
                "a failure of any call is told, breaks nothing and leaks nothing" {
                    a_failure_of_any_call_is_told_and_the_next_program_succeeds
                }
            }
            threads {
                "any thread may call anything, and each thread's order is kept" {
                    tasks_from_many_threads_keep_each_threads_order
                    every_method_may_be_called_from_any_thread
                    a_mark_of_one_thread_is_waited_for_by_others
                    streams_wait_for_each_other_without_deadlock
                }
            }
            shutdown {
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
