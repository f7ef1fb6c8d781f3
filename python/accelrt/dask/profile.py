"""What all workers of a cluster do, as one timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from distributed import WorkerPlugin
from distributed.utils import offload

from accelrt import _memory_history, _merged_traces
from accelrt._recording import Recording

if TYPE_CHECKING:
    import os

    from distributed import Client, Worker

    from accelrt._recording import Recorded


class _Recorder(WorkerPlugin):
    """Records a worker from its begin, or from the profile's, to the profile's end."""

    def __init__(self, *, memory_history: bool) -> None:
        self.name = f"accelrt-profile-{uuid4().hex}"  # others of the cluster go on
        self._has_history = memory_history

    def setup(self, worker: Worker) -> None:
        delay_s = worker.scheduler_delay
        self.recording = Recording(clock_ahead_s=delay_s, memory_history=self._has_history)

    def teardown(self, worker: Worker) -> None:
        del worker
        self.recording.close()


async def _recorded(name: str, dask_worker: Worker) -> Recorded:
    recorder = dask_worker.plugins[name]
    assert isinstance(recorder, _Recorder)  # noqa: S101  by its name
    return await offload(recorder.recording.stop)


class profile:  # noqa: N801  as accelrt's own
    """Records all workers of a client inside a `with`, those that join meanwhile too.

    What a worker did that was killed is lost. One profile with histories of a cluster at a time.
    """

    def __init__(self, client: Client, *, memory_history: bool = False) -> None:
        """Prepare a profile; with `memory_history` there are snapshots, which have stacks."""
        self._client = client
        self._recorder = _Recorder(memory_history=memory_history)
        self._found: dict[str, Recorded] = {}

    def __enter__(self) -> Self:
        """Start."""
        self._client.register_plugin(self._recorder)
        return self

    def __exit__(self, *_raised: object) -> None:
        """Fetch what was recorded."""
        try:
            found = self._client.run(_recorded, self._recorder.name, on_error="ignore")
            self._found = {address.rpartition("/")[2]: it for address, it in found.items()}
        finally:
            self._client.unregister_worker_plugin(self._recorder.name)

    def export_chrome_trace(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write one trace of all workers, on the scheduler's clock: `python -m accelrt view`."""
        traces = ((name, begin_s, trace) for name, (begin_s, trace, _) in self._found.items())
        _merged_traces.write(traces, path)

    def dump_snapshots(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the memory history of each worker, which `python -m accelrt view` takes too."""
        found = {name: it for name, (_, _, it) in self._found.items() if it is not None}
        paths = [Path(folder, f"{name.replace(':', '-')}.pickle") for name in found]
        for path, snapshot in zip(paths, found.values(), strict=True):
            _memory_history.dump(path, snapshot)
        return paths
