/* Errors: of tasks, of arguments, of handles, of threads. */
#include "check.h"

#include <pthread.h>

static int dropped;

static void count_drop(void *data)
{
    (void)data;
    __atomic_fetch_add(&dropped, 1, __ATOMIC_SEQ_CST);
}

static int dropped_now(void)
{
    return __atomic_load_n(&dropped, __ATOMIC_SEQ_CST);
}

/* A failure whose text fills the room, is as long as `data` says, or is none. */
static int32_t fail(void *data, char *error_text, size_t error_capacity)
{
    size_t count = *(const size_t *)data;
    memset(error_text, 'x', count < error_capacity ? count : error_capacity);
    if (count < error_capacity)
        error_text[count] = 0;
    return -7;
}

static int32_t succeed(void *data, char *error_text, size_t error_capacity)
{
    (void)data;
    (void)error_text;
    (void)error_capacity;
    return 0;
}

void data_is_dropped_once_whatever_becomes_of_the_task(void)
{
    accelrt_stream *stream;
    size_t count = 3;
    OK(accelrt_stream_create(cpu, 0, &stream));
    gate *gate = gate_shut(stream);
    OK(accelrt_stream_launch(stream, fail, &count, count_drop, NULL, 0));
    OK(accelrt_stream_launch(stream, succeed, NULL, count_drop, NULL, 0)); /* is skipped */
    ASSERT(dropped_now() == 0);
    gate_open(gate);
    FAILS(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT), STREAM_FAILED, "xxx");
    ASSERT(dropped_now() == 2);
    FAILS(accelrt_stream_launch(stream, NULL, NULL, count_drop, NULL, 0), INVALID_ARGUMENT, "run");
    FAILS(accelrt_stream_launch(NULL, succeed, NULL, count_drop, NULL, 0), INVALID_ARGUMENT,
          "stream is NULL");
    ASSERT(dropped_now() == 4);
    OK(accelrt_stream_launch(stream, succeed, NULL, count_drop, NULL, 0));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    ASSERT(dropped_now() == 5);
    accelrt_runtime_counters counters = {.size = sizeof counters};
    OK(accelrt_runtime_get_counters(&counters));
    ASSERT(counters.num_skipped_tasks == 1);
    OK(accelrt_stream_destroy(stream));
}

void a_failed_task_fails_its_stream_with_its_text(void)
{
    accelrt_stream *stream, *other;
    accelrt_event *event;
    double elapsed_ms;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_stream_create(cpu, 0, &other));
    OK(accelrt_event_create(1, &event));
    size_t none = 0, all = 100000;
    OK(accelrt_stream_launch(stream, fail, &none, NULL, NULL, 0));
    OK(accelrt_event_record(event, stream));
    OK(accelrt_stream_wait_event(other, event));
    FAILS(accelrt_event_synchronize(event, ACCELRT_NO_LIMIT), STREAM_FAILED, "status -7");
    FAILS(accelrt_event_synchronize(event, 10000), STREAM_FAILED, "status -7");
    FAILS(accelrt_stream_synchronize(stream, 10000), STREAM_FAILED, "status -7");
    OK(accelrt_stream_synchronize(stream, 10000)); /* the error has ended */
    OK(accelrt_stream_launch(stream, fail, &none, NULL, NULL, 0));
    FAILS(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT), STREAM_FAILED, "status -7");
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT)); /* the error has ended */
    FAILS(accelrt_stream_synchronize(other, ACCELRT_NO_LIMIT), STREAM_FAILED, "waited for");
    FAILS(accelrt_event_get_elapsed(event, event, &elapsed_ms), STREAM_FAILED, "status -7");
    OK(accelrt_stream_launch(stream, fail, &all, NULL, NULL, 0));
    FAILS(accelrt_device_synchronize(cpu, ACCELRT_NO_LIMIT), STREAM_FAILED, "xxxxxxxx");
    ASSERT(strlen(accelrt_error_text()) > 500);
    OK(accelrt_stream_launch(stream, fail, &none, NULL, NULL, 0));
    FAILS(accelrt_device_synchronize(cpu, 10000), STREAM_FAILED, "status -7");
    OK(accelrt_event_destroy(event));
    OK(accelrt_stream_destroy(stream));
    OK(accelrt_stream_destroy(other));
}

void stale_handles_are_errors(void)
{
    accelrt_stream *stream, *next;
    accelrt_event *event;
    accelrt_buffer *buffer;
    int32_t is_done;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_event_create(0, &event));
    OK(accelrt_buffer_create(cpu, 8, &buffer));
    accelrt_event *wrong_kind = (accelrt_event *)buffer, *odd = (accelrt_event *)((char *)event + 1);
    FAILS(accelrt_event_query(wrong_kind, &is_done), STALE_HANDLE, "event");
    FAILS(accelrt_event_query(odd, &is_done), STALE_HANDLE, "event");
    FAILS(accelrt_event_query((accelrt_event *)UINTPTR_MAX, &is_done), STALE_HANDLE, "event");
    FAILS(accelrt_event_query((accelrt_event *)&is_done, &is_done), STALE_HANDLE, "event");
    OK(accelrt_stream_destroy(stream));
    OK(accelrt_event_destroy(event));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_create(cpu, 0, &next)); /* in the place of the first one */
    ASSERT(next != stream);
    FAILS(accelrt_stream_query(stream, &is_done), STALE_HANDLE, "stream");
    FAILS(accelrt_stream_retain(stream), STALE_HANDLE, "stream");
    FAILS(accelrt_stream_launch(stream, succeed, NULL, NULL, NULL, 0), STALE_HANDLE, "stream");
    FAILS(accelrt_event_record(event, next), STALE_HANDLE, "event");
    FAILS(accelrt_stream_wait_event(next, event), STALE_HANDLE, "event");
    FAILS(accelrt_event_synchronize(event, 1), STALE_HANDLE, "event");
    FAILS(accelrt_buffer_fill(buffer, 1, next), STALE_HANDLE, "buffer");
    FAILS(accelrt_buffer_destroy(buffer), STALE_HANDLE, "buffer");
    OK(accelrt_stream_destroy(next));
}

void null_is_an_error(void)
{
    accelrt_stream *stream;
    OK(accelrt_stream_create(cpu, 0, &stream));
    FAILS(accelrt_stream_create(cpu, 0, NULL), INVALID_ARGUMENT, "stream is NULL");
    FAILS(accelrt_event_query(NULL, NULL), INVALID_ARGUMENT, "is_done is NULL");
    FAILS(accelrt_event_destroy(NULL), INVALID_ARGUMENT, "event is NULL");
    FAILS(accelrt_device_parse(NULL, NULL), INVALID_ARGUMENT, "device is NULL");
    FAILS(accelrt_setting_set(NULL, ""), INVALID_ARGUMENT, "name is NULL");
    FAILS(accelrt_setting_set("\xff", ""), INVALID_ARGUMENT, "UTF-8");
    FAILS(accelrt_device_get_name(cpu, NULL, 3, NULL), INVALID_ARGUMENT, "text is NULL");
    FAILS(accelrt_stream_get_info(stream, NULL), INVALID_ARGUMENT, "info is NULL");
    FAILS(accelrt_stream_launch(stream, succeed, NULL, NULL, NULL, 1), INVALID_ARGUMENT, "uses");
    OK(accelrt_stream_destroy(stream));
}

void counts_that_no_array_has_are_errors(void)
{
    accelrt_stream *stream;
    accelrt_buffer *buffer;
    char bytes[4] = "";
    OK(accelrt_stream_get_default(cpu, &stream));
    OK(accelrt_buffer_create_on(stream, sizeof bytes, &buffer));
    accelrt_buffer_use use = {buffer, ACCELRT_READS, 0};
    FAILS(accelrt_buffer_write(buffer, bytes, SIZE_MAX, stream), INVALID_ARGUMENT, "source cannot");
    FAILS(accelrt_buffer_read(buffer, bytes, SIZE_MAX, stream), INVALID_ARGUMENT, "target cannot");
    FAILS(accelrt_stream_launch(stream, succeed, NULL, NULL, &use, SIZE_MAX / 8), INVALID_ARGUMENT,
          "uses cannot");
    OK(accelrt_buffer_destroy(buffer));
}

void structs_of_other_versions_are_filled_as_far_as_both_go(void)
{
    /* As a later header's, with fields that this library does not know. */
    struct {
        accelrt_device_properties known;
        uint64_t later[2];
    } newer = {{.size = sizeof newer}, {11, 12}};
    OK(accelrt_device_get_properties(cpu, (accelrt_device_properties *)&newer));
    ASSERT(newer.known.size == sizeof newer.known && newer.known.core_count > 0);
    ASSERT(newer.later[0] == 11 && newer.later[1] == 12);
    /* As an earlier header's, and the memory behind it. */
    accelrt_stream *stream;
    OK(accelrt_stream_get_default(cpu, &stream));
    accelrt_stream_info info = {.size = 0};
    FAILS(accelrt_stream_get_info(stream, &info), INVALID_ARGUMENT, "size of info is 0");
    info.size = sizeof info + 1;
    FAILS(accelrt_stream_get_info(stream, &info), INVALID_ARGUMENT, "size of info");
}

static void *fail_elsewhere(void *data)
{
    (void)data;
    ASSERT(accelrt_error_status() == ACCELRT_STATUS_OK && accelrt_error_text()[0] == 0);
    FAILS(accelrt_event_destroy(NULL), INVALID_ARGUMENT, "event");
    return NULL;
}

void errors_belong_to_their_thread(void)
{
    accelrt_device device;
    FAILS(accelrt_device_parse("gpu", &device), INVALID_ARGUMENT, "gpu");
    pthread_t thread;
    ASSERT(!pthread_create(&thread, NULL, fail_elsewhere, NULL));
    ASSERT(!pthread_join(thread, NULL));
    OK(accelrt_device_parse("cpu", &device)); /* leaves the last error as it is */
    ASSERT(accelrt_error_status() == ACCELRT_STATUS_INVALID_ARGUMENT);
    ASSERT(strstr(accelrt_error_text(), "gpu"));
    accelrt_error_clear();
    ASSERT(accelrt_error_status() == ACCELRT_STATUS_OK && accelrt_error_text()[0] == 0);
}
