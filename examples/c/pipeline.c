// A pipeline in C11: chunks are loaded, computed and stored on three streams that overlap.
//
// Each chunk has one of four buffers. Copies are ordered behind what uses their buffer by
// themselves; a task of the program is ordered by events. This thread waits only for a buffer that
// it used four chunks ago, so memory is bounded however many chunks there are.

#include <accelrt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 64, CHUNK_BYTES = 64 << 10, LANES = 4 };

static void check(accelrt_status status)
{
    if (status != ACCELRT_STATUS_OK) {
        fprintf(stderr, "accelrt: %s\n", accelrt_error_text());
        exit(1);
    }
}

// What is computed: each byte of a chunk is inverted, on the thread of a worker.
static int32_t invert(void *data, char *error_text, size_t error_capacity)
{
    (void)error_text;
    (void)error_capacity;
    unsigned char *bytes = data;
    for (size_t i = 0; i < CHUNK_BYTES; i++)
        bytes[i] = (unsigned char)~bytes[i];
    return 0;
}

// A buffer, and where its chunk is.
typedef struct {
    accelrt_buffer *buffer;
    accelrt_event *loaded, *computed, *stored;
    unsigned char *bytes; // of the buffer: tasks on cpu read and write them
} lane;

int main(void)
{
    accelrt_device device = {ACCELRT_CPU, ACCELRT_CURRENT};
    accelrt_stream *load, *compute, *store;
    check(accelrt_stream_create(device, 0, &load));
    check(accelrt_stream_create(device, 0, &compute));
    check(accelrt_stream_create(device, 0, &store));
    lane lanes[LANES];
    for (int i = 0; i < LANES; i++) {
        uint64_t address;
        check(accelrt_buffer_create_on(load, CHUNK_BYTES, &lanes[i].buffer));
        check(accelrt_buffer_get_address(lanes[i].buffer, &address));
        lanes[i].bytes = (unsigned char *)(uintptr_t)address;
        check(accelrt_event_create(0, &lanes[i].loaded));
        check(accelrt_event_create(0, &lanes[i].computed));
        check(accelrt_event_create(0, &lanes[i].stored));
    }

    unsigned char *results = malloc((size_t)CHUNKS * CHUNK_BYTES);
    if (!results)
        return 1;
    for (int i = 0; i < CHUNKS; i++) {
        lane *lane = &lanes[i % LANES];
        unsigned char *source = malloc(CHUNK_BYTES);
        if (!source)
            return 1;
        memset(source, i, CHUNK_BYTES);
        check(accelrt_event_synchronize(lane->stored, ACCELRT_NO_LIMIT)); // four chunks ago
        check(accelrt_buffer_write_later(lane->buffer, source, CHUNK_BYTES, free, load));
        check(accelrt_event_record(lane->loaded, load));

        check(accelrt_stream_wait_event(compute, lane->loaded));
        accelrt_buffer_use use = {lane->buffer, ACCELRT_WRITES, 0};
        check(accelrt_stream_launch(compute, invert, lane->bytes, NULL, &use, 1));
        check(accelrt_event_record(lane->computed, compute));

        check(accelrt_stream_wait_event(store, lane->computed));
        unsigned char *result = results + (size_t)i * CHUNK_BYTES;
        check(accelrt_buffer_read_later(lane->buffer, result, CHUNK_BYTES, NULL, store));
        check(accelrt_event_record(lane->stored, store));
    }
    check(accelrt_stream_synchronize(store, ACCELRT_NO_LIMIT));

    int wrong = 0;
    for (int i = 0; i < CHUNKS; i++)
        for (size_t j = 0; j < CHUNK_BYTES; j++)
            wrong += results[(size_t)i * CHUNK_BYTES + j] != (unsigned char)~i;
    printf("%d chunks, %d bytes wrong\n", CHUNKS, wrong);

    free(results);
    for (int i = 0; i < LANES; i++) {
        check(accelrt_buffer_destroy(lanes[i].buffer));
        check(accelrt_event_destroy(lanes[i].loaded));
        check(accelrt_event_destroy(lanes[i].computed));
        check(accelrt_event_destroy(lanes[i].stored));
    }
    check(accelrt_stream_destroy(load));
    check(accelrt_stream_destroy(compute));
    check(accelrt_stream_destroy(store));
    return wrong != 0;
}
