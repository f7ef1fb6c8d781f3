/* Memory: buffers, views, copies, uses of tasks, memory of the host. */
#include "check.h"

enum { BYTES = 1000 };

static void is_filled(const unsigned char *bytes, size_t count, unsigned char byte)
{
    for (size_t i = 0; i < count; i++)
        ASSERT(bytes[i] == byte);
}

void buffers_are_copied_filled_and_viewed(void)
{
    accelrt_stream *stream, *home;
    accelrt_buffer *buffer, *copy, *view, *pinned, *none;
    unsigned char bytes[BYTES];
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_buffer_create(cpu, BYTES, &buffer));
    OK(accelrt_buffer_create_on(stream, BYTES, &copy));
    OK(accelrt_buffer_get_home(copy, &home));
    ASSERT(home == stream);
    OK(accelrt_stream_destroy(home));
    OK(accelrt_buffer_fill(buffer, 7, stream));
    OK(accelrt_buffer_copy(copy, buffer, stream));
    OK(accelrt_buffer_destroy(buffer)); /* freed behind the copy */
    OK(accelrt_buffer_slice(copy, 100, 50, &view));
    OK(accelrt_buffer_fill(view, 8, stream));
    OK(accelrt_buffer_read(copy, bytes, BYTES, stream));
    is_filled(bytes, 100, 7);
    is_filled(bytes + 100, 50, 8);
    is_filled(bytes + 150, BYTES - 150, 7);
    memset(bytes, 9, 50);
    OK(accelrt_buffer_write(view, bytes, 50, stream));
    OK(accelrt_buffer_destroy(copy)); /* the view keeps the memory */

    accelrt_buffer_info info = {.size = sizeof info};
    uint64_t address;
    OK(accelrt_buffer_get_info(view, &info));
    OK(accelrt_buffer_get_address(view, &address));
    ASSERT(info.address == address && info.bytes == 50 && info.offset_bytes == 100);
    ASSERT(info.memory == ACCELRT_MEMORY_DEVICE && info.is_host_accessible && !info.is_released);
    OK(accelrt_buffer_wait(view, ACCELRT_NO_LIMIT));
    is_filled((const unsigned char *)(uintptr_t)address, 50, 9);
    FAILS(accelrt_buffer_slice(view, 20, 31, &none), INVALID_ARGUMENT, "20..51");
    FAILS(accelrt_buffer_slice(view, SIZE_MAX, 2, &none), INVALID_ARGUMENT, "not inside");
    FAILS(accelrt_buffer_write(view, bytes, 49, stream), INVALID_ARGUMENT, "49");

    OK(accelrt_buffer_create_in(cpu, ACCELRT_MEMORY_PINNED, 50, &pinned));
    OK(accelrt_buffer_get_info(pinned, &info));
    ASSERT(info.memory == ACCELRT_MEMORY_PINNED);
    OK(accelrt_buffer_copy(pinned, view, stream));
    OK(accelrt_buffer_release(view));
    OK(accelrt_buffer_release(view));
    OK(accelrt_buffer_get_info(view, &info));
    ASSERT(info.is_released && info.address == 0);
    FAILS(accelrt_buffer_get_address(view, &address), INVALID_STATE, "released");
    FAILS(accelrt_buffer_fill(view, 1, stream), INVALID_STATE, "released");
    FAILS(accelrt_buffer_create_in(cpu, 3, 50, &none), INVALID_ARGUMENT, "memory 3");
    OK(accelrt_buffer_create_in(cpu, ACCELRT_MEMORY_SHARED, 50, &none));
    OK(accelrt_buffer_get_info(none, &info));
    ASSERT(info.memory == ACCELRT_MEMORY_SHARED);
    OK(accelrt_buffer_destroy(none));
    OK(accelrt_buffer_create(cpu, 0, &none));
    OK(accelrt_buffer_get_address(none, &address));
    ASSERT(address == 0);
    OK(accelrt_buffer_destroy(none));
    OK(accelrt_buffer_destroy(view));
    OK(accelrt_buffer_destroy(pinned));
    OK(accelrt_stream_destroy(stream));
}

typedef struct {
    unsigned char *bytes;
    unsigned char byte;
} fill_task;

static int32_t fill(void *data, char *error_text, size_t error_capacity)
{
    const fill_task *task = data;
    (void)error_text;
    (void)error_capacity;
    memset(task->bytes, task->byte, BYTES);
    return 0;
}

void memory_of_a_use_stays_until_the_task_has_run(void)
{
    accelrt_stream *stream, *other;
    accelrt_buffer *buffer, *view, *next;
    uint64_t address, next_address;
    unsigned char bytes[BYTES];
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_stream_create(cpu, 0, &other));
    OK(accelrt_buffer_create_on(other, BYTES, &buffer));
    OK(accelrt_buffer_get_address(buffer, &address));
    fill_task task = {(unsigned char *)(uintptr_t)address, 3};
    accelrt_buffer_use use = {buffer, ACCELRT_WRITES, 0};
    gate *gate = gate_shut(stream);
    OK(accelrt_stream_launch(stream, fill, &task, NULL, &use, 1));
    OK(accelrt_buffer_slice(buffer, 0, BYTES, &view));
    FAILS(accelrt_buffer_wait(view, 1), TIMED_OUT, "limit");
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_buffer_destroy(view));
    OK(accelrt_buffer_create_on(other, BYTES, &next));
    OK(accelrt_buffer_get_address(next, &next_address));
    ASSERT(next_address != address);
    OK(accelrt_buffer_record_use(next, stream)); /* of a task that was told the address */
    gate_open(gate);
    OK(accelrt_buffer_read(next, bytes, BYTES, stream));
    OK(accelrt_buffer_destroy(next));

    use.buffer = next;
    FAILS(accelrt_stream_launch(stream, fill, &task, NULL, &use, 1), STALE_HANDLE, "buffer");
    OK(accelrt_buffer_create(cpu, BYTES, &use.buffer));
    use.access = 3;
    FAILS(accelrt_stream_launch(stream, fill, &task, NULL, &use, 1), INVALID_ARGUMENT, "access 3");
    use.access = 0;
    OK(accelrt_buffer_release(use.buffer));
    FAILS(accelrt_stream_launch(stream, fill, &task, NULL, &use, 1), INVALID_STATE, "released");
    OK(accelrt_buffer_destroy(use.buffer));
    OK(accelrt_stream_destroy(stream));
    OK(accelrt_stream_destroy(other));
}

static int freed;

static void count_free(void *data)
{
    __atomic_fetch_add(&freed, 1, __ATOMIC_SEQ_CST);
    free(data);
}

static int freed_now(void)
{
    return __atomic_load_n(&freed, __ATOMIC_SEQ_CST);
}

static void *of_byte(unsigned char byte)
{
    unsigned char *bytes = malloc(BYTES);
    ASSERT(bytes);
    return memset(bytes, byte, BYTES);
}

void host_memory_is_given_back_behind_its_copy(void)
{
    accelrt_stream *stream;
    accelrt_buffer *buffer;
    static unsigned char target[BYTES];
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_buffer_create_on(stream, BYTES, &buffer));
    gate *gate = gate_shut(stream);
    OK(accelrt_buffer_write_later(buffer, of_byte(5), BYTES, count_free, stream));
    OK(accelrt_buffer_read_later(buffer, target, BYTES, NULL, stream));
    OK(accelrt_buffer_read_later(buffer, of_byte(0), BYTES, count_free, stream));
    ASSERT(freed_now() == 0);
    gate_open(gate);
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    ASSERT(freed_now() == 2);
    is_filled(target, BYTES, 5);
    FAILS(accelrt_buffer_write_later(buffer, of_byte(5), BYTES - 1, count_free, stream),
          INVALID_ARGUMENT, "999");
    FAILS(accelrt_buffer_read_later(NULL, of_byte(5), BYTES, count_free, stream), INVALID_ARGUMENT,
          "NULL");
    ASSERT(freed_now() == 4);
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_destroy(stream));
}

void addresses_are_copied_and_filled(void)
{
    accelrt_stream *stream;
    unsigned char from[BYTES], to[BYTES];
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_stream_fill(stream, (uintptr_t)from, 4, BYTES));
    OK(accelrt_stream_copy(stream, (uintptr_t)to, (uintptr_t)from, BYTES));
    OK(accelrt_stream_copy(stream, 0, 0, 0));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    is_filled(to, BYTES, 4);
    FAILS(accelrt_stream_copy(stream, (uintptr_t)to, 0, 1), INVALID_ARGUMENT, "from is NULL");
    FAILS(accelrt_stream_fill(stream, 0, 1, 1), INVALID_ARGUMENT, "address is NULL");
    OK(accelrt_stream_destroy(stream));
}
