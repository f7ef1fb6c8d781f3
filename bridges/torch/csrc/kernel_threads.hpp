// How many threads a kernel of a task may use: one number for all workers of all devices.
//
// OpenMP keeps such a number for each thread, and torch sets it when a thread first needs it, so
// that a later `torch.set_num_threads` would reach some workers and not others.
#pragma once

namespace accelrt_torch {

int kernel_threads();

void set_kernel_threads(int count);

// The number is in force while this is there; then the thread, which may be the program's, has its
// own again.
class KernelThreads {
 public:
  KernelThreads();
  KernelThreads(const KernelThreads&) = delete;
  KernelThreads& operator=(const KernelThreads&) = delete;
  ~KernelThreads();

 private:
  int before_;
  int wanted_;
};

} // namespace accelrt_torch
