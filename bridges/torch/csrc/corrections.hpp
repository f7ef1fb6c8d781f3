// What Meta's kernels say of results otherwise than the CPU's kernels make them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "shapes.hpp"

namespace accelrt_torch {

void correct(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
    ShapeList& shapes);

} // namespace accelrt_torch
