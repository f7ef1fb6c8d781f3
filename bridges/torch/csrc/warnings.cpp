#include "warnings.hpp"

#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <mutex>

namespace accelrt_torch {
namespace {

// A program that never waits keeps no more.
constexpr size_t MAX_KEPT = 1024;

c10::WarningHandler* default_handler = nullptr;
std::mutex lock;
std::vector<c10::Warning> kept;
std::atomic<bool> has_kept{false}; // relaxed: a warning that is missed is issued by the next call

std::vector<c10::Warning> take_kept() {
  const std::lock_guard<std::mutex> held(lock);
  has_kept.store(false, std::memory_order_relaxed);
  return std::exchange(kept, {});
}

} // namespace

void note_default_handler() {
  default_handler = c10::WarningUtils::get_warning_handler();
}

void keep_warnings(std::vector<c10::Warning> warnings) {
  const std::lock_guard<std::mutex> held(lock);
  for (auto& warning : warnings) {
    if (kept.size() < MAX_KEPT) {
      kept.push_back(std::move(warning));
    }
  }
  has_kept.store(!kept.empty(), std::memory_order_relaxed);
}

void issue_kept_warnings() {
  if (C10_LIKELY(!has_kept.load(std::memory_order_relaxed))) {
    return;
  }
  if (c10::WarningUtils::get_warning_handler() != default_handler) {
    for (const auto& warning : take_kept()) {
      c10::warn(warning);
    }
  } else if (Py_IsInitialized() && PyGILState_GetThisThreadState()) {
    // Python's handler, which not every call from Python sets.
    torch::PyWarningHandler python;
    for (const auto& warning : take_kept()) {
      c10::warn(warning);
    }
  }
}

} // namespace accelrt_torch
