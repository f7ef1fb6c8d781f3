"""Buffers: `accelrt.empty` and its release (A4), beside arrays of NumPy and tensors of torch."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import accelrt
from accelrt.cli.bench.measure import Thing, in_blocks, in_turns, optional, row
from accelrt.cli.bench.measurement import Measurement

_SIZES = (("A4.512B", 512), ("A4.64KiB", 64 << 10), ("A4.2MiB", 2 << 20))
_ROUNDS, _BLOCKS = 500, 20


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    peers = {"np.empty": _numpy(), "torch.empty": _torch()}
    for name, size in _SIZES:
        things = [_ours(size), *(peer(size) for peer in peers.values() if peer is not None)]
        ours, *figures = in_turns(*things)
        theirs = iter(figures)
        for peer, suffix in zip(peers, ("", ".torch"), strict=True):
            figure = None if peers[peer] is None else next(theirs)
            yield row(f"{name}{suffix}", ours, peer, figure)


Peer: TypeAlias = Callable[[int], Thing]


def _ours(size: int) -> Thing:
    return in_blocks(_BLOCKS, _ROUNDS, "empty(size)", empty=accelrt.empty, size=size)


def _numpy() -> Peer | None:
    numpy = optional("numpy")
    if numpy is None:
        return None
    names = {"empty": numpy.empty, "kind": numpy.uint8}
    return lambda size: in_blocks(_BLOCKS, _ROUNDS, "empty(size, kind)", size=size, **names)


def _torch() -> Peer | None:
    torch = optional("torch")
    if torch is None:
        return None
    names = {"empty": torch.empty, "kind": torch.uint8}
    return lambda size: in_blocks(_BLOCKS, _ROUNDS, "empty(size, dtype=kind)", size=size, **names)
