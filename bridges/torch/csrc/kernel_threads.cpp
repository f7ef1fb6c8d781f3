#include "kernel_threads.hpp"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <atomic>

// Of the library that torch's kernels use, which torch has loaded: `omp.h` may be another one's.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int count);
}

namespace accelrt_torch {
namespace {

// Far above the processors of any machine: a mistake, for which OpenMP would end the process.
constexpr int MOST_THREADS = 1024;

std::atomic<int> chosen{0}; // relaxed: a task takes the old number or the new one

} // namespace

int kernel_threads() {
  const int count = chosen.load(std::memory_order_relaxed);
  return count > 0 ? count : at::get_num_threads();
}

void set_kernel_threads(int count) {
  TORCH_CHECK(count > 0 && count <= MOST_THREADS, "A kernel has 1 to ", MOST_THREADS,
      " threads, not ", count);
  chosen.store(count, std::memory_order_relaxed);
}

KernelThreads::KernelThreads() : before_(0), wanted_(chosen.load(std::memory_order_relaxed)) {
  if (wanted_ > 0) {
    at::internal::lazy_init_num_threads(); // before ours, which it would replace
    before_ = omp_get_max_threads();
    if (before_ != wanted_) {
      omp_set_num_threads(wanted_);
    }
  }
}

KernelThreads::~KernelThreads() {
  if (wanted_ > 0 && before_ != wanted_) {
    omp_set_num_threads(before_);
  }
}

} // namespace accelrt_torch
