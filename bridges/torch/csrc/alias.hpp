// Tensors of a device as the kernels of the CPU see them: the same memory, as the host's.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "runtime.hpp"

namespace accelrt_torch {

inline bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == DEVICE_TYPE;
}

// An alias keeps no memory: that is freed in stream order, behind the tasks that were enqueued.
// A tensor that is not of the device is returned as it is.
at::Tensor host_alias(const at::Tensor& tensor);

// Gives a copy-on-write tensor, which is to be written, memory of its own.
void own_memory(const at::Tensor& tensor);

// The storage of an alias, which several aliases may have: kernels compare storages when they look
// for memory that two arguments have in common.
c10::Storage host_storage(const c10::Storage& storage);
at::Tensor host_alias(const at::Tensor& tensor, c10::Storage of_host);

// An undefined tensor and one without elements stay; of others a copy, which the caller of an
// operator cannot change while its task waits.
at::Tensor own_copy(const at::Tensor& of_host);

// Makes stand-ins for tensors of the device. Two arguments that are all of the same memory get one
// stand-in, so that kernels find that they overlap.
class Twins {
 public:
  explicit Twins(std::function<at::Tensor(const at::Tensor&)> make) : make_(std::move(make)) {}

  // A tensor that is not of the device is returned unchanged.
  at::Tensor of(const at::Tensor& tensor);

 private:
  std::function<at::Tensor(const at::Tensor&)> make_;
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
};

} // namespace accelrt_torch
