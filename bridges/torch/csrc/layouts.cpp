// Tensors that are not strided, which accelrt has not: refused by name, where torch would list all
// kernels that it knows.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace accelrt_torch {
namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "accelrt has strided tensors alone, and nested ones of ",
      "torch.jagged: it has no operator ", toString(op.operator_name()),
      " for tensors that are sparse, quantized or of another layout");
}

torch::CppFunction refused() {
  return torch::CppFunction::makeFromBoxedFunction<&refuse>();
}

// Whether an encoder may make a nested tensor of a batch and its mask. If not it uses both.
bool is_left_aligned(const at::Tensor&, const at::Tensor&) {
  return false;
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(refused());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(refused());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, library) {
  library.fallback(refused());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(refused());
}

// These have kernels of torch's own that make a tensor of which nothing could be asked.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  library.impl("_sparse_compressed_tensor_unsafe", refused());
  library.impl("_sparse_compressed_tensor_with_dims", refused());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_nested_tensor_from_tensor_list", refused());
  library.impl("_nested_tensor_from_mask", refused());
  library.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
}

} // namespace
} // namespace accelrt_torch
