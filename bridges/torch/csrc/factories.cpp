// Tensors without contents, and other views of a tensor's memory: no task is needed.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "device_allocator.hpp"

namespace accelrt_torch {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr auto KEYS = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<c10::Layout> layout, std::optional<bool> is_pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided,
      "accelrt has strided tensors alone, not ", c10::layout_or_default(layout));
  TORCH_CHECK(!c10::pinned_memory_or_default(is_pinned), "Only dense CPU tensors can be pinned");
}

c10::Device device_or_current(std::optional<c10::Device> device) {
  return torch_device(device ? index_of(*device) : current_device());
}

// What nothing has written is the same in each run, where the program wants that.
Tensor as_wanted(Tensor fresh) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
          context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(fresh);
  }
  return fresh;
}

Tensor empty(IntArrayRef size, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device,
    std::optional<bool> is_pinned, std::optional<c10::MemoryFormat> format) {
  check_options(layout, is_pinned);
  const c10::DeviceGuard on_device(device_or_current(device));
  return as_wanted(at::detail::empty_generic(
      size, device_allocator(), KEYS, c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device,
    std::optional<bool> is_pinned) {
  check_options(layout, is_pinned);
  const c10::DeviceGuard on_device(device_or_current(device));
  return as_wanted(at::detail::empty_strided_generic(
      size, stride, device_allocator(), KEYS, c10::dtype_or_default(dtype)));
}

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride,
    std::optional<int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("view.dtype", TORCH_FN(at::native::view_dtype));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
}

} // namespace accelrt_torch
