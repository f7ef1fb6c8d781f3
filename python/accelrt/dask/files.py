"""Values on disk: one file for each, written and read without any lock of the store.

A file that cannot be written is removed, and one that cannot be read raises `RuntimeError` with its
key, its path and the cause. The length of a file is checked; its bytes are not, because a checksum
takes longer than the disk.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.metrics import context_meter
from distributed.protocol.compression import get_compression_settings
from distributed.protocol.serialize import deserialize_bytes, serialize_bytelist
from distributed.spill import SpilledSize
from distributed.utils import nbytes

import accelrt
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from dask.typing import Key


class UnwritableError(Exception):
    """A value cannot be serialized at the moment; the disk is not the cause."""


@dataclass(eq=False)
class SpilledFile:
    """The file of one value. The store's lock guards the flags."""

    path: str
    size: SpilledSize
    is_pinned: bool  # read into pinned memory, because the value belongs on the device
    is_read: bool = False
    is_dropped: bool = False  # while it was read: the reader removes it

    def remove(self) -> None:
        """Remove the file. Where that fails, it stays until the worker's directory is removed."""
        with suppress(OSError):
            Path(self.path).unlink()


class Files:
    """The directory of a store's files."""

    def __init__(self, directory: str, max_bytes: int | None) -> None:
        """Make the directory; `max_bytes` limits the sum of all files."""
        self.directory, self.max_bytes = directory, max_bytes
        self._compression = get_compression_settings("distributed.worker.memory.spill-compression")
        Path(directory).mkdir(parents=True, exist_ok=True)

    def write(self, value: object, weight: int, used_bytes: int, *, is_pinned: bool) -> SpilledFile:
        """Write a value while the others take `used_bytes`.

        `UnwritableError` where it cannot be serialized, `OSError` where the disk does not take it.
        """
        try:
            frames = serialize_bytelist(value, compression=self._compression, on_error="raise")
        except Exception as error:
            raise UnwritableError(str(error)) from error
        disk_bytes = sum(map(nbytes, frames))
        if self.max_bytes is not None and used_bytes + disk_bytes > self.max_bytes:
            message = f"{used_bytes} + {disk_bytes} bytes exceed max-spill ({self.max_bytes})"
            raise OSError(errno.EDQUOT, message)
        with record_function("write to disk"), context_meter.meter("disk-write", "seconds"):
            descriptor, path = tempfile.mkstemp(dir=self.directory)
            try:
                with open(descriptor, "wb") as stream:  # noqa: PTH123  of a descriptor
                    stream.writelines(frames)
            except BaseException:
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108  a text
                raise
        context_meter.digest_metric("disk-write", 1, "count")
        context_meter.digest_metric("disk-write", disk_bytes, "bytes")
        return SpilledFile(path, SpilledSize(weight, disk_bytes), is_pinned)

    def read(self, key: Key, file: SpilledFile) -> object:
        """Return the value of a file; `RuntimeError` names what is wrong with it."""
        try:
            with record_function("read from disk"), context_meter.meter("disk-read", "seconds"):
                content = _content(file)
            context_meter.digest_metric("disk-read", 1, "count")
            context_meter.digest_metric("disk-read", file.size.disk, "bytes")
            return deserialize_bytes(content)
        except (MemoryError, accelrt.OutOfMemoryError):
            raise
        except Exception as error:
            message = f"cannot read the value of {key!r} from disk ({file.path}): {error}"
            raise RuntimeError(message) from error


def _content(file: SpilledFile) -> Any:
    """Return the bytes of a file; those of a device's value in pinned memory."""
    length = file.size.disk
    with Path(file.path).open("rb") as stream:
        if (found := os.fstat(stream.fileno()).st_size) == length:
            content: Any = accelrt.empty_pinned(length) if file.is_pinned else bytearray(length)
            found = stream.readinto(content)
    if found != length:
        message = f"{found} bytes were found of {length}"
        raise OSError(errno.EIO, message)
    return memoryview(content) if file.is_pinned else content
