#include "host_allocator.hpp"

#include <cstring>

#include "device_allocator.hpp"

namespace accelrt_torch {
namespace {

using accelrt_torch::to_torch;
using c10::CachingAllocator::DurationStat;

DurationStat to_torch(const accelrt_duration_stat& from) {
  DurationStat stat;
  stat.total = static_cast<int64_t>(from.total_us);
  stat.max = static_cast<int64_t>(from.max_us);
  stat.min = static_cast<int64_t>(from.min_us);
  stat.count = static_cast<int64_t>(from.count);
  return stat;
}

struct Allocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(refusal().empty(), refusal());
    accelrt_buffer* buffer = nullptr;
    check(accelrt_buffer_create_in(device_at(0), ACCELRT_MEMORY_PINNED, bytes, &buffer));
    return to_data_pointer(buffer, c10::Device(c10::kCPU));
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  // torch asks with memory of `is_pinned` alone, so the context is a buffer.
  bool record_event(void*, void* context, c10::Stream stream) override {
    if (!context) {
      return false;
    }
    record_use(static_cast<accelrt_buffer*>(context), stream);
    return true;
  }

  void empty_cache() override {
    check(accelrt_memory_empty_cache(device_at(0).kind));
  }

  at::HostStats get_stats() override {
    accelrt_host_statistics from{};
    from.size = sizeof from;
    check(accelrt_memory_get_host_statistics(device_at(0).kind, &from));
    at::HostStats stats;
    stats.active_requests = to_torch(from.active_requests);
    stats.active_bytes = to_torch(from.active_bytes);
    stats.allocations = to_torch(from.allocations);
    stats.allocated_bytes = to_torch(from.allocated_bytes);
    stats.host_alloc_time = to_torch(from.host_alloc_time);
    stats.host_free_time = to_torch(from.host_free_time);
    stats.num_host_alloc = stats.host_alloc_time.count;
    stats.num_host_free = stats.host_free_time.count;
    return stats;
  }

  void reset_accumulated_stats() override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "accelrt keeps the sums of pinned memory");
  }

  void reset_peak_stats() override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "accelrt keeps the peaks of pinned memory");
  }
};

Allocator allocator;
REGISTER_HOST_ALLOCATOR(DEVICE_TYPE, &allocator)

} // namespace

at::HostAllocator* host_allocator() {
  return &allocator;
}

bool is_pinned(const void* address) {
  if (!table || !address) {
    return false;
  }
  accelrt_memory_info info{};
  info.size = sizeof info;
  const auto status = accelrt_memory_find(reinterpret_cast<uint64_t>(address), &info);
  return status == ACCELRT_STATUS_OK && info.memory == ACCELRT_MEMORY_PINNED;
}

} // namespace accelrt_torch
