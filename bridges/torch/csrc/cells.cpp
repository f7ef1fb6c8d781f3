// Operators that torch calls fused on a device and has no kernel of the CPU for: the cells of
// recurrent networks, and dropout. Here they are made of other operators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

namespace accelrt_torch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor or_zeros(const OptionalTensor& gradient, const Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

Tensor sum_of_batch(const Tensor& gradient, bool is_needed) {
  return is_needed ? gradient.sum(0) : Tensor();
}

// Of a sigmoid's gradient, by what it returned.
Tensor through_sigmoid(const Tensor& gradient, const Tensor& output) {
  return gradient * output * (1 - output);
}

Tensor through_tanh(const Tensor& gradient, const Tensor& output) {
  return gradient * (1 - output * output);
}

// Returns the hidden state, the cell's state, and the gates for the gradient.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
    const Tensor& cx, const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const auto in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]);
  const auto candidate = at::tanh(parts[2]), out = at::sigmoid(parts[3]);
  const auto cy = forget * cx + in * candidate;
  return {out * at::tanh(cy), cy, at::cat({in, forget, candidate, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
    const OptionalTensor& grad_cy, const Tensor& cx, const Tensor& cy, const Tensor& workspace,
    bool has_bias) {
  if (!(grad_hy && grad_hy->defined()) && !(grad_cy && grad_cy->defined())) {
    return {};
  }
  const auto parts = workspace.chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &candidate = parts[2], &out = parts[3];
  const auto of_hidden = or_zeros(grad_hy, cx);
  const auto squashed = at::tanh(cy);
  const auto of_cell = or_zeros(grad_cy, cx) + through_tanh(of_hidden * out, squashed);
  const auto of_gates = at::cat({through_sigmoid(of_cell * candidate, in),
      through_sigmoid(of_cell * cx, forget), through_tanh(of_cell * in, candidate),
      through_sigmoid(of_hidden * squashed, out)}, 1);
  return {of_gates, of_cell * forget, sum_of_batch(of_gates, has_bias)};
}

// Returns the hidden state, and five parts for the gradient: the three gates, the state before, and
// the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
    const Tensor& hx, const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto of_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto of_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = at::sigmoid(of_input[0] + of_hidden[0]);
  const auto update = at::sigmoid(of_input[1] + of_hidden[1]);
  const auto fresh = at::tanh(of_input[2] + reset * of_hidden[2]);
  const auto hy = fresh + update * (hx - fresh);
  return {hy, at::cat({reset, update, fresh, hx, of_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const auto &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3];
  const auto of_fresh = through_tanh(grad_hy * (1 - update), fresh);
  const auto of_update = through_sigmoid(grad_hy * (hx - fresh), update);
  const auto of_reset = through_sigmoid(of_fresh * parts[4], reset);
  const auto of_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const auto of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {of_input, of_hidden, grad_hy * update, sum_of_batch(of_input, has_bias),
      sum_of_batch(of_hidden, has_bias)};
}

// Draws by the device's generator, which the CPU's kernel has no argument for.
std::tuple<Tensor, Tensor> native_dropout(
    const Tensor& input, double probability, std::optional<bool> is_training) {
  const auto options = input.options().dtype(at::kBool);
  if (!is_training.value_or(true) || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, options)};
  }
  if (probability == 1) {
    return {at::zeros_like(input), at::zeros_like(input, options)};
  }
  const auto mask = at::empty_like(input, options).bernoulli_(1 - probability);
  return {input.mul(mask).mul_(1 / (1 - probability)), mask};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  library.impl("native_dropout", native_dropout);
}

} // namespace accelrt_torch
