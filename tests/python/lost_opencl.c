/* A device that goes away on a real driver: between accelrt and the loader, which it is linked to.
 *
 * Until `lose()` every call goes through. From then on what would reach the device answers as a
 * driver does whose device is gone; what gives something back still reaches the driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NOT_AVAILABLE = -2 };

static atomic_bool is_lost;

void lose(void) { atomic_store(&is_lost, 1); }

typedef int32_t (*enqueue_events)(void *, uint32_t, const void *, void *);
typedef int32_t (*on_object)(void *);
typedef int32_t (*on_events)(uint32_t, const void *);
typedef int32_t (*copy)(void *, uint32_t, void *, const void *, size_t, uint32_t, const void *,
                        void *);
typedef int32_t (*fill)(void *, void *, const void *, size_t, size_t, uint32_t, const void *,
                        void *);
typedef void *(*make_on)(void *, void *, const void *, size_t, uint32_t, int32_t *);
typedef void *(*make_queue)(void *, void *, const void *, int32_t *);
typedef void *(*find)(void *, const char *);

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

int32_t clEnqueueMarkerWithWaitList(void *queue, uint32_t count, const void *list, void *event)
{
    if (is_lost)
        return NOT_AVAILABLE;
    return NEXT(enqueue_events, "clEnqueueMarkerWithWaitList")(queue, count, list, event);
}

int32_t clFlush(void *queue) { return is_lost ? NOT_AVAILABLE : NEXT(on_object, "clFlush")(queue); }

int32_t clFinish(void *queue)
{
    return is_lost ? NOT_AVAILABLE : NEXT(on_object, "clFinish")(queue);
}

int32_t clWaitForEvents(uint32_t count, const void *events)
{
    return is_lost ? NOT_AVAILABLE : NEXT(on_events, "clWaitForEvents")(count, events);
}

void *clCreateCommandQueueWithProperties(void *context, void *device, const void *properties,
                                         int32_t *code)
{
    if (!is_lost)
        return NEXT(make_queue, "clCreateCommandQueueWithProperties")(context, device, properties,
                                                                      code);
    *code = NOT_AVAILABLE;
    return NULL;
}

static copy real_copy;
static fill real_fill;
static make_on real_device, real_shared;

static int32_t lossy_copy(void *queue, uint32_t is_blocking, void *to, const void *from,
                          size_t bytes, uint32_t count, const void *list, void *event)
{
    return is_lost ? NOT_AVAILABLE
                   : real_copy(queue, is_blocking, to, from, bytes, count, list, event);
}

static int32_t lossy_fill(void *queue, void *to, const void *pattern, size_t pattern_bytes,
                          size_t bytes, uint32_t count, const void *list, void *event)
{
    return is_lost ? NOT_AVAILABLE
                   : real_fill(queue, to, pattern, pattern_bytes, bytes, count, list, event);
}

static void *lossy(make_on real, void *context, void *device, const void *properties, size_t bytes,
                   uint32_t align, int32_t *code)
{
    if (!is_lost)
        return real(context, device, properties, bytes, align, code);
    *code = NOT_AVAILABLE;
    return NULL;
}

static void *lossy_device(void *context, void *device, const void *properties, size_t bytes,
                          uint32_t align, int32_t *code)
{
    return lossy(real_device, context, device, properties, bytes, align, code);
}

static void *lossy_shared(void *context, void *device, const void *properties, size_t bytes,
                          uint32_t align, int32_t *code)
{
    return lossy(real_shared, context, device, properties, bytes, align, code);
}

void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name)
{
    static const struct {
        const char *name;
        void *ours, *real;
    } wrapped[] = {
        {"clEnqueueMemcpyINTEL", (void *)lossy_copy, &real_copy},
        {"clEnqueueMemFillINTEL", (void *)lossy_fill, &real_fill},
        {"clDeviceMemAllocINTEL", (void *)lossy_device, &real_device},
        {"clSharedMemAllocINTEL", (void *)lossy_shared, &real_shared},
    };
    void *found = NEXT(find, "clGetExtensionFunctionAddressForPlatform")(platform, name);
    for (size_t index = 0; found != NULL && index < sizeof wrapped / sizeof *wrapped; index++)
        if (strcmp(wrapped[index].name, name) == 0) {
            memcpy(wrapped[index].real, &found, sizeof found);
            return wrapped[index].ours;
        }
    return found;
}
