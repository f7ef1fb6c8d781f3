"""What makes `accelrt` a device of torch, in the order that torch needs."""

import importlib
import os
import sys
from pathlib import Path

import torch

from accelrt import _core
from accelrt_torch import (  # type: ignore[attr-defined]
    _C,
    device_module,
    memory,
    nested,
    parallel,
    random,
    streams,
)

NAME = "accelrt"


def register() -> None:
    """Name the backend, bind the runtime, register the device's module and methods."""
    torch.utils.rename_privateuse1_backend(NAME)
    _C.bind(_core._C_API)  # noqa: SLF001 - the capsule for extensions
    _C.tell_findings_by(_core.findings_flag(), _core.tell_findings)
    torch._register_device_module(NAME, device_module)  # noqa: SLF001 - torch's way for devices
    for part in (memory, random, streams):  # for `import torch.accelrt.memory`
        sys.modules[f"torch.{NAME}.{part.__name__.rpartition('.')[2]}"] = part
    _C.set_kernel_threads(torch.get_num_threads())
    _C.set_notes_places(os.environ.get("ACCELRT_TRACEBACKS") == "1")
    _C.set_own_folders([f"{Path(module.__file__).parent}/" for module in (torch, _C)])
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    nested.install()
    parallel.install()
    if "accelrt.dask" in sys.modules:  # which imports this else, when it comes behind torch
        importlib.import_module("accelrt_torch.dask")
