#include "task.hpp"

#include <cstdio>
#include <cstring>

#include "kernel_threads.hpp"

namespace accelrt_torch {

void Task::uses(const at::TensorBase& tensor, bool writes) {
  if (tensor.numel() == 0) {
    return;
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); dim++) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto bytes = static_cast<size_t>(last + 1) * tensor.itemsize();
  uses(tensor.const_data_ptr(), bytes, writes);
}

void Task::uses(const void* address, size_t bytes, bool writes) {
  const uint32_t access = writes ? ACCELRT_WRITES : ACCELRT_READS;
  ranges_.push_back({reinterpret_cast<uint64_t>(address), bytes, access, 0});
}

namespace {

int32_t run(void* data, char* error_text, size_t error_capacity) {
  auto* task = static_cast<Task*>(data);
  const auto say = [&](const char* text) {
    std::snprintf(error_text, error_capacity, "%s: %s", task->name(), text);
    return 1;
  };
  try {
    const KernelState state;
    const KernelThreads threads;
    task->run();
    return 0;
  } catch (const c10::Error& error) {
    return say(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return say(error.what());
  } catch (...) {
    return say("an exception of C++ that has no text");
  }
}

void drop(void* data) {
  delete static_cast<Task*>(data);
}

struct CopyTask final : Task {
  CopyTask(void* to, const void* from, size_t bytes)
      : Task("accelrt::copy"), to_(to), from_(from), bytes_(bytes) {
    uses(from, bytes, false);
    uses(to, bytes, true);
  }

  void run() override {
    std::memcpy(to_, from_, bytes_);
  }

  void* to_;
  const void* from_;
  size_t bytes_;
};

} // namespace

void enqueue(const HeldStream& stream, std::unique_ptr<Task> task) {
  auto& description = task->description_;
  description.size = sizeof description;
  description.name = task->name_;
  description.ranges = task->ranges_.data();
  description.range_count = task->ranges_.size();
  auto* data = task.release(); // `drop` gets it, also when this fails
  check(accelrt_stream_launch_described(stream.get(), run, data, drop, &description));
}

void enqueue_copy(const HeldStream& stream, void* to, const void* from, size_t bytes) {
  enqueue(stream, std::make_unique<CopyTask>(to, from, bytes));
}

namespace {

// Kernels stand below these on every device. What a mode includes stays out.
constexpr auto ABOVE = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

} // namespace

// Functions that make tensors find their device by the first key.
KernelState::KernelState()
    : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), ABOVE) {}

} // namespace accelrt_torch
