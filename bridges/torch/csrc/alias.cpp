#include "alias.hpp"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/COW.h>

namespace accelrt_torch {

c10::Storage host_storage(const c10::Storage& storage) {
  auto* address = const_cast<void*>(storage.data());
  return c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(address, c10::Device(c10::kCPU)), nullptr, false);
}

void own_memory(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (C10_UNLIKELY(c10::impl::cow::is_cow_data_ptr(storage->data_ptr()))) {
      c10::impl::cow::materialize_cow(storage);
    }
  }
}

at::Tensor host_alias(const at::Tensor& tensor) {
  return is_ours(tensor) ? host_alias(tensor, host_storage(tensor.storage())) : tensor;
}

at::Tensor host_alias(const at::Tensor& tensor, c10::Storage of_host) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(),
      "accelrt has strided tensors alone, not ", tensor.layout(),
      tensor.is_quantized() ? " of quantized numbers" : "");
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(of_host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
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

at::Tensor Twins::of(const at::Tensor& tensor) {
  if (!is_ours(tensor)) {
    return tensor;
  }
  for (const auto& [known, twin] : made_) {
    if (known.is_same(tensor) ||
        (known.numel() > 0 && known.const_data_ptr() == tensor.const_data_ptr() &&
            known.dtype() == tensor.dtype() && known.sizes() == tensor.sizes() &&
            known.strides() == tensor.strides() && known.is_conj() == tensor.is_conj() &&
            known.is_neg() == tensor.is_neg())) {
      return twin;
    }
  }
  return made_.emplace_back(tensor, make_(tensor)).second;
}

at::Tensor own_copy(const at::Tensor& of_host) {
  if (!of_host.defined() || of_host.numel() == 0 ||
      of_host.unsafeGetTensorImpl()->is_wrapped_number()) { // a program has no hold of these
    return of_host;
  }
  return of_host.clone();
}

} // namespace accelrt_torch
