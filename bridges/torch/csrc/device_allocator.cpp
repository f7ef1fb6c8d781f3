#include "device_allocator.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "gil.hpp"
#include "stream.hpp"
#include "task.hpp"

namespace accelrt_torch {

namespace {

// Which streams use a buffer beside its own. They do until it goes, as on CUDA, whereas accelrt is
// told of the uses that are there by then.
class Users {
 public:
  using Streams = std::map<std::pair<c10::DeviceIndex, c10::StreamId>, HeldStream>;

  static Users& all() {
    static auto& users = *new Users; // for memory that goes while the process ends
    return users;
  }

  void add(accelrt_buffer* buffer, const c10::Stream& stream) {
    const std::lock_guard<std::mutex> held(lock_);
    by_buffer_[buffer].try_emplace({stream.device_index(), stream.id()}, HeldStream::of(stream));
    count_.store(by_buffer_.size(), std::memory_order_relaxed);
  }

  // Of a buffer that goes. Who frees memory is ordered behind who recorded its use, by the program.
  Streams take(accelrt_buffer* buffer) {
    if (count_.load(std::memory_order_relaxed) == 0) {
      return {};
    }
    const std::lock_guard<std::mutex> held(lock_);
    const auto place = by_buffer_.find(buffer);
    if (place == by_buffer_.end()) {
      return {};
    }
    auto streams = std::move(place->second);
    by_buffer_.erase(place);
    count_.store(by_buffer_.size(), std::memory_order_relaxed);
    return streams;
  }

 private:
  std::mutex lock_;
  std::unordered_map<accelrt_buffer*, Streams> by_buffer_;
  std::atomic<size_t> count_{0};
};

// The buffers of storages that are copied on write, by their addresses.
class Addresses {
 public:
  static Addresses& all() {
    static auto& addresses = *new Addresses; // for memory that is freed while the process ends
    return addresses;
  }

  void add(void* address, accelrt_buffer* buffer) {
    const std::lock_guard<std::mutex> held(lock_);
    buffers_.emplace(address, buffer);
  }

  accelrt_buffer* find(void* address) {
    const std::lock_guard<std::mutex> held(lock_);
    const auto place = buffers_.find(address);
    return place == buffers_.end() ? nullptr : place->second;
  }

  accelrt_buffer* take(void* address) {
    const std::lock_guard<std::mutex> held(lock_);
    const auto place = buffers_.find(address);
    auto* buffer = place->second;
    buffers_.erase(place);
    return buffer;
  }

 private:
  std::mutex lock_;
  std::unordered_map<void*, accelrt_buffer*> buffers_;
};

void destroy_at(void* address) {
  destroy_buffer(Addresses::all().take(address));
}

} // namespace

void destroy_buffer(void* context) {
  auto* buffer = static_cast<accelrt_buffer*>(context);
  for (const auto& [name, stream] : Users::all().take(buffer)) {
    warn(accelrt_buffer_record_use(buffer, stream.get()));
  }
  warn(accelrt_buffer_destroy(buffer));
}

c10::DataPtr to_data_pointer(accelrt_buffer* buffer, c10::Device device) {
  uint64_t address = 0;
  check(accelrt_buffer_get_address(buffer, &address));
  return {reinterpret_cast<void*>(address), buffer, &destroy_buffer, device};
}

bool record_use(const c10::DataPtr& pointer, const c10::Stream& stream) {
  const bool is_buffer = pointer.get_deleter() == &destroy_buffer;
  auto* buffer = is_buffer ? static_cast<accelrt_buffer*>(pointer.get_context())
                           : Addresses::all().find(const_cast<void*>(pointer.get()));
  if (!buffer) {
    return false;
  }
  record_use(buffer, stream);
  return true;
}

void record_use(accelrt_buffer* buffer, const c10::Stream& stream) {
  Users::all().add(buffer, stream);
}

c10::CachingAllocator::Stat to_torch(const accelrt_stat& from) {
  c10::CachingAllocator::Stat stat;
  stat.current = static_cast<int64_t>(from.current);
  stat.peak = static_cast<int64_t>(from.peak);
  stat.allocated = static_cast<int64_t>(from.allocated);
  stat.freed = static_cast<int64_t>(from.freed);
  return stat;
}

namespace {

using accelrt_torch::to_torch;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

StatArray to_torch(const accelrt_pooled_stat& from) {
  StatArray stats;
  stats[static_cast<size_t>(StatType::AGGREGATE)] = to_torch(from.all);
  stats[static_cast<size_t>(StatType::SMALL_POOL)] = to_torch(from.small_pool);
  stats[static_cast<size_t>(StatType::LARGE_POOL)] = to_torch(from.large_pool);
  return stats;
}

std::atomic<bool> is_poisoned{false}; // relaxed: a request that races with the change is either

struct PoisonTask final : Task {
  PoisonTask(void* address, size_t bytes)
      : Task("accelrt::poison"), address_(address), bytes_(bytes) {
    uses(address, bytes, true);
  }

  void run() override {
    std::memset(address_, 0xFF, bytes_);
  }

  void* address_;
  size_t bytes_;
};

// Where memory is short a request waits for the streams that still use some.
accelrt_buffer* create(c10::DeviceIndex index, size_t bytes) {
  const WithoutGil without_gil;
  accelrt_buffer* buffer = nullptr;
  check(accelrt_buffer_create(device_at(index), bytes, &buffer));
  return buffer;
}

struct Allocator final : c10::DeviceAllocator {
  bool initialized() override {
    return device_count() > 0;
  }

  // For the thread's current stream of its current device.
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(refusal().empty(), refusal());
    const auto index = current_device();
    if (bytes == 0) {
      return {nullptr, nullptr, &destroy_buffer_of_nothing, torch_device(index)};
    }
    accelrt_buffer* buffer = create(index, bytes);
    auto pointer = to_data_pointer(buffer, torch_device(index));
    if (C10_UNLIKELY(is_poisoned.load(std::memory_order_relaxed))) {
      const auto stream = HeldStream::current(index);
      enqueue(stream, std::make_unique<PoisonTask>(pointer.mutable_get(), bytes));
    }
    return pointer;
  }

  static void destroy_buffer_of_nothing(void*) {}

  // None: what frees memory is its buffer, which is not known by an address alone.
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  // Of memory of the thread's current device, which torch has just allocated.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    enqueue_copy(HeldStream::current(current_device()), to, from, bytes);
  }

  void emptyCache(c10::MempoolId_t) override {
    check(accelrt_memory_empty_cache(device_at(0).kind));
  }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    record_use(pointer, stream);
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    accelrt_memory_statistics from{};
    from.size = sizeof from;
    check(accelrt_memory_get_statistics(device_at(index), ACCELRT_MEMORY_DEVICE, &from), index);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = to_torch(from.allocation);
    stats.segment = to_torch(from.segment);
    stats.active = to_torch(from.active);
    stats.inactive_split = to_torch(from.inactive_split);
    stats.allocated_bytes = to_torch(from.allocated_bytes);
    stats.reserved_bytes = to_torch(from.reserved_bytes);
    stats.active_bytes = to_torch(from.active_bytes);
    stats.inactive_split_bytes = to_torch(from.inactive_split_bytes);
    stats.requested_bytes = to_torch(from.requested_bytes);
    stats.oversize_allocations = to_torch(from.oversize_allocations);
    stats.oversize_segments = to_torch(from.oversize_segments);
    stats.num_alloc_retries = static_cast<int64_t>(from.num_alloc_retries);
    stats.num_ooms = static_cast<int64_t>(from.num_ooms);
    stats.num_sync_all_streams = static_cast<int64_t>(from.num_sync_all_streams);
    stats.num_device_alloc = static_cast<int64_t>(from.num_device_alloc);
    stats.num_device_free = static_cast<int64_t>(from.num_device_free);
    stats.max_split_size = from.max_split_bytes;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    check(accelrt_memory_reset_sums(device_at(index)), index);
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    check(accelrt_memory_reset_peaks(device_at(index)), index);
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    uint64_t free_bytes = 0, total_bytes = 0;
    check(accelrt_device_get_memory(device_at(index), &free_bytes, &total_bytes), index);
    return {free_bytes, total_bytes};
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(DEVICE_TYPE, &allocator)

} // namespace

namespace {

// The allocator of storages that are copied on write: torch copies them whichever device is current.
class OnDevice final : public c10::Allocator {
 public:
  explicit OnDevice(c10::DeviceIndex index) : index_(index) {}

  static OnDevice* of(c10::DeviceIndex index) {
    static auto& all = *new std::map<c10::DeviceIndex, OnDevice>;
    static std::mutex lock;
    const std::lock_guard<std::mutex> held(lock);
    return &all.try_emplace(index, index).first->second;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceGuard on_device(torch_device(index_));
    return allocator.allocate(bytes);
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    const c10::DeviceGuard on_device(torch_device(index_));
    allocator.copy_data(to, from, bytes);
  }

 private:
  c10::DeviceIndex index_;
};

} // namespace

void prepare_copy_on_write(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  auto& pointer = impl->_mutable_data_ptr_no_checks();
  if (pointer.get_deleter() == &destroy_buffer) {
    void* address = pointer.mutable_get();
    const auto device = pointer.device();
    Addresses::all().add(address, static_cast<accelrt_buffer*>(pointer.release_context()));
    impl->set_data_ptr_noswap({address, address, &destroy_at, device});
  }
  impl->set_allocator(OnDevice::of(storage.device().index()));
}

void set_poisons_memory(bool is_wanted) {
  is_poisoned.store(is_wanted, std::memory_order_relaxed);
}

c10::DeviceAllocator* device_allocator() {
  return &allocator;
}

} // namespace accelrt_torch
