"""What several processes have recorded, as files that `python -m accelrt view` takes together."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from accelrt import _memory_history, _merged_traces

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from accelrt._recording import Recorded


class Recordings:
    """The recordings of several processes by their names."""

    _found: Mapping[str, Recorded] = MappingProxyType({})  # none at first

    def export_chrome_trace(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write one trace of all processes, on the common clock."""
        traces = ((name, begin_s, trace) for name, (begin_s, trace, _) in self._found.items())
        _merged_traces.write(traces, path)

    def dump_snapshots(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the memory history of each process that has one."""
        found = {name: it for name, (_, _, it) in self._found.items() if it is not None}
        paths = [Path(folder, f"{name.replace(':', '-')}.pickle") for name in found]
        for path, snapshot in zip(paths, found.values(), strict=True):
            _memory_history.dump(path, snapshot)
        return paths
