/* Unified shared memory: device memory whose addresses the host cannot read, host and shared. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

enum { PAGE = 4096, MOST_SCALAR = 128 };

/* Sorted by address; freed ones stay while commands use them. */
static struct allocation **table;
static size_t table_count, table_room;

static size_t place_of(const void *address)
{
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((const char *)table[middle]->address <= (const char *)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct allocation *fake_find(const void *address)
{
    size_t place = place_of(address);
    if (place == 0)
        return NULL;
    struct allocation *found = table[place - 1];
    bool is_inside = (const char *)address < found->address + found->size;
    return is_inside ? found : NULL;
}

static void insert(struct allocation *allocation)
{
    if (table_count == table_room) {
        table_room = table_room * 2 + 64;
        table = realloc(table, table_room * sizeof *table);
        if (table == NULL)
            abort();
    }
    size_t place = place_of(allocation->address);
    memmove(table + place + 1, table + place, (table_count - place) * sizeof *table);
    table[place] = allocation;
    table_count++;
}

static void destroy(struct allocation *allocation)
{
    size_t place = place_of(allocation->address) - 1;
    memmove(table + place, table + place + 1, (table_count - place - 1) * sizeof *table);
    table_count--;
    munmap(allocation->address, allocation->mapped_bytes);
    if (allocation->bytes != allocation->address)
        munmap(allocation->bytes, allocation->shadow_bytes);
    fake_let_go(allocation->context);
    free(allocation);
}

void *fake_bytes(const void *address)
{
    struct allocation *found = fake_find(address);
    if (found == NULL)
        return (void *)address;
    return found->bytes + ((const char *)address - found->address);
}

bool fake_use(const void *address, size_t size, struct allocation **use)
{
    *use = fake_find(address);
    if (*use == NULL)
        return true;
    if ((*use)->is_freed) {
        fake_violation("memory is used that was freed", address);
        *use = NULL;
        return false;
    }
    if (size > (size_t)((*use)->address + (*use)->size - (const char *)address)) {
        fake_violation("a command leaves its allocation", address);
        *use = NULL;
        return false;
    }
    (*use)->uses++;
    return true;
}

void fake_unuse(struct allocation *use)
{
    if (--use->uses == 0 && use->is_freed)
        destroy(use);
}

uint64_t fake_allocations(uint64_t *bytes)
{
    uint64_t count = 0;
    for (size_t index = 0; index < table_count; index++)
        if (!table[index]->is_freed) {
            count++;
            *bytes += table[index]->size;
        }
    return count;
}

/* Maps `size` bytes at a multiple of `align`; NULL when the system has none. */
static char *map(size_t size, size_t align, int protection)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *range = mmap(NULL, size + align, protection, flags, -1, 0);
    if (range == MAP_FAILED)
        return NULL;
    size_t skip = (align - (uintptr_t)range % align) % align;
    if (skip > 0)
        munmap(range, skip);
    if (align > skip)
        munmap(range + skip + size, align - skip);
    return range + skip;
}

static void *allocate(cl_context context, cl_device_id device, cl_uint type, size_t size,
                      cl_uint align, cl_int *code)
{
    pthread_mutex_lock(&fake_lock);
    bool is_valid = fake_valid(context, CONTEXT);
    pthread_mutex_unlock(&fake_lock);
    if (!is_valid)
        return fake_refuse(code, CL_INVALID_CONTEXT);
    if (type != CL_MEM_TYPE_HOST_INTEL && !fake_context_has(context, device))
        return fake_refuse(code, CL_INVALID_DEVICE);
    cl_device_id owner = type == CL_MEM_TYPE_HOST_INTEL ? context->devices[0] : device;
    bool is_shared = type == CL_MEM_TYPE_SHARED_INTEL;
    if (!fake_device_has_usm(owner) || (is_shared && !fake_settings.shared))
        return fake_refuse(code, CL_INVALID_OPERATION);
    if ((align & (align - 1)) != 0 || align > fake_settings.most_align)
        return fake_refuse(code, CL_INVALID_VALUE);
    uint64_t limit = fake_settings.most_alloc ? fake_settings.most_alloc : fake_settings.memory;
    if (size == 0 || size > limit)
        return fake_refuse(code, CL_INVALID_BUFFER_SIZE);
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    bool is_device = type == CL_MEM_TYPE_DEVICE_INTEL, is_host = type == CL_MEM_TYPE_HOST_INTEL;
    size_t aligned = align > PAGE ? align : PAGE;
    struct allocation *made = calloc(1, sizeof *made);
    void *result = NULL;
    pthread_mutex_lock(&fake_lock);
    cl_int refused = CL_SUCCESS;
    if (owner->is_lost)
        refused = fake_settings.lost_code;
    else if (!is_host && device->used_bytes + size > fake_settings.memory)
        refused = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (refused == CL_SUCCESS) {
        made->address = map(whole, aligned, is_device ? PROT_NONE : PROT_READ | PROT_WRITE);
        made->bytes = is_device ? map(whole, PAGE, PROT_READ | PROT_WRITE) : made->address;
        if (made->address == NULL || made->bytes == NULL)
            abort();
        made->size = size;
        made->mapped_bytes = made->shadow_bytes = whole;
        made->type = type;
        made->device = is_host ? NULL : device;
        made->context = context;
        /* New memory of a device holds anything. */
        if (is_device)
            memset(made->bytes, 0xA5, size < PAGE ? size : PAGE);
        fake_keep(context);
        if (!is_host)
            device->used_bytes += size;
        insert(made);
        result = made->address;
    }
    pthread_mutex_unlock(&fake_lock);
    if (result == NULL)
        free(made);
    fake_refuse(code, refused);
    return result;
}

void *clHostMemAllocINTEL(cl_context context, const cl_bitfield *properties, size_t size,
                          cl_uint align, cl_int *code)
{
    (void)properties;
    ENTER_MAKER(clHostMemAllocINTEL, code);
    return allocate(context, NULL, CL_MEM_TYPE_HOST_INTEL, size, align, code);
}

void *clDeviceMemAllocINTEL(cl_context context, cl_device_id device,
                            const cl_bitfield *properties, size_t size, cl_uint align,
                            cl_int *code)
{
    (void)properties;
    ENTER_MAKER(clDeviceMemAllocINTEL, code);
    return allocate(context, device, CL_MEM_TYPE_DEVICE_INTEL, size, align, code);
}

void *clSharedMemAllocINTEL(cl_context context, cl_device_id device,
                            const cl_bitfield *properties, size_t size, cl_uint align,
                            cl_int *code)
{
    (void)properties;
    ENTER_MAKER(clSharedMemAllocINTEL, code);
    return allocate(context, device, CL_MEM_TYPE_SHARED_INTEL, size, align, code);
}

/* Locked. */
static cl_int free_at(cl_context context, void *address, bool is_blocking)
{
    if (!fake_valid(context, CONTEXT))
        return CL_INVALID_CONTEXT;
    if (address == NULL)
        return CL_SUCCESS;
    struct allocation *found = fake_find(address);
    if (found == NULL || found->address != address || found->is_freed ||
        found->context != context) {
        fake_violation("memory is freed that is none", address);
        return CL_INVALID_VALUE;
    }
    if (is_blocking && found->uses > 0)
        fake_flush_all(context);
    while (is_blocking && found->uses > 0)
        pthread_cond_wait(&fake_changed, &fake_lock);
    if (found->uses > 0)
        fake_violation("memory is freed while a command uses it", address);
    if (found->type != CL_MEM_TYPE_HOST_INTEL)
        found->device->used_bytes -= found->size;
    found->is_freed = true;
    if (found->uses == 0)
        destroy(found);
    return CL_SUCCESS;
}

cl_int clMemFreeINTEL(cl_context context, void *address)
{
    ENTER(clMemFreeINTEL);
    pthread_mutex_lock(&fake_lock);
    cl_int code = free_at(context, address, false);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

cl_int clMemBlockingFreeINTEL(cl_context context, void *address)
{
    ENTER(clMemBlockingFreeINTEL);
    pthread_mutex_lock(&fake_lock);
    cl_int code = free_at(context, address, true);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

cl_int clGetMemAllocInfoINTEL(cl_context context, const void *address, cl_uint name, size_t room,
                              void *into, size_t *needed)
{
    ENTER(clGetMemAllocInfoINTEL);
    pthread_mutex_lock(&fake_lock);
    struct allocation none = {.type = CL_MEM_TYPE_UNKNOWN_INTEL}, *found = &none;
    bool is_valid = fake_valid(context, CONTEXT);
    struct allocation *owner = fake_find(address);
    if (owner != NULL && !owner->is_freed && owner->context == context)
        found = owner;
    cl_int code = CL_INVALID_VALUE;
    if (!is_valid)
        code = CL_INVALID_CONTEXT;
    else if (name == CL_MEM_ALLOC_TYPE_INTEL)
        code = fake_answer(&found->type, sizeof found->type, room, into, needed);
    else if (name == CL_MEM_ALLOC_BASE_PTR_INTEL)
        code = fake_answer(&found->address, sizeof found->address, room, into, needed);
    else if (name == CL_MEM_ALLOC_SIZE_INTEL)
        code = fake_answer(&found->size, sizeof found->size, room, into, needed);
    else if (name == CL_MEM_ALLOC_DEVICE_INTEL)
        code = fake_answer(&found->device, sizeof found->device, room, into, needed);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

/* The command that the two below have in common, with what it uses counted. */
static struct command *transfer(void *to, const void *from, size_t bytes)
{
    struct command *command = calloc(1, sizeof *command);
    const void *places[] = {to, from};
    bool is_right = true;
    pthread_mutex_lock(&fake_lock);
    for (int index = 0; index < 2 && is_right; index++) {
        struct allocation *use = NULL;
        if (places[index] != NULL)
            is_right = fake_use(places[index], bytes, &use);
        if (use != NULL)
            command->uses[command->use_count++] = use;
    }
    if (is_right) {
        command->to = fake_bytes(to);
        command->from = from == NULL ? NULL : fake_bytes(from);
        command->bytes = bytes;
    } else {
        while (command->use_count > 0)
            fake_unuse(command->uses[--command->use_count]);
        free(command);
    }
    pthread_mutex_unlock(&fake_lock);
    return is_right ? command : NULL;
}

cl_int clEnqueueMemFillINTEL(cl_command_queue queue, void *to, const void *pattern,
                             size_t pattern_bytes, size_t bytes, cl_uint count,
                             const cl_event *waits, cl_event *event)
{
    ENTER(clEnqueueMemFillINTEL);
    bool is_power = pattern_bytes > 0 && (pattern_bytes & (pattern_bytes - 1)) == 0;
    if (to == NULL || pattern == NULL || !is_power || pattern_bytes > MOST_SCALAR ||
        (uintptr_t)to % pattern_bytes != 0 || bytes % pattern_bytes != 0)
        return CL_INVALID_VALUE;
    struct command *command = transfer(to, NULL, bytes);
    if (command == NULL)
        return CL_INVALID_VALUE;
    memcpy(command->pattern, pattern, pattern_bytes);
    command->pattern_bytes = pattern_bytes;
    return fake_enqueue(queue, command, CL_COMMAND_MEMFILL_INTEL, count, waits, event);
}

cl_int clEnqueueMemcpyINTEL(cl_command_queue queue, cl_bool is_blocking, void *to,
                            const void *from, size_t bytes, cl_uint count, const cl_event *waits,
                            cl_event *event)
{
    ENTER(clEnqueueMemcpyINTEL);
    if (to == NULL || from == NULL)
        return CL_INVALID_VALUE;
    if ((char *)to < (const char *)from + bytes && (const char *)from < (char *)to + bytes)
        return CL_MEM_COPY_OVERLAP;
    struct command *command = transfer(to, from, bytes);
    if (command == NULL)
        return CL_INVALID_VALUE;
    cl_event own = NULL;
    cl_event *place = event == NULL && is_blocking ? &own : event;
    cl_int code =
        fake_enqueue(queue, command, CL_COMMAND_MEMCPY_INTEL, count, waits, place);
    if (is_blocking && code == CL_SUCCESS)
        code = clWaitForEvents(1, place);
    if (own != NULL)
        clReleaseEvent(own);
    return code;
}
