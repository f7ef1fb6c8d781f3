#include "corrections.hpp"

#include <ATen/TensorIterator.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <array>
#include <string>

namespace accelrt_torch {
namespace {

// Returns the mean and the deviation behind the result.
bool is_norm(const std::string& name) {
  static const std::array<const char*, 6> names = {"aten::native_layer_norm",
      "aten::native_group_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
      "aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

const c10::IValue* argument(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, const char* name) {
  const auto place = schema.argumentIndexWithName(name);
  return place ? &arguments[static_cast<size_t>(*place)] : nullptr;
}

// Of half precision the CPU's are of the same type, unless a parameter is of single precision.
void correct_norm(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, ShapeList& shapes) {
  const auto type = arguments[0].toTensor().scalar_type();
  bool is_mixed = !at::isReducedFloatingType(type);
  for (const auto* name : {"weight", "bias", "running_mean", "running_var"}) {
    const auto* value = argument(schema, arguments, name);
    is_mixed |= value && value->isTensor() && value->toTensor().defined() &&
        value->toTensor().scalar_type() == at::kFloat;
  }
  const auto* training = argument(schema, arguments, "training");
  for (size_t nth = 1; nth < 3 && nth < shapes.size() && shapes[nth]; nth++) {
    if (at::isReducedFloatingType(type)) {
      shapes[nth]->dtype = is_mixed ? at::kFloat : type;
    }
    if (training && !training->toBool()) { // it uses those that it was given
      shapes[nth]->sizes = {0};
      shapes[nth]->strides = {1};
    }
  }
}

// Their results have the order of the dimensions of what they read, channels last, where Meta says
// that they are contiguous.
bool keeps_order(const std::string& name) {
  static const std::array<const char*, 10> names = {"aten::channel_shuffle", "aten::convolution",
      "aten::convolution_backward", "aten::native_channel_shuffle", "aten::pixel_shuffle",
      "aten::reflection_pad2d", "aten::reflection_pad3d", "aten::replication_pad2d",
      "aten::replication_pad3d", "aten::roll"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The order of an operator's images; of convolutions also that of the weights.
at::MemoryFormat order_of(at::ArrayRef<c10::IValue> arguments) {
  for (const auto& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) {
      const auto order = value.toTensor().suggest_memory_format();
      if (order != at::MemoryFormat::Contiguous) {
        return order;
      }
    }
  }
  return at::MemoryFormat::Contiguous;
}

void correct_order(at::ArrayRef<c10::IValue> arguments, ShapeList& shapes) {
  const auto order = order_of(arguments);
  for (auto& shape : shapes) {
    if (order == at::MemoryFormat::ChannelsLast && shape && shape->sizes.size() == 4) {
      shape->strides = c10::get_channels_last_strides_2d(shape->sizes);
    } else if (order == at::MemoryFormat::ChannelsLast3d && shape && shape->sizes.size() == 5) {
      shape->strides = c10::get_channels_last_strides_3d(shape->sizes);
    }
  }
}

bool is_pointwise(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  const auto tags = op.getTags();
  return name == "aten::complex" || name == "aten::polar" ||
      std::find(tags.begin(), tags.end(), at::Tag::pointwise) != tags.end();
}

// Their results are contiguous on the CPU, though they are pointwise.
bool makes_contiguous(const std::string& name) {
  return name == "aten::log_sigmoid_forward" || name == "aten::rrelu_with_noise";
}

void correct_contiguous(ShapeList& shapes) {
  for (auto& shape : shapes) {
    int64_t stride = 1;
    for (size_t dim = shape ? shape->sizes.size() : 0; dim > 0; dim--) {
      shape->strides[dim - 1] = stride;
      stride *= std::max<int64_t>(shape->sizes[dim - 1], 1);
    }
  }
}

// The CPU's kernels keep the order of the dimensions of what they read, by this iterator; Meta's
// are often Python's, and do not.
void correct_pointwise(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, ShapeList& shapes) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .declare_static_dtype_and_device(at::kFloat, c10::kMeta)
      .add_owned_output(at::Tensor());
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    if (!value.isTensor() || !value.toTensor().defined() || schema.arguments()[nth].is_out()) {
      continue;
    }
    const auto& tensor = value.toTensor();
    config.add_owned_const_input(at::empty_strided(
        tensor.sizes(), tensor.strides(), at::device(c10::kMeta).dtype(at::kFloat)));
  }
  const auto iterator = config.build();
  for (auto& shape : shapes) {
    if (shape && iterator.output().sizes() == c10::IntArrayRef(shape->sizes)) {
      shape->strides = at::DimVector(iterator.output().strides());
    }
  }
}

// Whether the operator makes its results, or writes them to `out=` that has other sizes.
bool makes_strides(
    const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments, const ShapeList& shapes) {
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto* alias = schema.arguments()[nth].alias_info();
    if (alias && alias->isWrite() &&
        !(schema.arguments()[nth].is_out() && arguments[nth].isTensor() && shapes[0] &&
            arguments[nth].toTensor().sizes() != c10::IntArrayRef(shapes[0]->sizes))) {
      return false;
    }
  }
  return true;
}

} // namespace

void correct(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, ShapeList& shapes) {
  const auto& name = op.operator_name().name;
  const bool makes = makes_strides(op.schema(), arguments, shapes);
  if (makes && makes_contiguous(name)) {
    correct_contiguous(shapes);
  } else if (makes && is_pointwise(op)) {
    correct_pointwise(op.schema(), arguments, shapes);
  } else if (keeps_order(name)) {
    correct_order(arguments, shapes);
  } else if (is_norm(name)) {
    correct_norm(op.schema(), arguments, shapes);
  } else if (name == "aten::native_group_norm_backward" && shapes[0]) {
    shapes[0]->dtype = argument(op.schema(), arguments, "input")->toTensor().scalar_type();
  } else if (name == "aten::_native_multi_head_attention" && shapes[1] &&
      shapes[1]->sizes == at::DimVector{0}) {
    shapes[1].reset(); // weights that nobody needs
  }
}

} // namespace accelrt_torch
