"""What all workers of a cluster do, as one timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from distributed import WorkerPlugin
from distributed.utils import offload

from accelrt._recording import Recording
from accelrt._recordings import Recordings

if TYPE_CHECKING:
    from distributed import Client, Worker


class _Recorder(WorkerPlugin):
    """Records a worker from its begin, or from the profile's, to the profile's end."""

    def __init__(self, *, memory_history: bool) -> None:
        self.name = f"accelrt-profile-{uuid4().hex}"  # others of the cluster go on
        self._has_history = memory_history

    def setup(self, worker: Worker) -> None:
        delay_s = worker.scheduler_delay
        self.recording = Recording(clock_ahead_s=delay_s, memory_history=self._has_history)

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002  dask's name
        self.recording.close()


async def _recorded(name: str, dask_worker: Any) -> Any:
    return await offload(dask_worker.plugins[name].recording.stop)


class profile(Recordings):  # noqa: N801  as accelrt's own
    """Records all workers of a client inside a `with`, those that join meanwhile too.

    Behind it, `export_chrome_trace(path)` writes one trace of all workers, on the scheduler's
    clock, and `dump_snapshots(folder)` the memory history of each: `python -m accelrt view`.

    What a worker did that was killed is lost. One profile with histories of a cluster at a time.
    """

    def __init__(self, client: Client, *, memory_history: bool = False) -> None:
        """Prepare a profile; with `memory_history` there are snapshots, which have stacks."""
        self._client = client
        self._recorder = _Recorder(memory_history=memory_history)

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
