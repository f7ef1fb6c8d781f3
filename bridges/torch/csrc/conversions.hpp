// Operators whose CPU kernels lack types that CUDA's kernels have: they are called with a type that
// the kernels take, and the results are converted.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace accelrt_torch {

// The type that the operator's CPU kernel takes in place of another one; the same type for most.
using Conversion = at::ScalarType (*)(at::ScalarType type);

// The conversion of an operator; null for those that need none.
Conversion conversion_of(const std::string& name);

// Whether a tensor among the arguments has a type that is to be converted.
bool needs_conversion(Conversion conversion, const c10::OperatorHandle& op,
    at::ArrayRef<c10::IValue> arguments);

// Calls the operator with other types. The results, and what it writes, have the types of the call.
void call_converted(Conversion conversion, const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace accelrt_torch
