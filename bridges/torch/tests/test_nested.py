"""Nested tensors of `torch.jagged`: attention of sequences with lengths of their own.

Goal: each sequence has the attention of a call of its own, with gradients. Method: the same on the
CPU, sequence by sequence.
"""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

LENGTHS = (3, 5, 1)


@pytest.mark.parametrize("is_causal", [False, True])
def test_jagged_attention_matches_each_sequence(is_causal: bool) -> None:  # noqa: FBT001
    torch.manual_seed(1)
    rows = torch.randn(sum(LENGTHS), 2, 8)
    here, there = rows.clone().requires_grad_(), rows.to("accelrt").requires_grad_()
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).to("accelrt")
    batch = torch.nested.nested_tensor_from_jagged(there, offsets).transpose(1, 2)
    found = scaled_dot_product_attention(batch, batch, batch, is_causal=is_causal)
    parts = [part.transpose(0, 1).unsqueeze(0) for part in here.split(LENGTHS)]
    wanted = [scaled_dot_product_attention(it, it, it, is_causal=is_causal) for it in parts]
    whole = torch.cat([it.squeeze(0).transpose(0, 1) for it in wanted])
    assert found.is_nested
    torch.testing.assert_close(found.transpose(1, 2).values().cpu(), whole)
    whole.square().sum().backward()
    found.transpose(1, 2).values().square().sum().backward()
    torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_choice_of_attention_is_the_cpus() -> None:
    x = torch.randn(1, 2, 8, 16)
    there = x.to("accelrt")
    choice = vars(torch)["_fused_sdp_choice"]
    assert choice(there, there, there) == choice(x, x, x)
