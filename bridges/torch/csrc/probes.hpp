// Calls an operator's CPU kernel on numbers that are not the program's.
//
// Kernels for Meta tensors accept types and arguments that the CPU's kernels refuse. They also
// return other strides and types, and they do not warn. A probe finds that before the task runs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/DimVector.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace accelrt_torch {

struct Shape {
  at::DimVector sizes;
  at::DimVector strides;
  at::ScalarType dtype;
};

using ShapeList = std::vector<std::optional<Shape>>;

std::optional<Shape> shape_of(const at::Tensor& tensor);

// The tensors in an operator's results, in their order.
ShapeList shapes_of(at::ArrayRef<c10::IValue> results);

struct Probe {
  // The kernel refuses the arguments, whatever the numbers in their tensors are.
  bool is_refused = false;
  // The shapes that the kernel made; nothing where it was not called.
  std::optional<ShapeList> shapes;
  // The warnings of each call with such arguments, whatever the numbers are.
  std::vector<c10::Warning> warnings;
};

class Probes {
 public:
  // Does not call the kernel where the tensors are large. Issues the warnings that torch issues
  // once for each process.
  Probe call(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
      int64_t result_elements);

  // From here on each new combination of arguments is probed, also of tensors of medium size.
  void distrust_meta();

 private:
  using Types = c10::SmallVector<int8_t, 8>;

  bool is_known(const Types& types, int64_t elements, int64_t result_elements);

  std::mutex lock_;
  std::set<Types> taken_; // by a kernel
  bool is_meta_wrong_ = false;
};

} // namespace accelrt_torch
