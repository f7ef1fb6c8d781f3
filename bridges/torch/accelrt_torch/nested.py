"""Attention of nested tensors with the layout `torch.jagged`.

torch's function needs kernels of CUDA, or nested tensors with strides, which accelrt does not
support. Here each sequence is a call of its own.
"""

import sys
from functools import wraps

import torch
from torch.nested._internal import sdpa
from torch.nn import functional


def _sequences(nested: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the sequences of a batch: of (heads, length, size) each. Waits for the lengths."""
    if nested.lengths() is not None:
        message = "accelrt has no attention of nested tensors with holes between their sequences"
        raise NotImplementedError(message)
    rows = nested.transpose(1, 2).values()
    parts = rows.split(nested.offsets().diff().tolist())
    return tuple(part.transpose(0, 1) for part in parts)


def jagged_attention(  # noqa: PLR0917 - torch's
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """Return the attention of each sequence, as `torch.nn.functional` does for one."""
    if attn_mask is not None:
        message = "accelrt has no attention of nested tensors with a mask"
        raise NotImplementedError(message)
    sequences = zip(*map(_sequences, (query, key, value)), strict=True)
    results = [
        functional.scaled_dot_product_attention(
            *(part.unsqueeze(0) for part in (q, k, v)),
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        for q, k, v in sequences
    ]
    rows = torch.cat([result.squeeze(0).transpose(0, 1) for result in results])
    nested = torch.nested.nested_tensor_from_jagged(rows, query.offsets())
    return nested.transpose(1, 2)


def install() -> None:
    """Take the place of torch's function for tensors of accelrt."""
    of_torch = sdpa.jagged_scaled_dot_product_attention

    @wraps(of_torch)
    def choose(query: torch.Tensor, *others: object, **named: object) -> torch.Tensor:
        is_ours = query.device.type == "accelrt" and query.dim() == 4 and query._ragged_idx == 2  # noqa: PLR2004, SLF001
        chosen = jagged_attention if is_ours else of_torch
        return chosen(query, *others, **named)  # type: ignore[arg-type]

    sdpa.jagged_scaled_dot_product_attention = choose
    users = sys.modules.get("torch.nested._internal.ops")
    if users is not None:
        users.jagged_scaled_dot_product_attention = choose  # type: ignore[attr-defined]
