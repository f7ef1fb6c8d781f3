#include "task.hpp"

#include <ATen/record_function.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "findings.hpp"
#include "kernel_threads.hpp"
#include "places.hpp"
#include "warnings.hpp"

namespace accelrt_torch {

Task::Task(const char* name) : name_(name), denormals_(DenormalMode::current()) {
  if (C10_UNLIKELY(notes_places())) {
    const auto place = place_of_program();
    if (!place.file.empty()) {
      place_ = place.file + ":" + std::to_string(place.line);
    }
  }
}

std::string Task::described() const {
  return place_.empty() ? name_ : std::string(name_) + " at " + place_;
}

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

// Keeps the warnings of a task for a thread with Python, also if the task fails.
class TaskWarnings {
 public:
  explicit TaskWarnings(const Task& task) : task_(task), collects_(&collector_) {}

  ~TaskWarnings() {
    auto warnings = collector_.take();
    std::erase_if(warnings, [&](const c10::Warning& warning) { return is_issued(warning); });
    if (!warnings.empty()) {
      keep_warnings(std::move(warnings));
    }
  }

  TaskWarnings(const TaskWarnings&) = delete;
  TaskWarnings& operator=(const TaskWarnings&) = delete;

 private:
  bool is_issued(const c10::Warning& warning) const {
    const auto issued = task_.issued_warnings();
    const auto is_same = [&](const c10::Warning& own) { return own.msg() == warning.msg(); };
    return std::any_of(issued.begin(), issued.end(), is_same);
  }

  const Task& task_;
  WarningCollector collector_;
  c10::WarningUtils::WarningHandlerGuard collects_;
};

int32_t run(void* data, char* error_text, size_t error_capacity) {
  auto* task = static_cast<Task*>(data);
  const auto say = [&](const char* text) {
    std::snprintf(error_text, error_capacity, "%s: %s", task->described().c_str(), text);
    return 1;
  };
  try {
    const KernelState state;
    const DenormalMode denormals(task->denormals());
    const KernelThreads threads;
    // A profile of the thread that waits is not of what others have enqueued.
    const at::DisableRecordFunctionGuard no_records;
    const TaskWarnings warnings(*task);
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
  tell_findings();
}

void enqueue_copy(const HeldStream& stream, void* to, const void* from, size_t bytes) {
  enqueue(stream, std::make_unique<CopyTask>(to, from, bytes));
}

namespace {

// Kernels stand below these on every device. What a mode includes stays out.
constexpr auto ABOVE = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

} // namespace

#if defined(__SSE2__)

namespace {

// What is denormal counts as zero, and results that would be so become zero.
constexpr uint32_t DENORMALS = _MM_DENORMALS_ZERO_MASK | _MM_FLUSH_ZERO_MASK;

void set_denormals(uint32_t mode) {
  const uint32_t state = _mm_getcsr();
  if ((state & DENORMALS) != mode) {
    _mm_setcsr((state & ~DENORMALS) | mode);
  }
}

} // namespace

uint32_t DenormalMode::current() {
  return _mm_getcsr() & DENORMALS;
}

DenormalMode::DenormalMode(uint32_t mode) : before_(current()) {
  set_denormals(mode);
}

DenormalMode::~DenormalMode() {
  set_denormals(before_);
}

#else

uint32_t DenormalMode::current() {
  return 0;
}

DenormalMode::DenormalMode(uint32_t mode) : before_(mode) {}

DenormalMode::~DenormalMode() = default;

#endif

// Functions that make tensors find their device by the first key.
KernelState::KernelState()
    : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), ABOVE) {
  auto& state = c10::AutogradState::get_tls_state();
  grad_mode_ = state.get_grad_mode();
  fw_grad_mode_ = state.get_fw_grad_mode();
  inference_mode_ = state.get_inference_mode();
  state.set_grad_mode(false);
  state.set_fw_grad_mode(false);
  state.set_inference_mode(false);
}

KernelState::~KernelState() {
  auto& state = c10::AutogradState::get_tls_state();
  state.set_grad_mode(grad_mode_);
  state.set_fw_grad_mode(fw_grad_mode_);
  state.set_inference_mode(inference_mode_);
}

} // namespace accelrt_torch
