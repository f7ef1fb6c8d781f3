"""Calls that need what is current, in processes of their own (W3).

From the first `with` inside a running loop on, such calls look at the asyncio task until the
process ends. So one process enters a `with` in its loop and another one does not, and both are
asked in turns.

Usage: python -m accelrt.cli.bench.current STATEMENT inside|outside, which answers each line of its
input with the nanoseconds of a block.
"""

import asyncio
import contextlib
import subprocess
import sys
from timeit import Timer
from typing import Self

import accelrt
from accelrt.cli.bench.measure import warm_ns_per_round

_ROUNDS = 1_000


class Asked:
    """A process that measures one statement when it is asked; ends with the `with`."""

    def __init__(self, statement: str, *, is_inside: bool) -> None:
        """Start the process."""
        place = "inside" if is_inside else "outside"
        self._process = subprocess.Popen(  # noqa: S603  our own words
            [sys.executable, "-m", "accelrt.cli.bench.current", statement, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ns(self) -> float:
        """Return the nanoseconds of the statement in a block of now."""
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None:
            raise AssertionError
        asked.write("\n")
        asked.flush()
        return float(answers.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.communicate()


async def _answer(statement: str, *, is_inside: bool) -> None:
    names = {"current_stream": accelrt.accelerator.current_stream, "empty": accelrt.empty}
    timer = Timer(statement, globals=names)
    with accelrt.Stream() if is_inside else contextlib.nullcontext():
        for _ in sys.stdin:
            sys.stdout.write(f"{warm_ns_per_round(_ROUNDS, timer)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_answer(sys.argv[1], is_inside=sys.argv[2] == "inside"))
