// Which kernel `scaled_dot_product_attention` calls: the one that the CPU would choose.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "alias.hpp"
#include "task.hpp"

namespace accelrt_torch {
namespace {

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
    std::optional<double> scale, bool enable_gqa) {
  const auto mask_alias = mask ? std::make_optional(host_alias(*mask)) : std::nullopt;
  if (mask_alias && mask->requires_grad()) {
    mask_alias->requires_grad_(); // the choice depends on it
  }
  return at::_fused_sdp_choice(host_alias(query), host_alias(key), host_alias(value), mask_alias,
      dropout, is_causal, scale, enable_gqa);
}

} // namespace
} // namespace accelrt_torch

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &accelrt_torch::choose)

} // namespace at::native
