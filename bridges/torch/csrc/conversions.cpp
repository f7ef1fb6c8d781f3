#include "conversions.hpp"

#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "alias.hpp"
#include "values.hpp"

namespace accelrt_torch {
namespace {

using at::ScalarType;
using c10::IValue;
using torch::jit::Stack;

ScalarType without_complex_half(ScalarType type) {
  return type == at::kComplexHalf ? at::kComplexFloat : type;
}

ScalarType without_half(ScalarType type) {
  return at::isReducedFloatingType(type) ? at::kFloat : without_complex_half(type);
}

ScalarType without_float16(ScalarType type) {
  return type == at::kHalf ? at::kFloat : type;
}

ScalarType without_integers(ScalarType type) {
  return at::isIntegralType(type, false) ? at::kDouble : type;
}

ScalarType without_float8(ScalarType type) {
  return at::isFloat8Type(type) ? at::kFloat : type;
}

ScalarType without_bool(ScalarType type) {
  return type == at::kBool ? at::kByte : type;
}

using Table = std::unordered_map<std::string, Conversion>;

Table make_table() {
  Table table;
  for (const auto* name : {"acos", "acosh", "asin", "asinh", "atan", "atanh", "angle", "cos", "cosh",
           "convolution", "convolution_backward", "div", "exp", "lerp", "log", "logaddexp", "pow",
           "prod", "rsqrt", "sigmoid", "sigmoid_backward", "sin", "sinh", "sqrt", "sum", "tan", "tanh",
           "tanh_backward", "trace"}) {
    table[name] = table[std::string(name) + "_"] = &without_complex_half;
  }
  for (const auto* name : {"_fft_c2c", "_fft_c2r", "_fft_r2c", "_upsample_bilinear2d_aa",
           "_upsample_bilinear2d_aa_backward", "avg_pool3d", "avg_pool3d_backward",
           "multi_margin_loss", "multi_margin_loss_backward", "multilabel_margin_loss_forward",
           "multilabel_margin_loss_backward"}) {
    table[name] = table[std::string(name) + "_"] = &without_half;
  }
  for (const auto* name : {"polygamma", "rrelu_with_noise"}) {
    table[name] = table[std::string(name) + "_"] = &without_float16;
  }
  table["histc"] = &without_integers;
  table["scatter"] = table["scatter_"] = &without_float8;
  table["abs"] = table["abs_"] = &without_bool;
  return table;
}

// The type of a tensor among the arguments that is converted, if there is one.
std::optional<ScalarType> converted_type(
    Conversion conversion, const c10::OperatorHandle& op, at::ArrayRef<IValue> arguments) {
  std::optional<ScalarType> found;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& declared = op.schema().arguments()[nth];
    if (declared.real_type()->kind() == c10::TypeKind::ScalarTypeType && !arguments[nth].isNone()) {
      return std::nullopt; // the call says in which type the kernel is to compute
    }
    for_each_tensor(arguments[nth], [&](const at::Tensor& tensor) {
      if (tensor.defined() && !declared.is_out() && conversion(tensor.scalar_type()) != tensor.scalar_type()) {
        found = tensor.scalar_type();
      }
    });
  }
  return found;
}

// The type of a result that the kernel makes in one type, where the arguments have another.
ScalarType result_type(ScalarType made, ScalarType of_arguments, Conversion conversion) {
  if (made == conversion(of_arguments)) {
    return of_arguments;
  }
  const bool is_half = of_arguments == at::kHalf || of_arguments == at::kComplexHalf;
  return !is_half ? made
      : made == at::kFloat        ? at::kHalf
      : made == at::kComplexFloat ? at::kComplexHalf
                                  : made;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

} // namespace

Conversion conversion_of(const std::string& name) {
  static const auto& table = *new Table(make_table());
  const auto place = name.starts_with("aten::") ? table.find(name.substr(6)) : table.end();
  return place == table.end() ? nullptr : place->second;
}

bool needs_conversion(
    Conversion conversion, const c10::OperatorHandle& op, at::ArrayRef<IValue> arguments) {
  return converted_type(conversion, op, arguments).has_value();
}

void call_converted(Conversion conversion, const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto view = torch::jit::last(*stack, schema.arguments().size());
  const std::vector<IValue> arguments(view.begin(), view.end());
  const auto type = *converted_type(conversion, op, arguments);
  Stack values;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto is_out = schema.arguments()[nth].is_out();
    values.push_back(map_tensors(arguments[nth], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return tensor;
      }
      const auto wide = conversion(tensor.scalar_type());
      return is_out && wide != tensor.scalar_type()
          ? at::empty({0}, tensor.options().dtype(wide))
          : tensor.to(wide);
    }));
  }
  auto results = values;
  op.callBoxed(results);
  torch::jit::drop(*stack, arguments.size());
  for (size_t nth = 0; nth < results.size(); nth++) {
    const auto* alias = schema.returns()[nth].alias_info();
    const auto is_same = [&](const c10::Argument& argument) {
      return alias && is_written(argument) &&
          argument.alias_info()->beforeSets() == alias->beforeSets();
    };
    const auto& declared = schema.arguments();
    const auto place = std::find_if(declared.begin(), declared.end(), is_same);
    if (place != declared.end()) {
      const auto& target = arguments[static_cast<size_t>(place - declared.begin())];
      const auto& made = results[nth].toTensor();
      if (place->is_out() && at::native::resize_output(target.toTensor(), made.sizes())) {
        target.toTensor().unsafeGetTensorImpl()->set_sizes_and_strides(
            made.sizes(), made.strides());
      }
      target.toTensor().copy_(made);
      stack->push_back(target);
      continue;
    }
    stack->push_back(map_tensors(results[nth], [&](const at::Tensor& made) {
      return made.defined() ? made.to(result_type(made.scalar_type(), type, conversion)) : made;
    }));
  }
}

namespace {

// The functions of `torch.fft` refuse half precision on devices that are not CUDA's. Like there,
// halves give halves, and bfloat16 gives single precision.
void call_fft(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& schema = op.schema();
  bool has_half = false;
  for (auto& value : torch::jit::last(*stack, schema.arguments().size())) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      has_half |= tensor.defined() &&
          (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kComplexHalf);
    });
  }
  const auto count = schema.arguments().size();
  for (size_t nth = 0; nth < count; nth++) {
    auto& value = torch::jit::peek(*stack, nth, count);
    if (value.isTensor() && value.toTensor().defined() && !schema.arguments()[nth].is_out()) {
      const auto& tensor = value.toTensor();
      value = tensor.to(without_half(tensor.scalar_type()));
    }
  }
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  auto& result = stack->back();
  if (has_half && !schema.arguments().back().is_out()) {
    const auto& made = result.toTensor();
    result = made.to(made.is_complex() ? at::kComplexHalf : at::kHalf);
  }
}

constexpr std::array<const char*, 18> FFTS = {"fft_fft", "fft_fft2", "fft_fftn", "fft_hfft",
    "fft_hfft2", "fft_hfftn", "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_ihfft", "fft_ihfft2",
    "fft_ihfftn", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_rfft", "fft_rfft2", "fft_rfftn"};

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  for (const auto* name : FFTS) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_fft>());
  }
}

} // namespace
} // namespace accelrt_torch
