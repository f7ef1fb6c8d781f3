#include "registration.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

#include "operators.hpp"
#include "plan.hpp"
#include "runtime.hpp"

namespace accelrt_torch {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<&call_operator>();
}

// Every operator without another kernel.
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(boxed());
}

bool is_view(const OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments()) {
    if (argument.alias_info() && !argument.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

// torch would make such an operator of several ones, each a task, where the CPU has one kernel. The
// optimisers' ones on lists of tensors it would make of one for each tensor, and one that conjugates
// in place asks for a kernel of the device's own.
bool is_one_task(const OperatorHandle& op) {
  const bool has_composite = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (!has_composite || is_view(op) || op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
    return false;
  }
  const auto& name = op.operator_name().name;
  const bool writes_list = name.starts_with("aten::_foreach_") && name.ends_with("_");
  const bool is_convolution =
      name == "aten::convolution" || name == "aten::convolution_backward";
  const bool conjugates = name == "aten::conj_physical_";
  const bool is_mode = name == "aten::mode" && op.schema().arguments().back().is_out();
  return writes_list || is_convolution || conjugates || is_mode || op.hasKernelForDispatchKey(DispatchKey::CPU);
}

} // namespace

void register_operators() {
  watch_operators();
  // Stays for ever, as what it registers does.
  static auto& library = *new torch::Library(
      torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.name.starts_with("aten::") && is_one_task(*op)) {
      library.impl(toString(name).c_str(), boxed());
    }
  }
}

} // namespace accelrt_torch
