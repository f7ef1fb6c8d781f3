#include "probes.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/stack.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "alias.hpp"
#include "task.hpp"
#include "values.hpp"

namespace accelrt_torch {
namespace {

// Calls with larger tensors are not probed, as the kernel's work is not wanted: a smaller one may
// come. Other sizes than the call's might not fit each other, which not every kernel checks.
constexpr int64_t MOST_ELEMENTS = 1 << 16;
constexpr int64_t MOST_RESULTS = 1 << 20;

// Of kernels that have not the type: of the macros that choose one by type, and by hand.
bool is_refusal(const std::string& text) {
  return text.find("not implemented for '") != std::string::npos ||
      text.find("not support") != std::string::npos;
}

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

bool are_small(at::ArrayRef<c10::IValue> arguments) {
  bool are = true;
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      are &= !tensor.defined() || tensor.numel() <= MOST_ELEMENTS;
    });
  }
  return are;
}

torch::jit::Stack zeros_for(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  const auto zeros = [&](const at::Tensor& tensor) {
    return is_ours(tensor) ? at::zeros(tensor.sizes(), tensor.scalar_type()) : tensor;
  };
  torch::jit::Stack stack;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    if (schema.arguments()[nth].name() == "generator") { // the program's goes on as it was
      stack.emplace_back(at::detail::createCPUGenerator(0));
    } else if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else {
      stack.push_back(map_tensors(value, zeros));
    }
  }
  return stack;
}

std::exception_ptr ask(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silence);
  const KernelState state;
  try {
    auto stack = zeros_for(op.schema(), arguments);
    op.callBoxed(stack);
  } catch (const c10::Error& error) {
    if (is_refusal(error.what_without_backtrace())) {
      return std::current_exception();
    }
  } catch (const std::exception&) { // not of types
  }
  return nullptr;
}

} // namespace

void Probes::check(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
    int64_t result_elements) {
  if (result_elements > MOST_RESULTS || !are_small(arguments)) {
    return;
  }
  Types types;
  const auto& declared = op.schema().arguments();
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      types.push_back(tensor.defined() ? static_cast<int8_t>(tensor.scalar_type()) : -1);
    });
    // Which type is asked for counts, and of a number its own.
    const auto is_type = declared[nth].real_type()->kind() == c10::TypeKind::ScalarTypeType;
    types.push_back(is_type && value.isInt() ? static_cast<int8_t>(value.toInt())
            : value.isDouble()               ? -2
            : value.isComplexDouble()        ? -3
                                             : -4);
  }
  const auto refuse = [](const std::exception_ptr& refusal) {
    if (refusal) {
      std::rethrow_exception(refusal);
    }
  };
  {
    const std::lock_guard<std::mutex> held(lock_);
    const auto place = known_.find(types);
    if (place != known_.end()) {
      refuse(place->second);
      return;
    }
  }
  const auto refusal = ask(op, arguments);
  {
    const std::lock_guard<std::mutex> held(lock_);
    known_.emplace(types, refusal);
  }
  refuse(refusal);
}

} // namespace accelrt_torch
