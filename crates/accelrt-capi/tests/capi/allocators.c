/* Memory by address, statistics, limits, snapshots, histories. */
#include "check.h"

enum { BYTES = 1000, MIB = 1 << 20 };

void memory_is_allocated_and_found_by_its_address(void)
{
    accelrt_stream *stream, *other;
    accelrt_buffer *buffer;
    uint64_t address, next, pinned, of_buffer;
    accelrt_memory_info info = {.size = sizeof info};
    OK(accelrt_stream_create(cpu, 0, &stream));
    OK(accelrt_stream_create(cpu, 0, &other));
    OK(accelrt_memory_allocate(stream, BYTES, &address));
    OK(accelrt_memory_find(address + BYTES - 1, &info));
    ASSERT(info.address == address && info.bytes >= BYTES && info.requested_bytes == BYTES);
    ASSERT(info.device.kind == ACCELRT_CPU && info.memory == ACCELRT_MEMORY_DEVICE);
    ASSERT(info.is_freed_by_address);
    gate *gate = gate_shut(other);
    OK(accelrt_stream_fill(other, address, 1, BYTES));
    OK(accelrt_memory_record_use(address, other));
    OK(accelrt_memory_free(address));
    FAILS(accelrt_memory_free(address), NOT_FOUND, "was freed");
    FAILS(accelrt_memory_record_use(address, other), NOT_FOUND, "was freed");
    OK(accelrt_memory_allocate(stream, BYTES, &next));
    ASSERT(next != address); /* the other stream still uses it */
    gate_open(gate);
    OK(accelrt_stream_synchronize(other, ACCELRT_NO_LIMIT));
    OK(accelrt_memory_free(next));

    OK(accelrt_memory_allocate_in(cpu, ACCELRT_MEMORY_PINNED, BYTES, &pinned));
    OK(accelrt_memory_find(pinned, &info));
    ASSERT(info.memory == ACCELRT_MEMORY_PINNED);
    OK(accelrt_memory_free(pinned));
    OK(accelrt_memory_allocate_in(cpu, ACCELRT_MEMORY_SHARED, BYTES, &pinned));
    OK(accelrt_memory_find(pinned, &info));
    ASSERT(info.memory == ACCELRT_MEMORY_SHARED);
    OK(accelrt_memory_free(pinned));
    OK(accelrt_buffer_create(cpu, BYTES, &buffer));
    OK(accelrt_buffer_get_address(buffer, &of_buffer));
    OK(accelrt_memory_find(of_buffer, &info));
    ASSERT(!info.is_freed_by_address && info.address == of_buffer);
    FAILS(accelrt_memory_free(of_buffer), NOT_FOUND, "no address of");
    OK(accelrt_buffer_destroy(buffer));
    FAILS(accelrt_memory_find((uintptr_t)&info, &info), NOT_FOUND, "no memory");
    OK(accelrt_memory_allocate(stream, 0, &address));
    ASSERT(address == 0);
    OK(accelrt_memory_free(0));
    OK(accelrt_stream_destroy(stream));
    OK(accelrt_stream_destroy(other));
}

void statistics_count_what_is_allocated(void)
{
    accelrt_memory_statistics statistics = {.size = sizeof statistics};
    accelrt_host_statistics host = {.size = sizeof host};
    accelrt_buffer *buffers[2], *pinned;
    OK(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_DEVICE, &statistics));
    ASSERT(statistics.reserved_bytes.all.current == 0 && statistics.max_split_bytes == -1);
    OK(accelrt_buffer_create(cpu, BYTES, &buffers[0]));
    OK(accelrt_buffer_create(cpu, 3 * MIB, &buffers[1]));
    OK(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_DEVICE, &statistics));
    ASSERT(statistics.allocation.all.current == 2);
    ASSERT(statistics.requested_bytes.all.current == BYTES + 3 * MIB);
    ASSERT(statistics.requested_bytes.small_pool.current == BYTES);
    ASSERT(statistics.allocated_bytes.large_pool.current == 3 * MIB);
    OK(accelrt_buffer_destroy(buffers[0]));
    OK(accelrt_buffer_destroy(buffers[1]));
    OK(accelrt_memory_reset_peaks(cpu));
    OK(accelrt_memory_reset_sums(cpu));
    OK(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_DEVICE, &statistics));
    ASSERT(statistics.allocation.all.peak == 0 && statistics.allocation.all.allocated == 0);
    ASSERT(statistics.reserved_bytes.all.current > 0);
    OK(accelrt_memory_empty_cache(ACCELRT_CPU));
    OK(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_DEVICE, &statistics));
    ASSERT(statistics.reserved_bytes.all.current == 0 && statistics.num_device_free > 0);
    OK(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_SHARED, &statistics));
    ASSERT(statistics.reserved_bytes.all.peak == 0);
    FAILS(accelrt_memory_get_statistics(cpu, ACCELRT_MEMORY_PINNED, &statistics), INVALID_ARGUMENT,
          "memory 1");

    OK(accelrt_memory_get_host_statistics(ACCELRT_CPU, &host));
    ASSERT(host.active_requests.allocated == 0);
    OK(accelrt_buffer_create_in(cpu, ACCELRT_MEMORY_PINNED, BYTES, &pinned));
    OK(accelrt_memory_get_host_statistics(ACCELRT_CPU, &host));
    ASSERT(host.active_requests.current == 1 && host.active_bytes.current >= BYTES);
    ASSERT(host.host_alloc_time.count == 1);
    OK(accelrt_buffer_destroy(pinned));
}

void limits_and_settings_hold(void)
{
    OK(accelrt_setting_set("ACCELRT_CPU_MEMORY", "64M"));
    accelrt_buffer *buffer;
    double fraction;
    char text[64];
    OK(accelrt_memory_get_fraction(cpu, &fraction));
    ASSERT(fraction == 1.0);
    OK(accelrt_buffer_create(cpu, 20 * MIB, &buffer));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_memory_empty_cache(ACCELRT_CPU));
    OK(accelrt_memory_set_fraction(cpu, 0.25));
    OK(accelrt_memory_get_fraction(cpu, &fraction));
    ASSERT(fraction == 0.25);
    FAILS(accelrt_buffer_create(cpu, 20 * MIB, &buffer), OUT_OF_MEMORY, "out of memory");
    FAILS(accelrt_memory_set_fraction(cpu, 2), INVALID_SETTING, "from 0 to 1");
    OK(accelrt_memory_set_settings("max_split_size_mb:64,policy:torch"));
    OK(accelrt_memory_get_settings(text, sizeof text, NULL));
    ASSERT(strcmp(text, "max_split_size_mb:64,policy:torch") == 0);
    FAILS(accelrt_memory_set_settings("max_split_size_mb:some"), INVALID_SETTING, "some");
}

void a_snapshot_has_segments_and_blocks(void)
{
    accelrt_buffer *buffer;
    accelrt_snapshot *snapshot;
    uint64_t address;
    size_t segment_count, block_count;
    OK(accelrt_buffer_create(cpu, 3 * MIB, &buffer));
    OK(accelrt_buffer_get_address(buffer, &address));
    OK(accelrt_snapshot_take(ACCELRT_CPU, &snapshot));
    OK(accelrt_snapshot_get_segments(snapshot, NULL, 0, 0, &segment_count));
    OK(accelrt_snapshot_get_blocks(snapshot, NULL, 0, 0, &block_count));
    ASSERT(segment_count > 0 && block_count > 0);
    accelrt_segment *segments = calloc(segment_count, sizeof *segments);
    /* As of a later header, whose blocks are larger. */
    struct {
        accelrt_block known;
        uint64_t later;
    } *blocks = calloc(block_count, sizeof *blocks);
    ASSERT(segments && blocks);
    OK(accelrt_snapshot_get_segments(snapshot, segments, sizeof *segments, segment_count, NULL));
    OK(accelrt_snapshot_get_blocks(snapshot, &blocks->known, sizeof *blocks, block_count, NULL));
    uint64_t sum = 0, found = 0;
    for (size_t i = 0; i < segment_count; i++) {
        ASSERT(segments[i].size == sizeof *segments && segments[i].device.kind == ACCELRT_CPU);
        for (uint64_t j = 0; j < segments[i].block_count; j++) {
            accelrt_block block = blocks[segments[i].first_block + j].known;
            sum += block.bytes;
            if (block.address == address)
                found = block.state == ACCELRT_BLOCK_ALLOCATED && block.requested_bytes == 3 * MIB;
        }
        sum -= segments[i].total_bytes;
    }
    ASSERT(sum == 0 && found);
    FAILS(accelrt_snapshot_get_blocks(snapshot, NULL, sizeof *blocks, 1, NULL), INVALID_ARGUMENT,
          "blocks is NULL");
    FAILS(accelrt_snapshot_get_blocks(snapshot, &blocks->known, 8, 1, NULL), INVALID_ARGUMENT,
          "size of blocks is 8");
    OK(accelrt_snapshot_destroy(snapshot));
    FAILS(accelrt_snapshot_get_segments(snapshot, NULL, 0, 0, NULL), STALE_HANDLE, "snapshot");
    OK(accelrt_buffer_destroy(buffer));
    free(segments);
    free(blocks);
}

void a_history_tells_what_allocators_did(void)
{
    accelrt_history *history;
    accelrt_buffer *buffer;
    accelrt_memory_event events[16];
    size_t count;
    uint64_t dropped;
    OK(accelrt_history_start(100, &history));
    OK(accelrt_buffer_create(cpu, 3 * MIB, &buffer));
    OK(accelrt_buffer_destroy(buffer));
    OK(accelrt_history_get_events(history, cpu, events, sizeof *events, 16, &count, &dropped));
    ASSERT(count == 4 && dropped == 0);
    int32_t expected[] = {ACCELRT_MEMORY_SEGMENT_MAP, ACCELRT_MEMORY_ALLOC,
                          ACCELRT_MEMORY_FREE_REQUESTED, ACCELRT_MEMORY_FREE_COMPLETED};
    for (size_t i = 0; i < count; i++) {
        ASSERT(events[i].action == expected[i] && events[i].tag[0] == 0 && events[i].time_ns > 0);
        ASSERT(i == 0 || events[i - 1].time_ns <= events[i].time_ns);
    }
    ASSERT(events[1].bytes == 3 * MIB && events[1].block_bytes >= 3 * MIB && events[1].is_miss);
    OK(accelrt_history_get_events(history, cpu, events, sizeof *events, 1, &count, NULL));
    ASSERT(count == 4);
    OK(accelrt_history_clear(history));
    OK(accelrt_history_get_events(history, cpu, NULL, 0, 0, &count, NULL));
    ASSERT(count == 0);
    OK(accelrt_history_destroy(history));
    FAILS(accelrt_history_clear(history), STALE_HANDLE, "history");
}
