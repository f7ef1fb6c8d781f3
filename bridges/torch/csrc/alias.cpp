#include "alias.hpp"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

namespace accelrt_torch {

at::Tensor host_alias(const at::Tensor& tensor) {
  if (!is_ours(tensor)) {
    return tensor;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(),
      "accelrt has strided tensors alone, not ", tensor.layout(),
      tensor.is_quantized() ? " of quantized numbers" : "");
  const auto& storage = tensor.storage();
  auto* address = const_cast<void*>(storage.data());
  c10::Storage alias(c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(address, c10::Device(c10::kCPU)), nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(alias), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) {
    impl->_set_conj(true);
  }
  if (tensor.is_neg()) {
    impl->_set_neg(true);
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return result;
}

at::Tensor own_copy(const at::Tensor& of_host) {
  if (!of_host.defined() || of_host.numel() == 0 ||
      of_host.unsafeGetTensorImpl()->is_wrapped_number()) { // a program has no hold of these
    return of_host;
  }
  return of_host.clone();
}

} // namespace accelrt_torch
