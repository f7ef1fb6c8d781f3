// Two streams and an event: what README.md shows in Python and Rust, in C11.
//
// `copy` fills a buffer and brings bytes to it, `compute` works on them behind an event. No thread
// waits before the end.

#include <accelrt.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the program with the text of the error.
static void check(accelrt_status status)
{
    if (status != ACCELRT_STATUS_OK) {
        fprintf(stderr, "accelrt: %s\n", accelrt_error_text());
        exit(1);
    }
}

typedef struct {
    const unsigned char *bytes;
    size_t count;
    unsigned sum;
} sum_task;

// A task: a worker calls it in stream order.
static int32_t add_up(void *data, char *error_text, size_t error_capacity)
{
    sum_task *task = data;
    for (size_t i = 0; i < task->count; i++) {
        task->sum += task->bytes[i];
    }
    if (task->sum == 0) {
        snprintf(error_text, error_capacity, "all %zu bytes are zero", task->count);
        return 1; // fails the stream: its later tasks are skipped until a synchronise has told of it
    }
    return 0;
}

int main(void)
{
    accelrt_device device = {ACCELRT_CPU, ACCELRT_CURRENT};
    accelrt_stream *copy, *compute;
    check(accelrt_stream_create(device, 0, &copy));
    check(accelrt_stream_create(device, 0, &compute));
    accelrt_event *start, *end;
    check(accelrt_event_create(1, &start)); // with timing
    check(accelrt_event_create(1, &end));

    unsigned char source[16];
    for (unsigned i = 0; i < sizeof source; i++) {
        source[i] = (unsigned char)i;
    }
    accelrt_buffer *buffer;
    check(accelrt_event_record(start, copy));
    check(accelrt_buffer_create_on(copy, sizeof source, &buffer));
    check(accelrt_buffer_fill(buffer, 0, copy));
    check(accelrt_buffer_write(buffer, source, sizeof source, copy)); // returns when it is done
    check(accelrt_event_record(end, copy));

    uint64_t address;
    check(accelrt_buffer_get_address(buffer, &address));
    sum_task task = {(const unsigned char *)(uintptr_t)address, sizeof source, 0};
    accelrt_buffer_use use = {buffer, ACCELRT_READS, 0};
    check(accelrt_stream_wait_event(compute, end)); // ordered on the device; no thread waits
    check(accelrt_stream_launch(compute, add_up, &task, NULL, &use, 1));
    check(accelrt_buffer_destroy(buffer)); // its memory is freed behind the task
    check(accelrt_stream_synchronize(compute, ACCELRT_NO_LIMIT));

    double elapsed_ms;
    check(accelrt_event_get_elapsed(start, end, &elapsed_ms));
    printf("the sum is %u, after %.3f ms\n", task.sum, elapsed_ms);

    check(accelrt_event_destroy(start));
    check(accelrt_event_destroy(end));
    check(accelrt_stream_destroy(copy));
    check(accelrt_stream_destroy(compute));
    return task.sum == 120 ? 0 : 1;
}
