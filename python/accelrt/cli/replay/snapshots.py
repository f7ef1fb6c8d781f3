"""Memory snapshots: pickles as `torch.cuda.memory._dump_snapshot` writes them."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from accelrt import _core
from accelrt.cli.replay.errors import TraceError, resemblance

_BEGINNING = 64
_MAX_DROPPED = 1 << 64
_MAX_DEVICE = 1 << 16
_MAX_CHARACTERS = 40
_ACTIONS = frozenset(
    (
        *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
        *("segment_map", "segment_unmap", "snapshot", "oom"),
    )
)
# The key of the settings' text: CUDA's, ROCm's, and that of other devices.
_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class _Unpickler(pickle.Unpickler):
    """Creates plain values only: no code of a pickle runs."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        _refuse(module_name, global_name)


class _PipeUnpickler(pickle._Unpickler):  # noqa: SLF001  Python's own, with a dictionary as memo
    """The same, for files that cannot be checked before they are read. It is slower."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        _refuse(module_name, global_name)


def _refuse(module_name: str, global_name: str) -> NoReturn:
    message = f"refused: it asks for {module_name}.{global_name}, and snapshots are plain data"
    raise TraceError(message)


@dataclass
class Device:
    """What one device's allocator held at the end, and what happened before, oldest first."""

    index: int
    trace: list[dict[str, Any]]
    segments: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    """The number of entries by unknown action, which are replaced by `snapshot` entries."""


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
        index: _device(index, _list(f"device_traces[{index}]", trace))
        for index, trace in enumerate(traces)
    }
    for number, segment in enumerate(_list("segments", content["segments"])):
        index = segment.get("device") if isinstance(segment, dict) else None
        if type(index) is not int or not 0 <= index < _MAX_DEVICE:
            message = f"segments[{number}] names no device"
            raise TraceError(message)
        _complete(segment)
        devices.setdefault(index, Device(index, [])).segments.append(segment)
    annotations = content.get("external_annotations")
    return Snapshot(
        [devices[index] for index in sorted(devices)],
        _settings(content),
        annotations if isinstance(annotations, list) else [],
        _dropped(content.get("accelrt")),
    )


def _device(index: int, trace: list[Any]) -> Device:
    """Return a device. Entries of unknown actions become `snapshot` entries, which keep indices.

    Versions of PyTorch have had actions of their own, such as `user_defined` in 2.3.
    """
    skipped: dict[str, int] = {}
    for place, entry in enumerate(trace):
        action = entry.get("action") if isinstance(entry, dict) else None
        if isinstance(action, str) and action not in _ACTIONS:
            skipped[action] = skipped.get(action, 0) + 1
            times = {key: entry[key] for key in ("time_us",) if key in entry}
            trace[place] = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, **times}
    return Device(index, trace, skipped=skipped)


def skipped_text(skipped: dict[str, int]) -> str:
    """Return in words which entries were skipped.

    >>> skipped_text({"user_defined": 2})
    "skipped 2 entries of unknown actions: 'user_defined'"
    """
    count = sum(skipped.values())
    names = ", ".join(ascii(action[:_MAX_CHARACTERS]) for action in sorted(skipped))
    return f"skipped {count} {'entry' if count == 1 else 'entries'} of unknown actions: {names}"


def _complete(segment: dict[str, Any]) -> None:
    """Add the `requested_size` of blocks that PyTorch 2.0 wrote elsewhere or left out."""
    blocks = segment.get("blocks")
    requested = 0
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        is_active = block.get("state") != "inactive"
        if "requested_size" not in block and "size" in block:
            history = block.get("history")
            last = history[0] if isinstance(history, list) and history else None
            known = last if is_active and isinstance(last, dict) else {}
            block["requested_size"] = known.get("real_size", block["size"] if is_active else 0)
            if "frames" in known:
                block.setdefault("frames", known["frames"])
        size = block.get("requested_size")
        requested += size if is_active and type(size) is int else 0
    segment.setdefault("requested_size", requested)


def _dropped(lost: object) -> int:
    count = lost.get("num_dropped_entries") if isinstance(lost, dict) else None
    return count if type(count) is int and 0 <= count < _MAX_DROPPED else 0


def _load(path: Path) -> object:
    with path.open("rb") as file:
        try:
            if not path.is_file():
                return _PipeUnpickler(file).load()
            if (fault := _core.find_pickle_fault(path)) is not None:
                raise pickle.UnpicklingError(fault)  # noqa: TRY301  named as others are
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
    texts = (settings.get(key) for key in _SETTINGS) if isinstance(settings, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text), "")
