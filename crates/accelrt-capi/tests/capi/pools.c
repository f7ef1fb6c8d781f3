/* Private pools, tags of memory, and observers of shortages. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 64 };

/* The bytes that are handed out in segments of a pool. */
static uint64_t allocated_in(uint64_t pool)
{
    accelrt_snapshot *snapshot;
    accelrt_segment segments[MOST];
    size_t count;
    uint64_t bytes = 0;
    OK(accelrt_snapshot_take(ACCELRT_CPU, &snapshot));
    OK(accelrt_snapshot_get_segments(snapshot, segments, sizeof *segments, MOST, &count));
    ASSERT(count <= MOST);
    for (size_t index = 0; index < count; index++)
        if (segments[index].pool == pool) bytes += segments[index].allocated_bytes;
    OK(accelrt_snapshot_destroy(snapshot));
    return bytes;
}

static void *allocate_outside(void *data)
{
    (void)data;
    OK(accelrt_buffer_create(cpu, 5000, data));
    return NULL;
}

void a_pool_serves_the_threads_inside_of_it(void)
{
    accelrt_pool *outer, *inner;
    accelrt_buffer *buffers[4];
    uint64_t outer_id, inner_id;
    pthread_t thread;
    FAILS(accelrt_pool_create(cpu, 4, &outer), INVALID_ARGUMENT, "options 4");
    FAILS(accelrt_pool_create(cpu, 0, NULL), INVALID_ARGUMENT, "pool is NULL");
    OK(accelrt_pool_create(cpu, 0, &outer));
    OK(accelrt_pool_create(cpu, ACCELRT_POOL_USE_ON_OOM | ACCELRT_POOL_NO_SPLIT, &inner));
    OK(accelrt_pool_get_id(outer, &outer_id));
    OK(accelrt_pool_get_id(inner, &inner_id));
    ASSERT(outer_id != inner_id && outer_id != 0);
    FAILS(accelrt_pool_leave(outer), INVALID_STATE, "not inside");
    OK(accelrt_pool_enter(outer));
    OK(accelrt_buffer_create(cpu, 1000, &buffers[0]));
    OK(accelrt_pool_enter(inner));
    OK(accelrt_buffer_create(cpu, 2000, &buffers[1]));
    ASSERT(pthread_create(&thread, NULL, allocate_outside, &buffers[2]) == 0);
    ASSERT(pthread_join(thread, NULL) == 0);
    OK(accelrt_pool_leave(inner));
    OK(accelrt_pool_leave(outer));
    OK(accelrt_buffer_create(cpu, 3000, &buffers[3]));
    ASSERT(allocated_in(outer_id) >= 1000 && allocated_in(outer_id) < 2000);
    ASSERT(allocated_in(inner_id) >= 2000);
    ASSERT(allocated_in(0) >= 8000);
    for (int index = 0; index < 4; index++)
        OK(accelrt_buffer_destroy(buffers[index]));
    OK(accelrt_pool_destroy(outer));
    OK(accelrt_pool_destroy(inner));
    FAILS(accelrt_pool_enter(outer), STALE_HANDLE, "pool");
    ASSERT(allocated_in(outer_id) == 0);
}

/* Whether memory that lies free in a pool with these options serves a request outside of it. */
static int serves_others(uint32_t options)
{
    accelrt_pool *pool;
    accelrt_buffer *buffer;
    OK(accelrt_pool_create(cpu, options, &pool));
    OK(accelrt_pool_enter(pool));
    OK(accelrt_buffer_create(cpu, 40 << 20, &buffer));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_pool_leave(pool));
    accelrt_status status = accelrt_buffer_create(cpu, 40 << 20, &buffer);
    if (status == ACCELRT_STATUS_OK) OK(accelrt_buffer_destroy(buffer));
    ASSERT(status == ACCELRT_STATUS_OK || status == ACCELRT_STATUS_OUT_OF_MEMORY);
    OK(accelrt_pool_destroy(pool));
    OK(accelrt_memory_empty_cache(ACCELRT_CPU));
    return status == ACCELRT_STATUS_OK;
}

/* The bytes of the block of a small request in a pool with these options. */
static uint64_t block_bytes(uint32_t options)
{
    accelrt_pool *pool;
    accelrt_memory_info info = {.size = sizeof info};
    uint64_t address;
    OK(accelrt_pool_create(cpu, options, &pool));
    OK(accelrt_pool_enter(pool));
    OK(accelrt_memory_allocate_in(cpu, ACCELRT_MEMORY_DEVICE, 600, &address));
    OK(accelrt_pool_leave(pool));
    OK(accelrt_memory_find(address, &info));
    OK(accelrt_memory_free(address));
    OK(accelrt_pool_destroy(pool));
    return info.bytes;
}

void pools_have_their_options(void)
{
    OK(accelrt_setting_set("ACCELRT_CPU_MEMORY", "64M"));
    ASSERT(!serves_others(0) && serves_others(ACCELRT_POOL_USE_ON_OOM));
    ASSERT(block_bytes(0) < 4096 && block_bytes(ACCELRT_POOL_NO_SPLIT) >= 1 << 20);
}

/* What is in use with a tag; 0 for one that is not there. */
static uint64_t tagged(const char *tag)
{
    accelrt_tag_statistics tags[MOST];
    size_t count;
    OK(accelrt_memory_get_tags(cpu, tags, sizeof *tags, MOST, &count));
    ASSERT(count <= MOST);
    for (size_t index = 0; index < count; index++)
        if (strcmp(tags[index].tag, tag) == 0) return tags[index].bytes.current;
    return 0;
}

void tags_say_what_memory_is_for(void)
{
    accelrt_buffer *buffers[3];
    size_t count;
    FAILS(accelrt_memory_leave_tag(), INVALID_STATE, "no tag");
    FAILS(accelrt_memory_enter_tag(NULL), INVALID_ARGUMENT, "tag is NULL");
    OK(accelrt_memory_enter_tag("weights"));
    OK(accelrt_buffer_create(cpu, 1 << 20, &buffers[0]));
    OK(accelrt_memory_enter_tag("cache"));
    OK(accelrt_buffer_create(cpu, 1 << 21, &buffers[1]));
    OK(accelrt_memory_leave_tag());
    OK(accelrt_buffer_create(cpu, 1 << 19, &buffers[2]));
    ASSERT(tagged("weights") == (1 << 20) + (1 << 19));
    OK(accelrt_buffer_destroy(buffers[2]));
    OK(accelrt_memory_enter_tag(""));
    OK(accelrt_buffer_create(cpu, 1 << 22, &buffers[2]));
    OK(accelrt_memory_leave_tag());
    ASSERT(tagged("weights") == 1 << 20 && tagged("cache") == 1 << 21);
    OK(accelrt_memory_get_tags(cpu, NULL, sizeof(accelrt_tag_statistics), 0, &count));
    ASSERT(count == 2);
    OK(accelrt_buffer_destroy(buffers[1]));
    OK(accelrt_buffer_create(cpu, 1 << 20, &buffers[1]));
    ASSERT(tagged("weights") == 1 << 21 && tagged("cache") == 0);
    OK(accelrt_memory_leave_tag());
    for (int index = 0; index < 3; index++)
        OK(accelrt_buffer_destroy(buffers[index]));
    ASSERT(tagged("weights") == 0);
}

static atomic_int told, drops;

static void observe(void *data, const accelrt_shortage *shortage)
{
    accelrt_buffer *buffer;
    ASSERT(shortage->size == sizeof *shortage);
    ASSERT(shortage->requested_bytes == (uint64_t)1 << 40);
    ASSERT(shortage->device.kind == ACCELRT_CPU && shortage->device.index == 0);
    ASSERT(shortage->free_bytes <= shortage->total_bytes && shortage->total_bytes > 0);
    ASSERT(strstr(shortage->text, "Tried to allocate 1024.00 GiB"));
    /* It holds no lock, and what it asks for itself is not told. */
    OK(accelrt_buffer_create(cpu, 100, &buffer));
    OK(accelrt_buffer_destroy(buffer));
    FAILS(accelrt_buffer_create(cpu, (size_t)1 << 41, &buffer), OUT_OF_MEMORY, "2048.00 GiB");
    *(int *)data += 1;
    told += 1;
}

static void count_drop(void *data)
{
    (void)data;
    drops += 1;
}

void an_observer_is_told_of_shortages(void)
{
    accelrt_observer *first, *second;
    accelrt_buffer *buffer;
    int counts[2] = {0, 0};
    FAILS(accelrt_observer_create(NULL, NULL, count_drop, &first), INVALID_ARGUMENT, "run is NULL");
    FAILS(accelrt_observer_create(observe, NULL, count_drop, NULL), INVALID_ARGUMENT, "observer");
    ASSERT(drops == 2);
    OK(accelrt_observer_create(observe, &counts[0], count_drop, &first));
    OK(accelrt_observer_create(observe, &counts[1], NULL, &second));
    FAILS(accelrt_buffer_create(cpu, (size_t)1 << 40, &buffer), OUT_OF_MEMORY, "1024.00 GiB");
    ASSERT(told == 2 && counts[0] == 1 && counts[1] == 1 && drops == 2);
    OK(accelrt_observer_destroy(first));
    ASSERT(drops == 3);
    FAILS(accelrt_observer_destroy(first), STALE_HANDLE, "observer");
    FAILS(accelrt_buffer_create(cpu, (size_t)1 << 40, &buffer), OUT_OF_MEMORY, "1024.00 GiB");
    ASSERT(counts[0] == 1 && counts[1] == 2);
    OK(accelrt_observer_destroy(second));
}
