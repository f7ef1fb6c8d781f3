"""A task that keeps its stream busy until the test lets it go, and what the process has."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

import accelrt

CPU = 0  # the type code of accelrt's devices of the host


class Gate:
    """Occupies a stream of torch until `open`, or the end of a `with` statement."""

    def __init__(self, stream: torch.Stream | None = None) -> None:
        """Enqueue the task that waits, on accelrt's stream of the same number."""
        occupied = torch.accelerator.current_stream() if stream is None else stream
        self._opened = threading.Event()
        ours = accelrt.Stream(occupied.stream_id, occupied.device_index, CPU)
        ours.launch_host(self._opened.wait)

    def open(self) -> None:
        """Let the stream go on."""
        self._opened.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.open()


def resident_bytes() -> int:
    """Return how much memory of the machine the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
