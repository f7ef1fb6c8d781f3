// The tensors inside of an operator's arguments and results.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <utility>

namespace accelrt_torch {

// TorchScript makes element types of its own for lists of optional tensors, which `IValue`'s own
// check compares by address.
inline bool is_list_of_optional_tensors(const c10::IValue& value) {
  if (!value.isList()) {
    return false;
  }
  static const auto& optional_tensor = *new c10::TypePtr(c10::OptionalType::ofTensor());
  const auto& element = value.toList().elementType();
  return element->kind() == c10::TypeKind::OptionalType && *element == *optional_tensor;
}

inline bool is_list_of_tensors(const c10::IValue& value) {
  return value.isTensorList() || is_list_of_optional_tensors(value);
}

// Undefined tensors, and those that an optional lacks, too.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      visit(tensor);
    }
  } else if (is_list_of_optional_tensors(value)) {
    for (const c10::IValue& element : value.toListRef()) {
      visit(element.isTensor() ? element.toTensor() : at::Tensor());
    }
  }
}

// The value with other tensors in place of its own.
template <typename Map>
c10::IValue map_tensors(const c10::IValue& value, Map&& map) {
  if (value.isTensor()) {
    return map(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorList()) {
      mapped.push_back(map(tensor));
    }
    return mapped;
  }
  if (is_list_of_optional_tensors(value)) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const c10::IValue& element : value.toListRef()) {
      mapped.push_back(
          element.isTensor() ? std::optional<at::Tensor>(map(element.toTensor())) : std::nullopt);
    }
    return mapped;
  }
  return value;
}

} // namespace accelrt_torch
