/* The library's life: versions, settings, devices, threads, a fork, the shutdown. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

void versions_and_the_table_agree(void)
{
    const accelrt_table *table = accelrt_get_table();
    ASSERT(accelrt_abi_version() == ACCELRT_ABI_VERSION);
    ASSERT(strcmp(accelrt_version(), VERSION) == 0);
    ASSERT(table->abi == ACCELRT_ABI_VERSION && table->size == sizeof *table);
    size_t count = 0;
    /* Of one type, as the comparison shows, and of one address. */
#define SAME(function)                                                                             \
    ASSERT(table->function == accelrt_##function);                                                 \
    ASSERT(ACCELRT_TABLE_HAS(table, function));                                                    \
    count++;
    ACCELRT_FOR_EACH_FUNCTION(SAME)
    ASSERT(count == table->count);
    accelrt_table older = {.size = offsetof(accelrt_table, stream_query)};
    ASSERT(!ACCELRT_TABLE_HAS(&older, stream_query));
}

void settings_before_the_first_use_count(void)
{
    char text[32];
    size_t length;
    int32_t count, is_initialized;
    setenv("ACCELRT_CPU_THREADS", "3", 1);
    OK(accelrt_setting_get("ACCELRT_CPU_THREADS", text, sizeof text, NULL));
    ASSERT(strcmp(text, "3") == 0);
    OK(accelrt_setting_set("ACCELRT_CPU_DEVICES", "7"));
    OK(accelrt_setting_set("ACCELRT_CPU_DEVICES", "4"));
    OK(accelrt_setting_get("ACCELRT_CPU_DEVICES", text, 1, &length));
    ASSERT(length == 1 && text[0] == 0);
    OK(accelrt_setting_set("ACCELRT_CPU_MEMORY", "64M"));
    OK(accelrt_setting_set("ACCELRT_CPU_MEMORY", NULL));
    FAILS(accelrt_setting_set("ACCELRT_CPU_DEVICE", "4"), INVALID_ARGUMENT, "ACCELRT_CPU_DEVICE");
    FAILS(accelrt_setting_get("PATH", text, sizeof text, NULL), INVALID_ARGUMENT, "PATH");
    OK(accelrt_device_get_count(ACCELRT_CPU, &count));
    ASSERT(count == 4);
    OK(accelrt_runtime_query(&is_initialized));
    ASSERT(!is_initialized);
    uint64_t total_bytes;
    OK(accelrt_device_get_memory(cpu, NULL, &total_bytes));
    ASSERT(total_bytes > 64 << 20);
    FAILS(accelrt_setting_set("ACCELRT_CPU_DEVICES", "5"), INVALID_STATE, "first use");
    OK(accelrt_setting_get("ACCELRT_CPU_DEVICES", text, sizeof text, NULL));
    ASSERT(strcmp(text, "4") == 0);
}

void a_wrong_setting_fails_the_first_use(void)
{
    int32_t count;
    OK(accelrt_setting_set("ACCELRT_CPU_DEVICES", "many"));
    FAILS(accelrt_device_get_count(ACCELRT_CPU, &count), INVALID_SETTING, "many");
    FAILS(accelrt_runtime_begin(), INVALID_SETTING, "ACCELRT_CPU_DEVICES");
    OK(accelrt_setting_set("ACCELRT_CPU_DEVICES", "2"));
    OK(accelrt_runtime_begin());
    OK(accelrt_device_get_count(ACCELRT_CPU, &count));
    ASSERT(count == 2);
}

void devices_are_counted_named_and_made_current(void)
{
    OK(accelrt_setting_set("ACCELRT_CPU_DEVICES", "3"));
    int32_t kind, count;
    OK(accelrt_kind_get_accelerator(&kind));
    ASSERT(kind == ACCELRT_CPU);
    OK(accelrt_device_get_count(ACCELRT_CUDA, &count));
    ASSERT(count == 0);
    FAILS(accelrt_device_get_count(77, &count), NOT_FOUND, "77");
    OK(accelrt_kind_find("xpu", &kind));
    ASSERT(kind == ACCELRT_XPU);
    FAILS(accelrt_kind_find("npu", &kind), NOT_FOUND, "npu");
    char text[256];
    size_t length;
    OK(accelrt_kind_get_name(ACCELRT_XPU, text, sizeof text, &length));
    ASSERT(strcmp(text, "xpu") == 0 && length == 3);
    OK(accelrt_kind_get_name(ACCELRT_XPU, text, 3, &length));
    ASSERT(strcmp(text, "xp") == 0 && length == 3);

    accelrt_device device, other = {ACCELRT_ACCELERATOR, 2};
    OK(accelrt_device_parse("cpu:1", &device));
    ASSERT(device.kind == ACCELRT_CPU && device.index == 1);
    FAILS(accelrt_device_parse("cpu:01", &device), INVALID_ARGUMENT, "cpu:01");
    OK(accelrt_device_exchange(other, &device));
    ASSERT(device.kind == ACCELRT_CPU && device.index == 0);
    OK(accelrt_device_get_current(ACCELRT_ACCELERATOR, &device));
    ASSERT(device.index == 2);
    other.index = 3;
    FAILS(accelrt_device_exchange(other, NULL), NOT_FOUND, "cpu:3");
    other.index = 128;
    FAILS(accelrt_device_exchange(other, NULL), INVALID_ARGUMENT, "128");
    other.index = -2;
    FAILS(accelrt_device_exchange(other, NULL), INVALID_ARGUMENT, "-2");
    accelrt_device of_cpu = {ACCELRT_CPU, 127};
    FAILS(accelrt_device_exchange(of_cpu, NULL), NOT_FOUND, "cpu:127");
    of_cpu.index = 128;
    FAILS(accelrt_device_exchange(of_cpu, NULL), INVALID_ARGUMENT, "128");
    of_cpu.index = -2;
    FAILS(accelrt_device_exchange(of_cpu, NULL), INVALID_ARGUMENT, "-2");

    OK(accelrt_device_get_name(device, NULL, 0, &length));
    OK(accelrt_device_get_name(device, text, sizeof text, NULL));
    ASSERT(length > 0 && length == strlen(text));
    accelrt_device_properties properties = {.size = sizeof properties};
    OK(accelrt_device_get_properties(device, &properties));
    ASSERT(properties.total_memory_bytes > 0 && properties.core_count > 0);
    ASSERT(!properties.is_gpu && properties.greatest_priority <= properties.least_priority);
    uint64_t free_bytes, total_bytes;
    OK(accelrt_device_get_memory(device, &free_bytes, &total_bytes));
    ASSERT(free_bytes <= total_bytes);
    OK(accelrt_device_synchronize(device, ACCELRT_NO_LIMIT));
}

enum { THREADS = 4, ROUNDS = 3000, HELD = 100 };

static void *come_and_go(void *data)
{
    accelrt_event *held[HELD] = {NULL};
    accelrt_stream *stream = data;
    for (int i = 0; i < ROUNDS; i++) {
        accelrt_event **event = &held[(i * 37) % HELD];
        if (*event) {
            int32_t is_done;
            OK(accelrt_event_query(*event, &is_done));
            OK(accelrt_event_destroy(*event));
            FAILS(accelrt_event_destroy(*event), STALE_HANDLE, "event");
        }
        OK(accelrt_event_create(0, event));
        OK(accelrt_event_record(*event, stream));
    }
    for (int i = 0; i < HELD; i++)
        OK(accelrt_event_destroy(held[i]));
    return NULL;
}

void handles_come_and_go_on_many_threads(void)
{
    accelrt_stream *stream;
    OK(accelrt_stream_create(cpu, 0, &stream));
    for (int round = 0; round < 2; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            ASSERT(!pthread_create(&threads[i], NULL, come_and_go, stream));
        for (int i = 0; i < THREADS; i++)
            ASSERT(!pthread_join(threads[i], NULL));
    }
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    OK(accelrt_stream_destroy(stream));
}

void a_forked_child_is_refused(void)
{
    accelrt_stream *stream, *other;
    accelrt_event *event;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_event_create(0, &event));
    OK(accelrt_event_record(event, stream));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    uint64_t address;
    accelrt_buffer *buffer;
    OK(accelrt_memory_allocate(stream, 100, &address));
    OK(accelrt_buffer_create(cpu, 100, &buffer));
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        int32_t count;
        OK(accelrt_device_get_count(ACCELRT_CPU, &count));
        FAILS(accelrt_event_record(event, stream), FORKED, "forked");
        FAILS(accelrt_stream_create(cpu, 0, &other), FORKED, "forked");
        FAILS(accelrt_stream_synchronize(stream, 1), FORKED, "forked");
        for (int i = 0; i < 100; i++) { /* more than the vacant slots of the thread */
            accelrt_buffer *slice;
            FAILS(accelrt_buffer_slice(buffer, 0, 8, &slice), FORKED, "forked");
        }
        char text[8];
        size_t length;
        FAILS(accelrt_memory_get_settings(text, sizeof text, &length), FORKED, "forked");
        FAILS(accelrt_memory_enter_tag("tag"), FORKED, "forked");
        OK(accelrt_event_destroy(event));
        OK(accelrt_stream_destroy(stream));
        OK(accelrt_buffer_destroy(buffer));
        OK(accelrt_memory_free(address));
        OK(accelrt_memory_free(address)); // has no effect in a child, whose table may be locked
        exit(0);
    }
    int status;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(accelrt_event_record(event, stream));
    OK(accelrt_event_synchronize(event, ACCELRT_NO_LIMIT));
    OK(accelrt_memory_free(address));
    OK(accelrt_buffer_destroy(buffer));
}

void what_comes_behind_the_shutdown_is_refused(void)
{
    accelrt_stream *stream, *other;
    accelrt_buffer *buffer;
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_buffer_create(cpu, 100, &buffer));
    OK(accelrt_runtime_shutdown());
    OK(accelrt_runtime_shutdown());
    FAILS(accelrt_stream_create(cpu, 0, &other), SHUT_DOWN, "shut down");
    FAILS(accelrt_buffer_fill(buffer, 1, stream), SHUT_DOWN, "shut down");
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_destroy(stream));
}
