"""What this process does for a while, as one that merges it with that of others takes it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import accelrt
from accelrt import profiler

# Its begin, in seconds on the common clock, the trace, and the snapshot where one was asked for.
Recorded = tuple[float, bytes, dict[str, Any] | None]


class Recording:
    """Records this process from now on, with its memory history where that is asked for."""

    def __init__(self, *, clock_ahead_s: float, memory_history: bool) -> None:
        """Start; the common clock is so much ahead of the own one."""
        self._run = profiler.profile(profile_memory=True)
        self._has_history = memory_history
        if memory_history:
            accelrt.accelerator.record_memory_history()
        self._begin_s = time.time() + clock_ahead_s
        self._run.start()

    def stop(self) -> Recorded:
        """Stop, and return what was recorded."""
        self._run.stop()
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            self._run.export_chrome_trace(file.name)
            exported = Path(file.name).read_bytes()
        snapshot = accelrt.accelerator.take_memory_snapshot() if self._has_history else None
        return self._begin_s, exported, snapshot

    def close(self) -> None:
        """Drop the memory history."""
        if self._has_history:
            accelrt.accelerator.record_memory_history(None)
