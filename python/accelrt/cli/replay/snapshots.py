"""Memory snapshots: pickles as `torch.cuda.memory._dump_snapshot` writes them."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from accelrt.cli.replay.errors import TraceError, resemblance

_BEGINNING = 64
_MOST_DROPPED = 1 << 64


class _Unpickler(pickle.Unpickler):
    """Creates plain values only: no code of a pickle runs."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        message = f"refused: it asks for {module_name}.{global_name}, and snapshots are plain data"
        raise TraceError(message)


@dataclass
class Device:
    """What one device's allocator held at the end, and what happened before, oldest first."""

    index: int
    trace: list[dict[str, Any]]
    segments: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    """The devices of a snapshot and the settings of their allocators, as PyTorch had them."""

    devices: list[Device]
    settings: str
    annotations: list[Any]
    """The beginnings and ends of ranges that the program named; not checked yet."""
    dropped: int = 0
    """The entries that were older than those of the traces, as accelrt counts them."""


def read(path: Path) -> Snapshot:
    """Return the content of a pickle; the insides of segments and entries are not checked yet."""
    content = _load(path)
    if not isinstance(content, dict) or not {"segments", "device_traces"} <= content.keys():
        message = "it is no memory snapshot, a dictionary with segments and device_traces"
        raise TraceError(message)
    traces = _list("device_traces", content["device_traces"])
    devices = {
        index: Device(index, _list(f"device_traces[{index}]", trace))
        for index, trace in enumerate(traces)
    }
    for number, segment in enumerate(_list("segments", content["segments"])):
        index = segment.get("device") if isinstance(segment, dict) else None
        if type(index) is not int or index < 0:
            message = f"segments[{number}] names no device"
            raise TraceError(message)
        devices.setdefault(index, Device(index, [])).segments.append(segment)
    annotations = content.get("external_annotations")
    return Snapshot(
        [devices[index] for index in sorted(devices)],
        _settings(content),
        annotations if isinstance(annotations, list) else [],
        _dropped(content.get("accelrt")),
    )


def _dropped(lost: object) -> int:
    count = lost.get("num_dropped_entries") if isinstance(lost, dict) else None
    return count if type(count) is int and 0 <= count < _MOST_DROPPED else 0


def _load(path: Path) -> object:
    with path.open("rb") as file:
        try:
            return _Unpickler(file).load()
        except (TraceError, OSError, MemoryError, RecursionError):
            raise
        except Exception as error:  # a damaged pickle may raise any exception
            message = f"it is no whole pickle ({type(error).__name__}: {error}){_looks(file)}"
            raise TraceError(message) from error


def _looks(file: BinaryIO) -> str:
    if not file.seekable():
        return ""
    file.seek(0)
    return resemblance(file.read(_BEGINNING), but="a pickle")


def _list(name: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        message = f"{name} is no list"
        raise TraceError(message)
    return value


def _settings(content: dict[str, Any]) -> str:
    """Return the text of the settings, where the version that wrote the snapshot kept it."""
    settings = content.get("allocator_settings")
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF", "") if isinstance(settings, dict) else ""
    return text if isinstance(text, str) else ""
