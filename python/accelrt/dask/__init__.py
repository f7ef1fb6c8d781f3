"""Devices, streams and spilling for the workers of dask.distributed.

`LocalCluster` and `dask accelrt-worker ADDRESS` start a worker process for each device. Others take
part by `dask worker ADDRESS --preload accelrt.dask`, and those of a cluster that runs already by
`client.register_plugin(accelrt.dask.Devices())`. Each worker then has one device; each of its tasks
runs on a stream of its own, whose errors are the task's; buffers and views that tasks return stay
on the device until its memory is needed, and go to pinned host memory and to disk then. `profile`
shows all workers as one timeline.

Programs that exchange buffers with workers import this module too. Needs the extra `dask`.
"""

try:
    import distributed as _  # noqa: F401  its error is ours
except ImportError as _error:
    _message = "accelrt.dask needs the extra `dask`: pip install 'accelrt[dask]'"
    raise ImportError(_message) from _error

import importlib
import sys

from accelrt.dask.cluster import LocalCluster
from accelrt.dask.profile import profile
from accelrt.dask.store import DeviceStore
from accelrt.dask.worker import Devices, dask_setup, device_of, store_of

__all__ = [
    "DeviceStore",
    "Devices",
    "LocalCluster",
    "dask_setup",
    "device_of",
    "profile",
    "store_of",
]

if "accelrt_torch" in sys.modules:  # which imports this else, when it comes behind this package
    importlib.import_module("accelrt_torch.dask")
