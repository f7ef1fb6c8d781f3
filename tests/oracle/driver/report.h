// What is compared: calls of the driver, answers, statistics, layouts. The peer prints the same.
#pragma once
#include <algorithm>
#include <cstdio>
#include <map>

#include "allocator.h"

// Of private pools: the number that a program gave one.
using PoolNumbers = std::map<c10::MempoolId_t, int64_t>;

inline void print_calls() {
  for (StubCall call; stub_next_call(&call);) {
    printf("call %d %s %lu", call.device, call.name, call.bytes);
    if (call.range >= 0) printf(" %ld+%lu", call.range, call.offset);
    puts(call.is_refused ? " refused" : "");
  }
}

// ` | RESERVED ALLOCATED ACTIVE`, in bytes.
inline void print_bytes(int device) {
  auto statistics = allocator::getDeviceStats((c10::DeviceIndex)device);
  printf(" | %ld %ld %ld\n", statistics.reserved_bytes[0].current,
         statistics.allocated_bytes[0].current, statistics.active_bytes[0].current);
}

inline void print_stat(const char* name, const char* part, const c10::CachingAllocator::Stat& stat) {
  printf("statistic %s%s %ld %ld %ld %ld\n", name, part, stat.current, stat.peak, stat.allocated,
         stat.freed);
}

inline void print_statistics(int device) {
  auto all = allocator::getDeviceStats((c10::DeviceIndex)device);
  auto pooled = [](const char* name, const c10::CachingAllocator::StatArray& stats) {
    const char* parts[] = {".all", ".small_pool", ".large_pool"};
    for (int part = 0; part < 3; part++) print_stat(name, parts[part], stats[part]);
  };
  pooled("allocation", all.allocation);
  pooled("segment", all.segment);
  pooled("active", all.active);
  pooled("inactive_split", all.inactive_split);
  pooled("allocated_bytes", all.allocated_bytes);
  pooled("reserved_bytes", all.reserved_bytes);
  pooled("active_bytes", all.active_bytes);
  pooled("inactive_split_bytes", all.inactive_split_bytes);
  pooled("requested_bytes", all.requested_bytes);
  print_stat("oversize_allocations", "", all.oversize_allocations);
  print_stat("oversize_segments", "", all.oversize_segments);
  printf("statistic num_alloc_retries %ld\nstatistic num_ooms %ld\n", all.num_alloc_retries,
         all.num_ooms);
  printf("statistic num_oom_rejections %ld\nstatistic num_sync_all_streams %ld\n",
         all.num_oom_rejections, all.num_sync_all_streams);
  printf("statistic num_device_alloc %ld\nstatistic num_device_free %ld\n", all.num_device_alloc,
         all.num_device_free);
  printf("statistic max_split_size %ld\n", all.max_split_size);
}

// Segments by address, with their blocks.
inline void print_layout(int device, const PoolNumbers& pools) {
  auto snapshot = allocator::snapshot();
  std::sort(snapshot.segments.begin(), snapshot.segments.end(),
            [](auto& a, auto& b) { return a.address < b.address; });
  for (auto& segment : snapshot.segments) {
    if (segment.device != device) continue;
    uint64_t offset;
    long range = stub_range(segment.address, &offset);
    auto pool = pools.find(segment.owner_private_pool_id);
    printf("segment %ld+%lu %zu %s %s stream %d pool %ld\n", range, offset, segment.total_size,
           segment.is_large ? "large" : "small", segment.is_expandable ? "pages" : "whole",
           stub_stream_number(segment.stream), pool == pools.end() ? 0 : pool->second);
    for (auto& block : segment.blocks) {
      printf("block %lu %zu %zu %s\n", offset, block.size, block.active ? block.requested_size : 0,
             block.allocated ? "allocated" : block.active ? "awaiting" : "free");
      offset += block.size;
    }
  }
}
