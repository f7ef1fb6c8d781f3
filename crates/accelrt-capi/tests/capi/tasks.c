/* Tasks that other threads finish, and tasks that block. */
#define _POSIX_C_SOURCE 200809L /* barriers */

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_int drops, runs;

static void count_drop(void *data)
{
    (void)data;
    drops += 1;
}

static int32_t count_run(void *data, char *error_text, size_t error_capacity)
{
    (void)error_text;
    (void)error_capacity;
    runs += data ? *(int *)data : 1;
    return 0;
}

/* What a start hands to the thread that finishes. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    accelrt_completion *started;
} slot;

static void hand_over(void *data, accelrt_completion *completion)
{
    slot *slot = data;
    pthread_mutex_lock(&slot->lock);
    slot->started = completion;
    pthread_cond_broadcast(&slot->change);
    pthread_mutex_unlock(&slot->lock);
}

static accelrt_completion *take(slot *slot)
{
    pthread_mutex_lock(&slot->lock);
    while (!slot->started)
        pthread_cond_wait(&slot->change, &slot->lock);
    accelrt_completion *started = slot->started;
    slot->started = NULL;
    pthread_mutex_unlock(&slot->lock);
    return started;
}

static void finish_at_once(void *data, accelrt_completion *completion)
{
    OK(accelrt_completion_finish(completion, data));
}

void a_deferred_task_is_finished_by_another_thread(void)
{
    slot slot = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};
    accelrt_stream *stream;
    accelrt_completion *started;
    int32_t is_done;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_stream_launch_deferred(stream, hand_over, &slot, count_drop));
    OK(accelrt_stream_launch(stream, count_run, NULL, NULL, NULL, 0));
    started = take(&slot);
    OK(accelrt_stream_query(stream, &is_done));
    ASSERT(!is_done && runs == 0 && drops == 0);
    OK(accelrt_completion_finish(started, NULL));
    ASSERT(drops == 1);
    FAILS(accelrt_completion_finish(started, NULL), STALE_HANDLE, "completion");
    FAILS(accelrt_completion_finish(NULL, NULL), INVALID_ARGUMENT, "completion is NULL");
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    ASSERT(runs == 1);

    /* A text fails the stream; a failed stream starts nothing and drops. */
    OK(accelrt_stream_launch_deferred(stream, finish_at_once, "no answer", NULL));
    OK(accelrt_stream_launch_deferred(stream, hand_over, &slot, count_drop));
    FAILS(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT), STREAM_FAILED, "no answer");
    ASSERT(drops == 2 && !slot.started);
    FAILS(accelrt_stream_launch_deferred(stream, NULL, &slot, count_drop), INVALID_ARGUMENT, "start");
    ASSERT(drops == 3);

    /* What is not UTF-8 is refused, and the task can still be finished. */
    OK(accelrt_stream_launch_deferred(stream, hand_over, &slot, NULL));
    started = take(&slot);
    FAILS(accelrt_completion_finish(started, "\xff"), INVALID_ARGUMENT, "UTF-8");
    OK(accelrt_completion_finish(started, ""));
    FAILS(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT), STREAM_FAILED, "");
    OK(accelrt_stream_destroy(stream));
}

/* The second of two tasks that block opens what the first one waits for; there is one worker. */
static pthread_barrier_t both;

static int32_t meet(void *data, char *error_text, size_t error_capacity)
{
    (void)error_text;
    (void)error_capacity;
    pthread_barrier_wait(&both);
    return *(int *)data;
}

void tasks_that_block_do_not_hold_back_other_streams(void)
{
    accelrt_stream *streams[2];
    accelrt_buffer *buffer;
    accelrt_runtime_counters counters = {.size = sizeof counters};
    int results[2] = {0, 7};
    OK(accelrt_setting_set("ACCELRT_CPU_THREADS", "1"));
    pthread_barrier_init(&both, NULL, 2);
    OK(accelrt_buffer_create(cpu, 64, &buffer));
    accelrt_buffer_use use = {buffer, ACCELRT_WRITES, 0};
    for (int number = 0; number < 2; number++) {
        OK(accelrt_stream_create(cpu, 0, &streams[number]));
        OK(accelrt_stream_launch_blocking(streams[number], meet, &results[number], count_drop, &use,
                                          number));
    }
    OK(accelrt_stream_synchronize(streams[0], ACCELRT_NO_LIMIT));
    FAILS(accelrt_stream_synchronize(streams[1], ACCELRT_NO_LIMIT), STREAM_FAILED, "status 7");
    ASSERT(drops == 2);
    OK(accelrt_runtime_get_counters(&counters));
    ASSERT(counters.num_spare_workers >= 1);
    FAILS(accelrt_stream_launch_blocking(streams[0], NULL, NULL, count_drop, NULL, 0),
          INVALID_ARGUMENT, "run is NULL");
    ASSERT(drops == 3);
    OK(accelrt_buffer_destroy(buffer));
    for (int number = 0; number < 2; number++)
        OK(accelrt_stream_destroy(streams[number]));
}

/* The records of tasks with this name. */
static size_t count_named(const accelrt_log_record *records, size_t count, const char *name)
{
    size_t found = 0;
    for (size_t nth = 0; nth < count; nth++)
        found += records[nth].kind == ACCELRT_RECORD_ENDED && !strcmp(records[nth].name, name);
    return found;
}

void a_described_task_has_its_name_and_memory_in_the_log(void)
{
    accelrt_stream *stream;
    accelrt_log *log;
    accelrt_log_record records[64];
    size_t count;
    uint64_t dropped;
    int one = 1;
    accelrt_used_range ranges[] = {{4096, 64, ACCELRT_READS, 0}, {8192, 32, ACCELRT_WRITES, 0}};
    accelrt_task_description described = {sizeof described, "add_one", ranges, 2};
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_log_subscribe(ACCELRT_LOG_TASKS, 64, &log));
    OK(accelrt_stream_launch_described(stream, count_run, &one, count_drop, &described));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    ASSERT(runs == 1 && drops == 1);
    OK(accelrt_log_take(log, records, sizeof *records, 64, &count, &dropped));
    ASSERT(count_named(records, count, "add_one") == 1);
    for (size_t nth = 0; nth < count; nth++)
        if (records[nth].kind == ACCELRT_RECORD_ENDED && !strcmp(records[nth].name, "add_one"))
            ASSERT(records[nth].address == 8192);
    OK(accelrt_log_destroy(log));

    /* What could not be read later is refused at once, and the data is given back. */
    accelrt_task_description no_name = {sizeof no_name, NULL, NULL, 0};
    OK(accelrt_stream_launch_described(stream, count_run, &one, NULL, &no_name));
    accelrt_task_description no_ranges = {sizeof no_ranges, "lost", NULL, 2};
    FAILS(accelrt_stream_launch_described(stream, count_run, &one, count_drop, &no_ranges),
        INVALID_ARGUMENT, "ranges");
    accelrt_task_description small = {8, "small", ranges, 2};
    FAILS(accelrt_stream_launch_described(stream, count_run, &one, count_drop, &small),
        INVALID_ARGUMENT, "size of 8 bytes");
    ranges[1].access = 7;
    FAILS(accelrt_stream_launch_described(stream, count_run, &one, count_drop, &described),
        INVALID_ARGUMENT, "no access 7");
    FAILS(accelrt_stream_launch_described(stream, count_run, &one, count_drop, NULL),
        INVALID_ARGUMENT, "description is NULL");
    FAILS(accelrt_stream_launch_described(stream, NULL, &one, count_drop, &no_name),
        INVALID_ARGUMENT, "run is NULL");
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    ASSERT(runs == 2 && drops == 6);
    OK(accelrt_stream_destroy(stream));
}

/* The handles of a throttled call. */
typedef struct {
    accelrt_stream *stream;
    accelrt_event *event;
    accelrt_buffer *buffer;
} handles;

static int32_t destroy_handles(void *data, char *error_text, size_t error_capacity)
{
    (void)error_text;
    (void)error_capacity;
    struct timespec while_it_is_throttled = {0, 50000000};
    nanosleep(&while_it_is_throttled, NULL);
    handles *of = data;
    OK(accelrt_stream_destroy(of->stream));
    OK(accelrt_event_destroy(of->event));
    OK(accelrt_buffer_destroy(of->buffer));
    /* Others take their slots. */
    OK(accelrt_stream_create(cpu, 0, &of->stream));
    OK(accelrt_event_create(0, &of->event));
    OK(accelrt_buffer_create(cpu, 64, &of->buffer));
    return 0;
}

static accelrt_status call_nth(int nth, const handles *of)
{
    static char bytes[64];
    accelrt_buffer_use use = {of->buffer, ACCELRT_WRITES, 0};
    switch (nth) {
    case 0: return accelrt_stream_launch(of->stream, count_run, NULL, NULL, NULL, 0);
    case 1: return accelrt_stream_launch(of->stream, count_run, NULL, NULL, &use, 1);
    case 2: return accelrt_event_record(of->event, of->stream);
    case 3: return accelrt_buffer_fill(of->buffer, 1, of->stream);
    case 4: return accelrt_buffer_write_later(of->buffer, bytes, sizeof bytes, NULL, of->stream);
    case 5: return accelrt_buffer_read_later(of->buffer, bytes, sizeof bytes, NULL, of->stream);
    case 6: return accelrt_stream_launch_deferred(of->stream, finish_at_once, NULL, NULL);
    default: return accelrt_stream_launch_blocking(of->stream, count_run, NULL, NULL, NULL, 0);
    }
}

void handles_may_be_destroyed_while_their_call_is_throttled(void)
{
    OK(accelrt_setting_set("ACCELRT_STREAM_TASKS", "64"));
    for (int nth = 0; nth < 8; nth++) {
        handles of;
        OK(accelrt_stream_create(cpu, 0, &of.stream));
        OK(accelrt_event_create(0, &of.event));
        OK(accelrt_buffer_create(cpu, 64, &of.buffer));
        OK(accelrt_event_record(of.event, of.stream));
        OK(accelrt_stream_launch_blocking(of.stream, destroy_handles, &of, NULL, NULL, 0));
        handles before = of;
        accelrt_status status = ACCELRT_STATUS_OK;
        for (int i = 0; i < 1000 && status == ACCELRT_STATUS_OK; i++)
            status = call_nth(nth, &before);
        if (status != ACCELRT_STATUS_STALE_HANDLE)
            FAIL("call %d returned %d", nth, (int)status);
        OK(accelrt_device_synchronize(cpu, ACCELRT_NO_LIMIT));
        OK(accelrt_stream_destroy(of.stream));
        OK(accelrt_event_destroy(of.event));
        OK(accelrt_buffer_destroy(of.buffer));
    }
}

void a_log_holds_at_most_its_records(void)
{
    enum { MOST = 10, ROUNDS = 100 };
    accelrt_stream *stream;
    accelrt_log *log;
    accelrt_log_record record;
    size_t count, taken = 0;
    uint64_t dropped, all_dropped = 0;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_log_subscribe(ACCELRT_LOG_TASKS, MOST, &log));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MOST; i++)
            OK(accelrt_stream_launch(stream, count_run, NULL, NULL, NULL, 0));
        OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
        OK(accelrt_log_take(log, &record, sizeof record, 1, &count, &dropped));
        taken += count;
        all_dropped += dropped;
    }
    ASSERT(taken <= ROUNDS && all_dropped > ROUNDS * (MOST - 2));
    size_t left = 0;
    do {
        OK(accelrt_log_take(log, &record, sizeof record, 1, &count, &dropped));
        left += count && record.kind != ACCELRT_RECORD_THREAD;
    } while (count);
    ASSERT(left <= MOST);
    OK(accelrt_log_destroy(log));
}
