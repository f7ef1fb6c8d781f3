//! The conformance suite: what every backend has to do, written against the contract alone.
//!
//! A maker of a device writes a [`support::Subject`] and instantiates the suite with it in the same
//! file. No test dereferences an address: contents are checked where the subject can look at host
//! memory, and the same calls are made without a look where it cannot. Work is waited for with
//! channels, marks by asking the backend; nothing here reads a clock but for a deadline that is
//! never reached.

mod copies;
#[cfg(feature = "xpu")]
#[path = "../fake_opencl/fake.rs"]
mod fake;
mod kernels;
#[cfg(feature = "xpu")]
#[path = "../fake_opencl/library.rs"]
mod library;
mod marks;
mod memory;
#[path = "../common/pattern.rs"]
mod pattern;
mod probing;
mod shutdown;
mod streams;
mod support;
mod threads;
#[path = "../common/trusted.rs"]
mod trusted;
mod virtual_memory;
#[path = "../common/watchdog.rs"]
mod watchdog;

use accelrt::{Result, backend};

/// One test function for each test of the suite, on a fresh subject each.
macro_rules! tests_on {
    ($make:expr, $attribute:meta; $($noun:ident { $($test:ident)* })*) => {
        $(mod $noun {
            $(#[test]
            #[$attribute]
            fn $test() {
                crate::watchdog::finishes_within(crate::support::HANG, || {
                    let subject = $make;
                    crate::$noun::$test(&subject);
                    crate::support::finish(&subject);
                });
            })*
        })*
    };
}

/// The whole suite as the tests of one module: `conformance!(name, expression of a subject)`, with
/// an attribute for each test where a third argument says so.
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        conformance!($name, $make, cfg(test));
    };
    ($name:ident, $make:expr, $attribute:meta) => {
        mod $name {
            tests_on! { $make, $attribute;
                probing {
                    a_kind_has_devices_that_can_be_counted
                    a_device_says_what_it_is
                    memory_info_agrees_with_the_properties
                    priorities_go_from_the_first_to_the_last_through_zero
                    probing_changes_nothing
                }
                streams {
                    live_streams_of_a_driver_have_handles_of_their_own
                    a_stream_can_have_any_priority_of_its_range
                    a_fresh_stream_is_idle
                    submitted_work_runs_where_the_kind_says
                    submitted_work_runs_in_order_on_a_kind_that_uses_the_calling_thread
                    tasks_of_one_stream_run_in_order
                    every_work_runs_exactly_once
                    resumed_work_never_runs_on_the_callers_stack
                    work_that_resumes_another_does_not_execute_it
                    a_stream_is_idle_after_a_synchronise
                    a_stream_becomes_idle_by_being_asked
                    a_stream_can_be_given_back_right_behind_its_submissions
                    native_handles_come_back_as_the_same_stream_or_are_unsupported
                }
                marks {
                    a_mark_becomes_done_by_being_asked
                    a_mark_that_was_waited_for_is_done_and_stays_so
                    marks_of_one_stream_complete_in_order
                    a_wait_for_a_later_mark_completes_the_earlier_ones
                    a_mark_behind_a_wait_is_never_done_before_what_it_waits_for
                    waits_are_transitive_across_streams_and_devices
                    a_stream_may_wait_for_its_own_mark
                    a_wait_outlives_the_mark_it_was_made_with
                    a_callback_comes_exactly_once
                    callbacks_come_once_each_when_registered_from_many_threads
                    a_callback_comes_also_when_the_mark_is_given_back_first
                    a_mark_can_be_given_back_at_any_time
                    elapsed_time_is_not_negative_and_adds_up
                    elapsed_time_across_a_wait_is_not_negative
                }
                memory {
                    allocations_are_aligned_as_asked
                    live_allocations_do_not_overlap
                    every_address_of_an_allocation_has_its_owner
                    host_memory_has_an_owner_that_says_so
                    shared_memory_is_there_where_the_properties_say_so
                    memory_of_others_has_no_owner
                    free_memory_comes_back_with_a_release
                    too_much_is_refused_with_true_numbers
                    a_full_device_serves_again_after_a_release
                    devices_have_capacities_of_their_own
                }
                copies {
                    bytes_survive_the_way_through_a_device
                    odd_sizes_and_offsets_touch_nothing_else
                    a_fill_sets_its_range_and_nothing_else
                    copies_of_one_stream_run_in_order
                    copies_across_streams_run_in_the_order_of_their_waits
                    bytes_go_from_device_to_device
                    the_host_and_a_device_see_the_same_bytes_of_shared_memory
                }
                virtual_memory {
                    a_reservation_takes_addresses_and_no_memory
                    physical_memory_counts_against_the_capacity
                    too_much_physical_memory_is_refused_with_true_numbers
                    mapped_pages_have_an_owner_where_they_are
                    pages_keep_their_bytes_while_they_move
                    pages_that_touch_are_one_range
                    a_place_is_used_again_after_its_page_left
                }
                kernels {
                    a_program_has_the_kernels_of_its_text
                    a_text_that_is_no_program_is_refused_with_the_compilers_words
                    a_binary_that_is_none_is_refused
                    launches_of_one_stream_run_in_order
                    a_launch_takes_memory_values_and_memory_of_its_groups
                    kernels_may_be_given_back_before_their_launches_are_done
                    one_kernel_is_launched_from_many_threads_with_arguments_of_their_own
                }
                threads {
                    tasks_from_many_threads_keep_each_threads_order
                    every_method_may_be_called_from_any_thread
                    a_mark_of_one_thread_is_waited_for_by_others
                    streams_wait_for_each_other_without_deadlock
                }
                shutdown {
                    an_unused_backend_stops
                    a_second_shutdown_finds_nothing
                    work_before_a_shutdown_runs_or_is_dropped
                    work_after_a_shutdown_is_dropped_or_over_at_once
                    work_resumed_after_a_shutdown_is_not_on_the_callers_stack
                    a_thread_inside_user_code_is_left_alone
                    everything_can_be_given_back_after_a_shutdown
                }
            }
        }
    };
}

// Behind the macros, because these instantiate the suite.
mod cpu_subject;
#[cfg(feature = "xpu")]
mod fake_subject;
mod null_subject;
#[cfg(feature = "xpu")]
mod xpu_subject;
