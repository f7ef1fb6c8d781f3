/* Platforms, devices and contexts: what exists and what it says of itself. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

enum { PLATFORM = 0x00F1A7F0, DEVICE = 0x00DEF1CE };
enum { VERSION_3_0 = 3 << 22 };

static struct _cl_platform_id platforms[MOST_PLATFORMS] = {{PLATFORM, 0}, {PLATFORM, 1}};
struct _cl_device_id fake_devices[MOST_PLATFORMS * MOST_DEVICES] = {
    [0 ... MOST_PLATFORMS * MOST_DEVICES - 1] = {.magic = DEVICE, .lost_after = UINT64_MAX}};

/* A vendor's thread that answers questions: in a forked child nobody does. */
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static bool has_thread;
static uint64_t questions, answers;

static void *answer_questions(void *nothing)
{
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (answers == questions)
            pthread_cond_wait(&asked, &fake_lock);
        answers = questions;
        pthread_cond_broadcast(&fake_changed);
    }
    return nothing;
}

/* What a vendor does when somebody looks at its devices. */
static void probe(void)
{
    pthread_mutex_lock(&fake_lock);
    if (fake_settings.threads_at_probe) {
        pthread_t thread;
        if (!has_thread && pthread_create(&thread, NULL, answer_questions, NULL) == 0) {
            pthread_detach(thread);
            has_thread = true;
            fake_thread_counts(1);
        }
        uint64_t question = ++questions;
        pthread_cond_signal(&asked);
        while (answers < question)
            pthread_cond_wait(&fake_changed, &fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
}

bool fake_is_device(cl_device_id device)
{
    return device != NULL && device->magic == DEVICE;
}

bool fake_device_has_usm(cl_device_id device)
{
    return !fake_list_has(fake_settings.usm, device->index, "0");
}

void fake_lose(unsigned index)
{
    fake_devices[index].is_lost = true;
    fake_wake_queues();
    pthread_cond_broadcast(&fake_changed);
}

static bool is_platform(cl_platform_id platform)
{
    return platform != NULL && platform->magic == PLATFORM;
}

EXPORT cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *into, cl_uint *count)
{
    ENTER(clGetPlatformIDs);
    if (fake_settings.platforms == 0)
        return CL_PLATFORM_NOT_FOUND_KHR;
    probe();
    for (unsigned index = 0; into != NULL && index < room; index++)
        if (index < fake_settings.platforms)
            into[index] = &platforms[index];
    if (count != NULL)
        *count = fake_settings.platforms;
    return CL_SUCCESS;
}

EXPORT cl_int clGetPlatformInfo(cl_platform_id platform, cl_uint name, size_t room, void *into,
                                size_t *needed)
{
    ENTER(clGetPlatformInfo);
    if (!is_platform(platform))
        return CL_INVALID_PLATFORM;
    const cl_uint version = VERSION_3_0;
    switch (name) {
    case CL_PLATFORM_PROFILE:
        return fake_answer_text("FULL_PROFILE", room, into, needed);
    case CL_PLATFORM_VERSION:
        return fake_answer_text("OpenCL 3.0 fake", room, into, needed);
    case CL_PLATFORM_NAME:
        return fake_answer_text("Fake OpenCL", room, into, needed);
    case CL_PLATFORM_VENDOR:
        return fake_answer_text("accelrt tests", room, into, needed);
    case CL_PLATFORM_EXTENSIONS:
        return fake_answer_text("cl_khr_icd", room, into, needed);
    case CL_PLATFORM_NUMERIC_VERSION:
        return fake_answer(&version, sizeof version, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

static cl_bitfield device_type(unsigned index)
{
    if (fake_list_has(fake_settings.type, index, "cpu"))
        return CL_DEVICE_TYPE_CPU;
    if (fake_list_has(fake_settings.type, index, "accelerator"))
        return CL_DEVICE_TYPE_ACCELERATOR;
    return CL_DEVICE_TYPE_GPU;
}

EXPORT cl_int clGetDeviceIDs(cl_platform_id platform, cl_bitfield type, cl_uint room,
                             cl_device_id *into, cl_uint *count)
{
    ENTER(clGetDeviceIDs);
    if (!is_platform(platform))
        return CL_INVALID_PLATFORM;
    probe();
    cl_uint found = 0;
    for (unsigned index = 0; index < fake_settings.devices; index++) {
        unsigned overall = platform->index * fake_settings.devices + index;
        cl_device_id device = &fake_devices[overall];
        device->index = overall;
        device->platform = platform;
        bool fits = (device_type(overall) & type) != 0 || type == CL_DEVICE_TYPE_DEFAULT;
        if (!fits)
            continue;
        if (into != NULL && found < room)
            into[found] = device;
        found++;
    }
    if (count != NULL)
        *count = found;
    return found > 0 ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

/* Properties that are texts; NULL for others. `place` has room for one that is made. */
static const char *device_text(cl_device_id device, cl_uint name, char *place, size_t room)
{
    switch (name) {
    case CL_DEVICE_NAME:
        snprintf(place, room, "%s %u", fake_settings.name, device->index);
        return place;
    case CL_DEVICE_VENDOR:
        return "accelrt tests";
    case CL_DRIVER_VERSION:
        return "1.2.3";
    case CL_DEVICE_PROFILE:
        return "FULL_PROFILE";
    case CL_DEVICE_VERSION:
        return "OpenCL 3.0 fake";
    case CL_DEVICE_OPENCL_C_VERSION:
        return "OpenCL C 1.2 fake";
    case CL_DEVICE_IL_VERSION:
        return "SPIR-V_1.2";
    case CL_DEVICE_EXTENSIONS:
        snprintf(place, room, "cl_khr_icd%s%s",
                 fake_settings.priorities ? " cl_khr_priority_hints" : "",
                 fake_device_has_usm(device) ? " cl_intel_unified_shared_memory" : "");
        return place;
    default:
        return NULL;
    }
}

/* Properties that are 32-bit numbers. */
static bool device_number(cl_device_id device, cl_uint name, cl_uint *number)
{
    static const struct {
        cl_uint name, number;
    } numbers[] = {
        {CL_DEVICE_VENDOR_ID, 0xFA4E},
        {CL_DEVICE_MAX_COMPUTE_UNITS, 4},
        {CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, 3},
        {CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000},
        {CL_DEVICE_ADDRESS_BITS, 64},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024},
        {CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, 64},
        {CL_DEVICE_COMPILER_AVAILABLE, 1},
        {CL_DEVICE_HOST_UNIFIED_MEMORY, 0},
        {CL_DEVICE_PARTITION_MAX_SUB_DEVICES, 0},
        {CL_DEVICE_MAX_NUM_SUB_GROUPS, 8},
        {CL_DEVICE_NUMERIC_VERSION, VERSION_3_0},
    };
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        if (numbers[index].name == name) {
            *number = numbers[index].number;
            return true;
        }
    if (name != CL_DEVICE_AVAILABLE)
        return false;
    pthread_mutex_lock(&fake_lock);
    *number = !device->is_lost;
    pthread_mutex_unlock(&fake_lock);
    return true;
}

static cl_ulong most_alloc(void)
{
    return fake_settings.most_alloc != 0 ? fake_settings.most_alloc : fake_settings.memory;
}

/* Properties that are 64-bit numbers. */
static bool device_long(cl_device_id device, cl_uint name, cl_ulong *number)
{
    bool has_usm = fake_device_has_usm(device);
    switch (name) {
    case CL_DEVICE_TYPE:
        *number = device_type(device->index);
        return true;
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        *number = fake_settings.memory;
        return true;
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        *number = most_alloc();
        return true;
    case CL_DEVICE_LOCAL_MEM_SIZE:
        *number = 65536;
        return true;
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
        *number = 1u << 20;
        return true;
    case CL_DEVICE_SINGLE_FP_CONFIG:
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        *number = 63;
        return true;
    case CL_DEVICE_HALF_FP_CONFIG:
        *number = 0;
        return true;
    case CL_DEVICE_QUEUE_ON_HOST_PROPERTIES:
        *number = fake_settings.profiling ? CL_QUEUE_PROFILING_ENABLE : 0;
        return true;
    case CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL:
        *number = has_usm;
        return true;
    case CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
        *number = has_usm && fake_settings.shared;
        return true;
    case CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL:
        *number = 0;
        return true;
    default:
        return false;
    }
}

EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_uint name, size_t room, void *into,
                              size_t *needed)
{
    ENTER(clGetDeviceInfo);
    if (!fake_is_device(device))
        return CL_INVALID_DEVICE;
    probe();
    char place[WORD * 4];
    const char *text = device_text(device, name, place, sizeof place);
    if (text != NULL)
        return fake_answer_text(text, room, into, needed);
    cl_uint number = 0;
    if (device_number(device, name, &number))
        return fake_answer(&number, sizeof number, room, into, needed);
    cl_ulong longer = 0;
    if (device_long(device, name, &longer))
        return fake_answer(&longer, sizeof longer, room, into, needed);
    const size_t sizes[] = {256, 256, 64}, sub_groups[] = {8, 16}, resolution = 1;
    switch (name) {
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return fake_answer(sizes, sizeof *sizes, room, into, needed);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return fake_answer(sizes, sizeof sizes, room, into, needed);
    case CL_DEVICE_SUB_GROUP_SIZES_INTEL:
        return fake_answer(sub_groups, sizeof sub_groups, room, into, needed);
    case CL_DEVICE_PROFILING_TIMER_RESOLUTION:
        return fake_answer(&resolution, sizeof resolution, room, into, needed);
    case CL_DEVICE_PLATFORM:
        return fake_answer(&device->platform, sizeof device->platform, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

EXPORT cl_context clCreateContext(const cl_properties *properties, cl_uint count,
                                  const cl_device_id *devices, context_callback callback,
                                  void *data, cl_int *code)
{
    (void)properties, (void)callback, (void)data;
    ENTER_MAKER(clCreateContext, code);
    if (count == 0 || count > MOST_DEVICES || devices == NULL)
        return fake_refuse(code, CL_INVALID_VALUE);
    for (cl_uint index = 0; index < count; index++)
        if (!fake_is_device(devices[index]) || devices[index]->platform != devices[0]->platform)
            return fake_refuse(code, CL_INVALID_DEVICE);
    pthread_mutex_lock(&fake_lock);
    cl_context context = fake_make(CONTEXT, sizeof *context);
    pthread_mutex_unlock(&fake_lock);
    context->device_count = count;
    memcpy(context->devices, devices, count * sizeof *devices);
    fake_refuse(code, CL_SUCCESS);
    return context;
}

EXPORT cl_int clRetainContext(cl_context context)
{
    ENTER(clRetainContext);
    return fake_user_retain(context, CONTEXT, CL_INVALID_CONTEXT);
}

EXPORT cl_int clReleaseContext(cl_context context)
{
    ENTER(clReleaseContext);
    return fake_user_release(context, CONTEXT, CL_INVALID_CONTEXT);
}

bool fake_context_has(cl_context context, cl_device_id device)
{
    for (cl_uint index = 0; index < context->device_count; index++)
        if (context->devices[index] == device)
            return true;
    return false;
}

EXPORT cl_int clGetContextInfo(cl_context context, cl_uint name, size_t room, void *into,
                               size_t *needed)
{
    ENTER(clGetContextInfo);
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(context, CONTEXT);
    cl_uint references = is_valid ? context->object.user_references : 0;
    pthread_mutex_unlock(&fake_lock);
    if (!is_valid)
        return CL_INVALID_CONTEXT;
    size_t bytes = context->device_count * sizeof *context->devices;
    switch (name) {
    case CL_CONTEXT_REFERENCE_COUNT:
        return fake_answer(&references, sizeof references, room, into, needed);
    case CL_CONTEXT_NUM_DEVICES:
        return fake_answer(&context->device_count, sizeof(cl_uint), room, into, needed);
    case CL_CONTEXT_DEVICES:
        return fake_answer(context->devices, bytes, room, into, needed);
    default:
        return CL_INVALID_VALUE;
    }
}
