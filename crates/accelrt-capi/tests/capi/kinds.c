/* Kinds of device from outside: by a table, by a library, by the environment; the kind is that of
 * examples/device/c, which is compiled into this program and as a library. */
#include "check.h"

#include <accelrt_backend.h>

static int32_t fail(void *data, char *error_text, size_t error_capacity)
{
    (void)data;
    (void)error_text;
    (void)error_capacity;
    return 1;
}

static void finish(void *data, accelrt_completion *completion)
{
    ASSERT(data);
    OK(accelrt_completion_finish(completion, "finished so"));
}

/* Fills on a device of the kind, and brings the bytes back. */
static void use(accelrt_device device)
{
    accelrt_stream *stream;
    accelrt_buffer *buffer;
    char bytes[100] = "";
    OK(accelrt_stream_create(device, -1, &stream));
    OK(accelrt_buffer_create_on(stream, sizeof bytes, &buffer));
    OK(accelrt_buffer_fill(buffer, 7, stream));
    OK(accelrt_buffer_read(buffer, bytes, sizeof bytes, stream));
    ASSERT(bytes[0] == 7 && bytes[99] == 7);
    FAILS(accelrt_stream_launch(stream, fail, NULL, NULL, NULL, 0), UNSUPPORTED, "the host as tasks");
    OK(accelrt_stream_launch_deferred(stream, finish, buffer, NULL));
    FAILS(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT), STREAM_FAILED, "finished so");
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_stream_synchronize(stream, ACCELRT_NO_LIMIT));
    OK(accelrt_stream_destroy(stream));
}

static const char *library(void)
{
    const char *path = getenv("TEST_NPU_LIBRARY");
    ASSERT(path);
    return path;
}

void a_kind_is_registered_by_its_table(void)
{
    const accelrt_backend *table = accelrt_backend_table(ACCELRT_BACKEND_ABI_VERSION);
    accelrt_backend wrong = *table;
    int32_t kind = -9, count;
    accelrt_device device;
    FAILS(accelrt_backend_register(NULL, &kind), INVALID_ARGUMENT, "The table of functions brings");
    FAILS(accelrt_backend_register(table, NULL), INVALID_ARGUMENT, "kind is NULL");
    wrong.abi_version = 7;
    FAILS(accelrt_backend_register(&wrong, &kind), INVALID_ARGUMENT, "version 7");
    wrong = *table;
    wrong.copy = NULL;
    FAILS(accelrt_backend_register(&wrong, &kind), INVALID_ARGUMENT, "no function copy");
    wrong = *table;
    wrong.name = "cpu";
    FAILS(accelrt_backend_register(&wrong, &kind), INVALID_ARGUMENT, "cpu");
    FAILS(accelrt_kind_find("npu", &kind), NOT_FOUND, "npu");
    ASSERT(kind == -9);
    OK(accelrt_backend_register(table, &kind));
    ASSERT(kind == 64);
    FAILS(accelrt_backend_register(table, &kind), INVALID_ARGUMENT, "a kind has one");
    OK(accelrt_kind_find("npu", &kind));
    OK(accelrt_device_get_count(kind, &count));
    ASSERT(kind == 64 && count == 2);
    OK(accelrt_device_parse("npu:1", &device));
    use(device);
    FAILS(accelrt_backend_register(table, &kind), INVALID_STATE, "first use");
}

void a_kind_is_loaded_from_its_library(void)
{
    const accelrt_device first = {64, 0};
    int32_t kind = -9;
    FAILS(accelrt_backend_load("/nowhere/libnpu.so", &kind), INVALID_ARGUMENT, "No such file");
    FAILS(accelrt_backend_load("libm.so.6", &kind), INVALID_ARGUMENT, "exports no function");
    FAILS(accelrt_backend_load(NULL, &kind), INVALID_ARGUMENT, "path is NULL");
    FAILS(accelrt_backend_load(library(), NULL), INVALID_ARGUMENT, "kind is NULL");
    ASSERT(kind == -9);
    OK(accelrt_backend_load(library(), &kind));
    ASSERT(kind == first.kind);
    FAILS(accelrt_backend_load(library(), &kind), INVALID_ARGUMENT, "a kind has one");
    use(first);
}

void a_kind_that_comes_too_late_is_refused(void)
{
    int32_t kind = -9;
    OK(accelrt_runtime_begin());
    FAILS(accelrt_backend_load(library(), &kind), INVALID_STATE, "first use");
    FAILS(accelrt_kind_find("npu", &kind), NOT_FOUND, "npu");
    ASSERT(kind == -9);
}

void the_environment_brings_a_kind(void)
{
    const accelrt_device current = {ACCELRT_ACCELERATOR, ACCELRT_CURRENT};
    accelrt_device device;
    int32_t kind;
    OK(accelrt_device_parse("npu:1", &device)); /* before the first use */
    ASSERT(device.kind == 64 && device.index == 1);
    OK(accelrt_kind_get_accelerator(&kind));
    ASSERT(kind == 64);
    use(current);
}

void a_wrong_kind_of_the_environment_fails_the_first_use(void)
{
    int32_t kind;
    OK(accelrt_setting_set("ACCELRT_KINDS", "npu=/nowhere/libnpu.so"));
    OK(accelrt_kind_find("cpu", &kind));
    FAILS(accelrt_kind_find("npu", &kind), INVALID_SETTING, "/nowhere/libnpu.so");
    FAILS(accelrt_runtime_begin(), INVALID_SETTING, "No such file");
}
