"""Rows of the bench as values, and constants that tests replace."""

from collections.abc import Iterable

import pytest

from accelrt.cli.bench.measurement import Measurement

Rows = dict[str, tuple[float | None, str | None, float | None]]


def constants(monkeypatch: pytest.MonkeyPatch, module: object, **values: object) -> None:
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)


def rows(measured: Iterable[Measurement]) -> Rows:
    """Return ours, the peer and its figure by row; a missing one has the reason for a peer."""
    return {
        it.name: (
            None if it.ours is None else round(it.ours, 3),
            it.reason or it.peer,
            None if it.peer_ns is None else round(it.peer_ns, 3),
        )
        for it in measured
    }
