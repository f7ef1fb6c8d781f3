"""The smallest program found that still differs in the same way."""

from __future__ import annotations

from collections.abc import Callable

HEADS = ("capacity ", "devices ", "with ")


def shrink(lines: list[str], differs: Callable[[list[str]], bool]) -> list[str]:
    """Leave out runs of steps, shorter and shorter ones, while a difference is left."""
    head = [line for line in lines if line.startswith(HEADS)]
    body = [line for line in lines if not line.startswith(HEADS)]
    length = max(1, len(body) // 2)
    while True:
        has_shrunk = False
        at = 0
        while at < len(body):
            shorter = body[:at] + body[at + length :]
            if differs(head + shorter):
                body, has_shrunk = shorter, True
            else:
                at += length
        if length == 1 and not has_shrunk:
            return head + body
        length = max(1, length // 2)
