#include "probes.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/stack.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <string>

#include "alias.hpp"
#include "task.hpp"
#include "values.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

// Calls with larger tensors are not probed, as the kernel's work is not wanted: a smaller one may
// come. Other sizes than the call's might not fit each other, which not every kernel checks.
constexpr int64_t MOST_ELEMENTS = 1 << 16;
constexpr int64_t MOST_RESULTS = 1 << 20;

// A view whose elements lie further apart is probed as a tensor without gaps.
constexpr int64_t MOST_SPAN = 1 << 18;

// Up to here each new combination of arguments is, and beyond each of types.
constexpr int64_t FEW_ELEMENTS = 1 << 12;
constexpr int64_t FEW_RESULTS = 1 << 16;

int64_t most_elements(at::ArrayRef<c10::IValue> arguments) {
  int64_t most = 0;
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      most = std::max(most, tensor.defined() ? tensor.numel() : 0);
    });
  }
  return most;
}

// The largest distance of two elements, plus one.
int64_t span_of(const at::Tensor& tensor) {
  int64_t span = 1;
  for (int64_t dim = 0; dim < tensor.dim(); dim++) {
    span += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.numel() == 0 ? 0 : span;
}

// As the program's tensor, with this number everywhere.
at::Tensor filled(const at::Tensor& tensor, int number) {
  const auto span = span_of(tensor);
  auto made = span <= MOST_SPAN
      ? at::full({span}, number, tensor.scalar_type()).as_strided(tensor.sizes(), tensor.strides())
      : at::full(tensor.sizes(), number, tensor.scalar_type());
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

torch::jit::Stack filled_arguments(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, int number) {
  Twins twins([&](const at::Tensor& tensor) { return filled(tensor, number); });
  torch::jit::Stack stack;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    if (schema.arguments()[nth].name() == "generator") { // the program's stays unchanged
      stack.emplace_back(at::detail::createCPUGenerator(0));
    } else if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else {
      stack.push_back(map_tensors(value, [&](const at::Tensor& it) { return twins.of(it); }));
    }
  }
  return stack;
}

struct Outcome {
  std::string refusal;
  ShapeList shapes;
  std::vector<c10::Warning> warnings;

  bool has_warning(const c10::Warning& warning) const {
    const auto is_same = [&](const c10::Warning& own) { return own.msg() == warning.msg(); };
    return std::any_of(warnings.begin(), warnings.end(), is_same);
  }
};

// The outcome of a call with such arguments, in which each number is this one.
Outcome call_kernel(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, int number,
    bool warns_always) {
  Outcome outcome;
  WarningCollector collector;
  const c10::WarningUtils::WarningHandlerGuard collects(&collector);
  const c10::WarningUtils::WarnAlways always(warns_always);
  const KernelState state;
  try {
    auto stack = filled_arguments(op.schema(), arguments, number);
    collector.take(); // of tensors that the program does not make
    op.callBoxed(stack);
    outcome.shapes = shapes_of(stack);
  } catch (const c10::Error& error) {
    outcome.refusal = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.refusal = error.what();
  }
  outcome.warnings = collector.take();
  return outcome;
}

// Which of the warnings each call issues. `TORCH_WARN_ONCE` does only once: such a warning, which
// these calls use up, is issued here.
std::vector<c10::Warning> repeated_warnings(
    const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, const Outcome& of_zeros) {
  const auto of_ones = call_kernel(op, arguments, 1, true);
  const bool always = c10::WarningUtils::get_warnAlways();
  const auto first = call_kernel(op, arguments, 1, always);
  const auto second = call_kernel(op, arguments, 1, always);
  std::vector<c10::Warning> repeated;
  for (const auto& warning : of_zeros.warnings) {
    if (!of_ones.has_warning(warning)) {
      continue;
    }
    if (second.has_warning(warning)) {
      repeated.push_back(warning);
    } else if (first.has_warning(warning)) {
      c10::warn(warning);
    }
  }
  return repeated;
}

// Types of tensors and numbers, and the types that are requested.
c10::SmallVector<int8_t, 8> types_of(
    const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  c10::SmallVector<int8_t, 8> types;
  const auto& declared = op.schema().arguments();
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      types.push_back(tensor.defined() ? static_cast<int8_t>(tensor.scalar_type()) : -1);
    });
    const auto is_type = declared[nth].real_type()->kind() == c10::TypeKind::ScalarTypeType;
    types.push_back(is_type && value.isInt() ? static_cast<int8_t>(value.toInt())
            : value.isDouble()               ? -2
            : value.isComplexDouble()        ? -3
                                             : -4);
  }
  return types;
}

} // namespace

std::optional<Shape> shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return std::nullopt;
  }
  return Shape{at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
}

ShapeList shapes_of(at::ArrayRef<c10::IValue> results) {
  ShapeList shapes;
  for (const auto& result : results) {
    for_each_tensor(result, [&](const at::Tensor& it) { shapes.push_back(shape_of(it)); });
  }
  return shapes;
}

bool Probes::is_known(const Types& types, int64_t elements, int64_t result_elements) {
  const std::lock_guard<std::mutex> held(lock_);
  return !is_meta_wrong_ && (elements > FEW_ELEMENTS || result_elements > FEW_RESULTS) &&
      taken_.contains(types);
}

void Probes::distrust_meta() {
  const std::lock_guard<std::mutex> held(lock_);
  is_meta_wrong_ = true;
}

Probe Probes::call(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
    int64_t result_elements) {
  Probe probe;
  const auto elements = most_elements(arguments);
  const auto types = types_of(op, arguments);
  if (elements > MOST_ELEMENTS || result_elements > MOST_RESULTS ||
      is_known(types, elements, result_elements)) {
    return probe;
  }
  auto outcome = call_kernel(op, arguments, 0, true);
  if (!outcome.refusal.empty()) {
    // An error of zeros, such as a division by them, may be none of the program's numbers.
    auto of_ones = call_kernel(op, arguments, 1, true);
    probe.is_refused = outcome.refusal == of_ones.refusal;
    outcome = std::move(of_ones);
  }
  if (!outcome.refusal.empty()) {
    return probe;
  }
  if (!outcome.warnings.empty()) {
    probe.warnings = repeated_warnings(op, arguments, outcome);
  }
  probe.shapes = std::move(outcome.shapes);
  const std::lock_guard<std::mutex> held(lock_);
  taken_.insert(types);
  return probe;
}

} // namespace accelrt_torch
