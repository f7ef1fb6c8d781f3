/* What tests of the C interface share: checks, threads, a gate for tasks. */
#ifndef CHECK_H
#define CHECK_H

#include <accelrt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the process with the place and the last error. */
#define FAIL(...)                                                                                  \
        do {                                                                                       \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, " (last error: %s)\n", accelrt_error_text());                              \
        exit(1);                                                                                   \
    } while (0)

#define ASSERT(condition)                                                                          \
        do {                                                                                       \
        if (!(condition)) FAIL("not true: %s", #condition);                                        \
    } while (0)

/* A call that succeeds. */
#define OK(call)                                                                                   \
        do {                                                                                       \
        accelrt_status status_ = (call);                                                           \
        if (status_ != ACCELRT_STATUS_OK) FAIL("%s returned %d", #call, (int)status_);             \
    } while (0)

/* A call that fails with a status, and with a text that has a word in it. */
#define FAILS(call, expected, word)                                                                \
        do {                                                                                       \
        accelrt_status status_ = (call);                                                           \
        if (status_ != ACCELRT_STATUS_##expected) FAIL("%s returned %d", #call, (int)status_);     \
        if (accelrt_error_status() != status_) FAIL("%s: another last error", #call);              \
        if (!strstr(accelrt_error_text(), word)) FAIL("%s: no \"%s\"", #call, word);               \
    } while (0)

static const accelrt_device cpu = {ACCELRT_CPU, 0};

/* A task that waits until it may end. */
typedef struct gate gate;
gate *gate_shut(accelrt_stream *stream);
void gate_open(gate *gate);

/* Tests, by name. */
#define TESTS(X)                                                                                   \
    X(versions_and_the_table_agree)                                                                \
    X(settings_before_the_first_use_count)                                                         \
    X(a_wrong_setting_fails_the_first_use)                                                         \
    X(devices_are_counted_named_and_made_current)                                                  \
    X(streams_run_tasks_in_order_behind_events)                                                    \
    X(a_stream_has_one_handle_which_counts)                                                        \
    X(waits_have_limits)                                                                           \
    X(an_event_tells_when_it_was_passed)                                                           \
    X(data_is_dropped_once_whatever_becomes_of_the_task)                                           \
    X(a_failed_task_fails_its_stream_with_its_text)                                                \
    X(buffers_are_copied_filled_and_viewed)                                                        \
    X(memory_of_a_use_stays_until_the_task_has_run)                                                \
    X(host_memory_is_given_back_behind_its_copy)                                                   \
    X(addresses_are_copied_and_filled)                                                             \
    X(stale_handles_are_errors)                                                                    \
    X(null_is_an_error)                                                                            \
    X(counts_that_no_array_has_are_errors)                                                         \
    X(structs_of_other_versions_are_filled_as_far_as_both_go)                                      \
    X(errors_belong_to_their_thread)                                                               \
    X(handles_come_and_go_on_many_threads)                                                         \
    X(a_forked_child_is_refused)                                                                   \
    X(what_comes_behind_the_shutdown_is_refused)                                                   \
    X(memory_is_allocated_and_found_by_its_address)                                                \
    X(statistics_count_what_is_allocated)                                                          \
    X(limits_and_settings_hold)                                                                    \
    X(a_snapshot_has_segments_and_blocks)                                                          \
    X(a_history_tells_what_allocators_did)                                                         \
    X(the_log_tells_what_ran)                                                                      \
    X(generators_give_the_same_bits_everywhere)                                                    \
    X(kernels_are_compiled_and_launched)                                                           \
    X(a_stream_of_the_driver_is_wrapped)                                                           \
    X(a_lost_device_is_lost_for_good)                                                              \
    X(a_kind_is_registered_by_its_table)                                                           \
    X(a_kind_is_loaded_from_its_library)                                                           \
    X(a_kind_that_comes_too_late_is_refused)                                                       \
    X(the_environment_brings_a_kind)                                                               \
    X(a_wrong_kind_of_the_environment_fails_the_first_use)                                         \
    X(a_deferred_task_is_finished_by_another_thread)                                               \
    X(a_described_task_has_its_name_and_memory_in_the_log)                                         \
    X(tasks_that_block_do_not_hold_back_other_streams)                                             \
    X(handles_may_be_destroyed_while_their_call_is_throttled)                                      \
    X(a_log_holds_at_most_its_records)                                                             \
    X(a_pool_serves_the_threads_inside_of_it)                                                      \
    X(tags_say_what_memory_is_for)                                                                 \
    X(an_observer_is_told_of_shortages)                                                            \
    X(pools_have_their_options)

#define DECLARE(name) void name(void);
TESTS(DECLARE)
#undef DECLARE

#endif
