// The shapes of an operator's results, as its kernel for Meta tensors says them, kept for later.
//
// Kernels for Meta are often Python's, some 250 us and the GIL. What they depend on is the key:
// sizes, strides and dtypes of tensors, torch's default dtype, and every other argument; of numbers
// that stand beside tensors, as a learning rate, the sign and how large they are.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/DimVector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "probes.hpp"
#include "runtime.hpp"

namespace accelrt_torch {

// Of each tensor that an operator returns; nothing where Meta has no kernel or refuses, or the CPU's
// kernel would.
using Shapes = std::optional<ShapeList>;

struct CallInfo {
  Shapes shapes;
  // The CPU's kernel made the shapes, not Meta's.
  bool is_of_kernel = false;
  bool differs_from_meta = false;
  // To be issued by each call.
  std::vector<c10::Warning> warnings;
};

using ShapeKey = c10::SmallVector<int64_t, 48>;

class ShapeCache {
 public:
  // Asks Meta where nothing is known, and the CPU's kernel whether it takes such arguments.
  // `arguments` are those of the operator, on the device. `overlap` is a number that stands for the
  // arguments that are written and are other arguments too.
  std::shared_ptr<const CallInfo> find(
      const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, int64_t overlap);

  void clear();

 private:
  CallInfo ask(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments);

  struct Hash {
    size_t operator()(const ShapeKey& key) const;
  };

  Probes probes_;
  std::mutex lock_;
  std::unordered_map<ShapeKey, std::shared_ptr<const CallInfo>, Hash> known_;
};

// How often shapes were known, and how often Meta was asked.
struct ShapeCounts {
  int64_t hits;
  int64_t misses;
};

ShapeCounts shape_counts();

} // namespace accelrt_torch
