#include "probes.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/stack.h>
#include <ATen/ops/full.h>

#include <algorithm>
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

// Up to here each new combination of arguments is, and beyond each of types.
constexpr int64_t FEW_ELEMENTS = 1 << 12;
constexpr int64_t FEW_RESULTS = 1 << 16;

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

int64_t most_elements(at::ArrayRef<c10::IValue> arguments) {
  int64_t most = 0;
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      most = std::max(most, tensor.defined() ? tensor.numel() : 0);
    });
  }
  return most;
}

torch::jit::Stack filled_arguments(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, int number) {
  const auto filled = [&](const at::Tensor& tensor) {
    return is_ours(tensor) ? at::full(tensor.sizes(), number, tensor.scalar_type()) : tensor;
  };
  torch::jit::Stack stack;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    if (schema.arguments()[nth].name() == "generator") { // the program's goes on as it was
      stack.emplace_back(at::detail::createCPUGenerator(0));
    } else if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else {
      stack.push_back(map_tensors(value, filled));
    }
  }
  return stack;
}

// What the kernel says against such arguments, in which each number is this one.
std::string refusal_of(
    const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, int number) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silence);
  const KernelState state;
  try {
    auto stack = filled_arguments(op.schema(), arguments, number);
    op.callBoxed(stack);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

} // namespace

bool Probes::refuses(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
    int64_t result_elements) {
  const auto elements = most_elements(arguments);
  if (elements > MOST_ELEMENTS || result_elements > MOST_RESULTS) {
    return false;
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
  if (elements > FEW_ELEMENTS || result_elements > FEW_RESULTS) {
    const std::lock_guard<std::mutex> held(lock_);
    if (taken_.contains(types)) {
      return false;
    }
  }
  // What is wrong with zeros alone, as a divisor, may be right with the program's numbers.
  const auto refusal = refusal_of(op, arguments, 0);
  if (!refusal.empty() && refusal == refusal_of(op, arguments, 1)) {
    return true;
  }
  const std::lock_guard<std::mutex> held(lock_);
  taken_.insert(types);
  return false;
}

} // namespace accelrt_torch
