#include "corrections.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace accelrt_torch {
namespace {

using ShapeList = std::vector<std::optional<Shape>>;

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

} // namespace

void correct(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, ShapeList& shapes) {
  const auto& name = op.operator_name().name;
  if (keeps_order(name)) {
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
