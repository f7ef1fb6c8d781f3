// What an operator's schema says of how it is enqueued, read once for each operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "conversions.hpp"
#include "shapes.hpp"

namespace accelrt_torch {

struct Plan {
  enum class Way {
    Makes,    // returns new tensors
    Writes,   // writes arguments, and returns these or nothing
    Waits,    // shapes or numbers depend on data, or the schema says too little
    Refused,  // no kernel of the CPU can stand in
  };

  explicit Plan(const c10::OperatorHandle& op);

  // What runs in the task: the variant that writes its results, where there is one.
  const c10::OperatorHandle& target() const {
    return out_variant ? *out_variant : op;
  }

  c10::OperatorHandle op;
  std::optional<c10::OperatorHandle> out_variant;
  std::string name;
  Way way = Way::Refused;
  bool lacks_kernel = false;
  // The operator is gone, and its handle with it, or it has another plan now.
  std::atomic<bool> is_over{false};
  // Which arguments are written, in the order of the schema.
  c10::SmallVector<size_t, 2> written;
  // These are written only when this argument is true.
  std::optional<size_t> written_when;
  // Of each result the argument that it is.
  c10::SmallVector<size_t, 2> returned;
  // Whether the values must fit the count of true elements in a mask.
  enum class Masks {
    None,
    Indices, // of index_put_
    Source,  // of masked_scatter_
  };
  Masks masks = Masks::None;
  // The argument that is a generator.
  std::optional<size_t> generator;
  // This argument may be a tensor of the host with more than one element.
  std::optional<size_t> host_tensors_at;
  // For types that the CPU's kernel lacks.
  Conversion conversion = nullptr;
  ShapeCache shapes;
};

// From here on it is known which operators come and go. All that are there come at once.
void watch_operators();

// The plan of an operator. It stays for ever, also when it is over.
Plan& plan_of(const c10::OperatorHandle& op);

} // namespace accelrt_torch
