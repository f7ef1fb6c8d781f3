/* The log, random numbers; kernels and streams of a driver, on the fake OpenCL. */
#include "check.h"

static int32_t succeed(void *data, char *error_text, size_t error_capacity)
{
    (void)data;
    (void)error_text;
    (void)error_capacity;
    return 0;
}

void the_log_tells_what_ran(void)
{
    enum { RECORDS = 64 };
    accelrt_stream *streams[2];
    accelrt_event *event;
    accelrt_log *log;
    static accelrt_log_record records[RECORDS];
    size_t count, all = 0;
    uint64_t dropped;
    accelrt_stream_info info = {.size = sizeof info};
    OK(accelrt_stream_create(cpu, 0, &streams[0]));
    OK(accelrt_stream_create(cpu, 0, &streams[1]));
    OK(accelrt_stream_get_info(streams[0], &info));
    OK(accelrt_event_create(0, &event));
    FAILS(accelrt_log_subscribe(0, 100, &log), INVALID_ARGUMENT, "kinds 0");
    FAILS(accelrt_log_subscribe(16, 100, &log), INVALID_ARGUMENT, "kinds 16");
    OK(accelrt_log_subscribe(ACCELRT_LOG_TASKS | ACCELRT_LOG_MEMORY, 1000, &log));
    gate *gate = gate_shut(streams[0]);
    OK(accelrt_stream_launch(streams[0], succeed, NULL, NULL, NULL, 0));
    OK(accelrt_event_record(event, streams[0]));
    OK(accelrt_stream_wait_event(streams[1], event));
    accelrt_buffer *buffer;
    OK(accelrt_buffer_create(cpu, 3 << 20, &buffer));
    OK(accelrt_buffer_destroy(buffer));
    gate_open(gate);
    OK(accelrt_device_synchronize(cpu, ACCELRT_NO_LIMIT));
    do { /* a part after the other */
        OK(accelrt_log_take(log, records + all, sizeof *records, 5, &count, &dropped));
        ASSERT(dropped == 0);
        all += count;
        ASSERT(all + 5 <= RECORDS);
    } while (count == 5);
    int is_launched = 0, is_waited = 0, is_allocated = 0;
    for (size_t i = 0; i < all; i++) {
        const accelrt_log_record *it = &records[i];
        ASSERT(it->size == sizeof *it && it->end_ns >= it->start_ns);
        int has_run = it->kind == ACCELRT_RECORD_ENDED || it->kind == ACCELRT_RECORD_ENDED_BY_HELPER;
        if (has_run && strcmp(it->operation, "launch") == 0 && it->ticket == 2)
            is_launched = it->stream_id == info.id && it->address == (uintptr_t)succeed;
        if (has_run && strcmp(it->operation, "wait") == 0)
            is_waited = it->source_stream_id == info.id && it->source_ticket == 3;
        if (it->kind == ACCELRT_RECORD_MEMORY && it->bytes == 3 << 20)
            is_allocated |= strcmp(it->operation, "Miss") == 0;
    }
    ASSERT(is_launched && is_waited && is_allocated);
    OK(accelrt_log_destroy(log));
    FAILS(accelrt_log_destroy(log), STALE_HANDLE, "log");
    OK(accelrt_event_destroy(event));
    OK(accelrt_stream_destroy(streams[0]));
    OK(accelrt_stream_destroy(streams[1]));
}

void generators_give_the_same_bits_everywhere(void)
{
    accelrt_generator *generator, *clone, *shared;
    accelrt_buffer *buffer;
    accelrt_stream *stream;
    uint64_t seed, offset, integers[2];
    float numbers[4];
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_buffer_create_on(stream, sizeof numbers, &buffer));
    OK(accelrt_generator_create(cpu, &generator));
    OK(accelrt_generator_get_seed(generator, &seed));
    ASSERT(seed == 67280421310721);
    OK(accelrt_generator_set_seed(generator, 0));
    OK(accelrt_generator_clone(generator, &clone));
    OK(accelrt_generator_fill(generator, buffer, ACCELRT_RANDOM_UNIFORM_FLOAT, stream));
    OK(accelrt_buffer_read(buffer, numbers, sizeof numbers, stream));
    ASSERT(numbers[0] == 0.39904642f);
    OK(accelrt_generator_get_offset(generator, &offset));
    ASSERT(offset == 4);
    OK(accelrt_generator_reserve(generator, 5, &seed, &offset));
    ASSERT(seed == 0 && offset == 4);
    OK(accelrt_generator_get_offset(generator, &offset));
    ASSERT(offset == 12);
    FAILS(accelrt_generator_reserve(generator, UINT64_MAX, &seed, &offset), INVALID_ARGUMENT,
          "Cannot take 18446744073709551616 words of random numbers at offset 12:");
    FAILS(accelrt_generator_reserve(generator, UINT64_MAX - 14, &seed, NULL), INVALID_ARGUMENT,
          "at offset 12:");
    OK(accelrt_generator_get_offset(generator, &offset));
    ASSERT(seed == 0 && offset == 12);
    OK(accelrt_generator_fill(clone, buffer, ACCELRT_RANDOM_UINT64, stream));
    OK(accelrt_buffer_read(buffer, integers, sizeof integers, stream));
    ASSERT(integers[0] == 0xe169c58d6627e8d5);
    OK(accelrt_generator_set_offset(generator, 0));
    FAILS(accelrt_generator_set_offset(generator, 3), INVALID_ARGUMENT, "multiple of 4");
    FAILS(accelrt_generator_fill(generator, buffer, 6, stream), INVALID_ARGUMENT, "numbers 6");
    OK(accelrt_generator_seed_randomly(generator, &seed));
    OK(accelrt_generator_set_seed_of_all(ACCELRT_CPU, 9));
    OK(accelrt_generator_get_default(cpu, &shared));
    OK(accelrt_generator_get_seed(shared, &seed));
    ASSERT(seed == 9);
    OK(accelrt_generator_destroy(shared));
    OK(accelrt_generator_destroy(clone));
    OK(accelrt_generator_destroy(generator));
    FAILS(accelrt_generator_set_seed(generator, 1), STALE_HANDLE, "generator");
    accelrt_program *program;
    FAILS(accelrt_program_compile(cpu, "", 0, 0, NULL, &program), UNSUPPORTED, "cpu");
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_destroy(stream));
}

void kernels_are_compiled_and_launched(void)
{
    enum { COUNT = 100 };
    static const char source[] = "kernel void add(global int *numbers, int number) {}";
    accelrt_device xpu = {ACCELRT_XPU, 0};
    accelrt_stream *stream;
    accelrt_buffer *buffer;
    accelrt_program *program;
    accelrt_kernel *kernel;
    int32_t numbers[COUNT], number = 5;
    size_t count, global = COUNT, local = 10, odd = 7;
    char names[32];
    FAILS(accelrt_program_compile(xpu, "x", 1, 0, NULL, &program), BUILD_FAILED, "no kernel");
    OK(accelrt_program_compile(xpu, source, sizeof source - 1, 0, "", &program));
    OK(accelrt_program_get_names(program, names, sizeof names, NULL));
    ASSERT(strcmp(names, "add") == 0);
    FAILS(accelrt_program_get_kernel(program, "sub", &kernel), NOT_FOUND, "sub");
    OK(accelrt_program_get_kernel(program, "add", &kernel));
    OK(accelrt_program_destroy(program)); /* the kernel stays */
    OK(accelrt_kernel_get_argument_count(kernel, &count));
    ASSERT(count == 2);

    OK(accelrt_stream_create(xpu, 0, &stream));
    OK(accelrt_buffer_create_on(stream, sizeof numbers, &buffer));
    OK(accelrt_buffer_fill(buffer, 0, stream));
    accelrt_kernel_argument arguments[] = {
        {.kind = ACCELRT_ARGUMENT_BUFFER, .access = ACCELRT_WRITES, .buffer = buffer},
        {.kind = ACCELRT_ARGUMENT_VALUE, .value = &number, .bytes = sizeof number},
    };
    OK(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, NULL));
    OK(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, &local));
    OK(accelrt_buffer_read(buffer, numbers, sizeof numbers, stream));
    for (int i = 0; i < COUNT; i++)
        ASSERT(numbers[i] == 10);
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 1, 1, &global, NULL),
          INVALID_ARGUMENT, "takes 2 arguments");
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, &odd),
          INVALID_ARGUMENT, "divide");
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 4, &global, NULL),
          INVALID_ARGUMENT, "4 dimensions");
    arguments[1].bytes = 2;
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, NULL),
          INVALID_ARGUMENT, "signed integer of 4 bytes");
    arguments[1].kind = 7;
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, NULL),
          INVALID_ARGUMENT, "kind 7");
    FAILS(accelrt_stream_launch(stream, succeed, NULL, NULL, NULL, 0), UNSUPPORTED, "xpu");
    OK(accelrt_kernel_destroy(kernel));
    FAILS(accelrt_stream_launch_kernel(stream, kernel, arguments, 2, 1, &global, NULL),
          STALE_HANDLE, "kernel");
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_destroy(stream));
}

void a_stream_of_the_driver_is_wrapped(void)
{
    accelrt_device xpu = {ACCELRT_XPU, 0};
    accelrt_stream *owner, *wrapped;
    accelrt_buffer *buffer;
    uint64_t native, same;
    unsigned char bytes[64];
    OK(accelrt_stream_create(xpu, 0, &owner));
    OK(accelrt_stream_get_native(owner, &native));
    OK(accelrt_stream_wrap(xpu, native, &wrapped));
    ASSERT(wrapped != owner);
    OK(accelrt_stream_get_native(wrapped, &same));
    ASSERT(same == native);
    OK(accelrt_buffer_create_on(wrapped, sizeof bytes, &buffer));
    OK(accelrt_buffer_fill(buffer, 6, wrapped));
    OK(accelrt_buffer_read(buffer, bytes, sizeof bytes, wrapped));
    ASSERT(bytes[0] == 6 && bytes[63] == 6);
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_synchronize(wrapped, ACCELRT_NO_LIMIT));
    OK(accelrt_stream_destroy(wrapped));
    OK(accelrt_stream_synchronize(owner, ACCELRT_NO_LIMIT));
    OK(accelrt_stream_destroy(owner));
}

void a_lost_device_is_lost_for_good(void)
{
    accelrt_device xpu = {ACCELRT_XPU, 0};
    accelrt_stream *stream;
    accelrt_buffer *buffer;
    unsigned char bytes[64];
    OK(accelrt_stream_create(xpu, 0, &stream));
    OK(accelrt_buffer_create_on(stream, sizeof bytes, &buffer));
    accelrt_status status = ACCELRT_STATUS_OK;
    for (int i = 0; i < 100 && status == ACCELRT_STATUS_OK; i++) {
        OK(accelrt_buffer_fill(buffer, 1, stream));
        status = accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT);
    }
    ASSERT(status == ACCELRT_STATUS_DEVICE_LOST && strstr(accelrt_error_text(), "lost"));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_destroy(stream));
}
