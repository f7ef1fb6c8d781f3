"""The start of a program: what `import accelrt` adds to an empty one, and the first stream (I1)."""

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from accelrt.cli.bench.measure import in_turns, once, row
from accelrt.cli.bench.measurement import Measurement

_STREAM = "import accelrt; accelrt.Stream().synchronize()"


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    (whole,) = in_turns(_beyond("pass", "import accelrt"))
    yield row("I1", whole)
    (first,) = in_turns(_beyond("import accelrt", _STREAM))
    yield row("I1.stream", first)
    for peer in ("numpy", "torch"):
        if importlib.util.find_spec(peer) is None:
            yield Measurement(f"I1.{peer}", reason=f"{peer} is missing")
            continue
        things = (_beyond("pass", f"import {module}") for module in ("accelrt", peer))
        ours, theirs = in_turns(*things)
        yield row(f"I1.{peer}", ours, peer, theirs)


def _beyond(less: str, more: str) -> Callable[..., float]:
    """Have milliseconds measured that one program takes more than another."""
    return once(lambda: _ms_of(more) - _ms_of(less))


def _ms_of(program: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603  our own words
    return (time.perf_counter() - started) * 1e3
