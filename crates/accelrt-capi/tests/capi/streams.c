/* Streams and events: order, handles, waits, times. */
#include "check.h"

enum { TASKS = 200 };

typedef struct {
    int *numbers;
    int *count;
    int number;
} append_task;

static int32_t append(void *data, char *error_text, size_t error_capacity)
{
    const append_task *task = data;
    (void)error_text;
    (void)error_capacity;
    task->numbers[(*task->count)++] = task->number;
    return 0;
}

void streams_run_tasks_in_order_behind_events(void)
{
    accelrt_stream *streams[2];
    accelrt_event *event;
    OK(accelrt_stream_create(cpu, 0, &streams[0]));
    OK(accelrt_stream_get_pooled(cpu, -1, &streams[1]));
    OK(accelrt_event_create(0, &event));
    static int numbers[TASKS];
    static append_task tasks[TASKS];
    int count = 0;
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = (append_task){numbers, &count, i};
        accelrt_stream *stream = streams[i % 3 == 0], *next = streams[(i + 1) % 3 == 0];
        OK(accelrt_stream_launch(stream, append, &tasks[i], NULL, NULL, 0));
        if (stream != next && i % 2) {
            OK(accelrt_event_record(event, stream));
            OK(accelrt_stream_wait_event(next, event));
        } else if (stream != next) {
            OK(accelrt_stream_wait_stream(next, stream));
        }
    }
    OK(accelrt_device_synchronize(cpu, ACCELRT_NO_LIMIT));
    ASSERT(count == TASKS);
    for (int i = 0; i < TASKS; i++)
        ASSERT(numbers[i] == i);
    OK(accelrt_event_destroy(event));
    OK(accelrt_stream_destroy(streams[0]));
    OK(accelrt_stream_destroy(streams[1]));
}

void a_stream_has_one_handle_which_counts(void)
{
    accelrt_stream *own, *found, *current, *previous, *pooled;
    accelrt_stream_info info = {.size = sizeof info};
    OK(accelrt_stream_create(cpu, 1, &own));
    OK(accelrt_stream_get_info(own, &info));
    ASSERT(info.priority == 1 && info.is_dedicated && info.runs_on_host && info.is_quiet);
    ASSERT(info.device.kind == ACCELRT_CPU && info.device.index == 0 && info.id > 0);
    OK(accelrt_stream_find(cpu, info.id, &found));
    ASSERT(found == own);
    OK(accelrt_stream_exchange(own, &previous));
    OK(accelrt_stream_get_current(cpu, &current));
    ASSERT(current == own && previous != own);
    OK(accelrt_stream_exchange(previous, NULL));
    OK(accelrt_stream_retain(own));
    for (int i = 0; i < 4; i++)
        OK(accelrt_stream_destroy(own)); /* created, found, current, retained */
    FAILS(accelrt_stream_destroy(own), STALE_HANDLE, "destroyed");
    FAILS(accelrt_stream_find(cpu, info.id, &found), NOT_FOUND, "no stream with id");
    for (int priority = -9; priority <= 9; priority += 9) {
        OK(accelrt_stream_create(cpu, priority, &own));
        OK(accelrt_stream_get_info(own, &info));
        ASSERT(info.priority == (priority > 0) - (priority < 0)); /* the nearest one */
        OK(accelrt_stream_destroy(own));
    }

    OK(accelrt_stream_get_default(cpu, &own));
    ASSERT(own == previous);
    OK(accelrt_stream_get_pooled(cpu, 0, &pooled));
    OK(accelrt_stream_destroy(pooled));
    OK(accelrt_stream_destroy(pooled)); /* the runtime keeps it */
    OK(accelrt_stream_get_info(pooled, &info));
    ASSERT(!info.is_dedicated);
    uint64_t native;
    FAILS(accelrt_stream_get_native(pooled, &native), UNSUPPORTED, "native stream");
    FAILS(accelrt_stream_wrap(cpu, 1, &own), UNSUPPORTED, "cpu");
}

static int32_t wait_for_own_stream(void *data, char *error_text, size_t error_capacity)
{
    (void)error_text;
    (void)error_capacity;
    FAILS(accelrt_stream_synchronize(data, ACCELRT_NO_LIMIT), WOULD_DEADLOCK, "own stream");
    return 0;
}

void waits_have_limits(void)
{
    accelrt_stream *stream;
    accelrt_event *event;
    accelrt_buffer *buffer;
    int32_t is_done;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_event_create(0, &event));
    OK(accelrt_buffer_create_on(stream, 64, &buffer));
    OK(accelrt_event_query(event, &is_done));
    ASSERT(is_done); /* without a record there is nothing to wait for */
    gate *gate = gate_shut(stream);
    OK(accelrt_buffer_fill(buffer, 1, stream));
    OK(accelrt_event_record(event, stream));
    OK(accelrt_stream_query(stream, &is_done));
    ASSERT(!is_done);
    OK(accelrt_event_query(event, &is_done));
    ASSERT(!is_done);
    FAILS(accelrt_stream_synchronize(stream, 0), TIMED_OUT, "goes on");
    FAILS(accelrt_event_synchronize(event, 1), TIMED_OUT, "goes on");
    FAILS(accelrt_device_synchronize(cpu, 1), TIMED_OUT, "goes on");
    FAILS(accelrt_buffer_wait(buffer, 1), TIMED_OUT, "goes on");
    gate_open(gate);
    OK(accelrt_event_synchronize(event, 60000));
    OK(accelrt_stream_synchronize(stream, 60000));
    OK(accelrt_buffer_wait(buffer, 60000));
    OK(accelrt_stream_query(stream, &is_done));
    ASSERT(is_done);
    OK(accelrt_stream_launch(stream, wait_for_own_stream, stream, NULL, NULL, 0));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_event_destroy(event));
    OK(accelrt_stream_destroy(stream));
}

void an_event_tells_when_it_was_passed(void)
{
    accelrt_stream *stream;
    accelrt_event *start, *end, *untimed;
    double elapsed_ms;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_event_create(1, &start));
    OK(accelrt_event_create(1, &end));
    OK(accelrt_event_create(0, &untimed));
    FAILS(accelrt_event_get_elapsed(start, end, &elapsed_ms), INVALID_STATE, "recorded");
    FAILS(accelrt_event_get_elapsed(start, untimed, &elapsed_ms), INVALID_STATE, "timing");
    OK(accelrt_event_record(start, stream));
    gate *gate = gate_shut(stream);
    OK(accelrt_event_record(end, stream));
    FAILS(accelrt_event_get_elapsed(start, end, &elapsed_ms), NOT_READY, "completed");
    gate_open(gate);
    OK(accelrt_event_synchronize(end, ACCELRT_NO_LIMIT));
    OK(accelrt_event_get_elapsed(start, end, &elapsed_ms));
    ASSERT(elapsed_ms >= 0);
    OK(accelrt_event_destroy(start));
    OK(accelrt_event_destroy(end));
    OK(accelrt_event_destroy(untimed));
    OK(accelrt_stream_destroy(stream));
}
