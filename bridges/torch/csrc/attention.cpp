// Which kernel `scaled_dot_product_attention` calls: the one that the CPU would choose.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

namespace accelrt_torch {
namespace {

// It reads sizes and types alone, which may be those of a program that is compiled.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
    std::optional<double> scale, bool enable_gqa) {
  return at::native::_fused_sdp_choice_cpp(
      query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fused_sdp_choice", choose);
}

} // namespace
} // namespace accelrt_torch

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &accelrt_torch::choose)

} // namespace at::native
