// Which types an operator's kernel of the CPU has: asked of the kernel itself, once for each.
//
// Kernels for Meta tensors take every type, so that a missing one would be found by the task alone.
// A probe calls the CPU's kernel on zeros, and keeps its refusal.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <exception>
#include <map>
#include <mutex>

namespace accelrt_torch {

class Probes {
 public:
  // Throws what the CPU's kernel says of these types of arguments. Other refusals are not kept:
  // zeros may be wrong where the numbers are right.
  void check(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
      int64_t result_elements);

 private:
  using Types = c10::SmallVector<int8_t, 8>;


  std::mutex lock_;
  // What the kernel has thrown; null for types that it has.
  std::map<Types, std::exception_ptr> known_;
};

} // namespace accelrt_torch
