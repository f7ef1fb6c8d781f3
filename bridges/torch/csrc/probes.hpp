// Whether an operator's kernel of the CPU takes such arguments: asked of the kernel itself.
//
// Kernels for Meta tensors take every type, and other arguments that the CPU's do not, so that the
// task alone would find it. A probe calls the CPU's kernel on numbers that are not the program's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <set>

namespace accelrt_torch {

class Probes {
 public:
  // Whether the CPU's kernel refuses the arguments whatever the numbers in their tensors are. Not
  // known, and false, where the tensors are large.
  bool refuses(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
      int64_t result_elements);

 private:
  using Types = c10::SmallVector<int8_t, 8>;

  std::mutex lock_;
  std::set<Types> taken_; // by a kernel
};

} // namespace accelrt_torch
