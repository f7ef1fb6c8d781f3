"""Values on disk: one file for each, written and read without any lock of the store.

A file that cannot be written is removed, and one that cannot be read raises `RuntimeError` with its
key, its path and the cause. The length of a file is checked; its bytes are not, because a checksum
takes longer than the disk.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
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
from accelrt._failures import text_of
from accelrt.dask.frames import WRITING, Writing
from accelrt.profiler import record_function

if TYPE_CHECKING:
    from dask.typing import Key


_PINNED_ALIGNMENT = 64


class UnwritableError(Exception):
    """A value cannot be serialized at the moment; the disk is not the cause."""


class InUseError(Exception):
    """Work that is queued or has failed uses a buffer inside of a value."""


class FullError(Exception):
    """A file would exceed the limit of all files. Smaller ones may still fit."""

    def __init__(self, message: str, file_bytes: int) -> None:
        """Note the size of the file."""
        super().__init__(message)
        self.file_bytes = file_bytes


@dataclass(eq=False)
class SpilledFile:
    """The file of one value. The store's lock guards `is_read` and `is_dropped`."""

    path: str
    size: SpilledSize
    is_pinned: bool  # read into pinned memory, for the device or because the value was there
    lead_bytes: int = 0  # in front of the value's memory
    is_read: bool = False
    is_dropped: bool = False  # while it was read: the reader removes it
    is_counted: bool = False  # in the sum of all files


class Files:
    """The directory of a store's files."""

    def __init__(self, directory: str, max_bytes: int | None) -> None:
        """Make the directory; `max_bytes` limits the sum of all files."""
        self.directory, self.max_bytes = directory, max_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0  # also of files that are being written, or read for the last time
        self._compression = get_compression_settings("distributed.worker.memory.spill-compression")
        Path(directory).mkdir(parents=True, exist_ok=True)

    def has_room(self, file_bytes: int) -> bool:
        """Return whether a file of this size is within the limit at this moment."""
        return self.max_bytes is None or self._used_bytes + file_bytes <= self.max_bytes

    def write(self, value: object, weight: int, *, is_pinned: bool) -> SpilledFile:
        """Write a value that has `weight` bytes in memory.

        Raises `InUseError` if work uses a buffer inside of the value, `UnwritableError` if it
        cannot be serialized, `FullError` if its file would exceed the limit, and `OSError` if the
        write fails.
        """
        token = WRITING.set(writing := Writing())
        try:
            frames = serialize_bytelist(value, compression=self._compression, on_error="raise")
        except Exception as error:
            if writing.is_in_use:
                raise InUseError from error
            raise UnwritableError(text_of(error)) from error
        finally:
            WRITING.reset(token)
        sizes = list(map(nbytes, frames))
        file = SpilledFile("", SpilledSize(weight, sum(sizes)), is_pinned, sum(sizes[:-1]))
        try:
            self._reserve(file)
            file.path = self._write(frames, file.size.disk)
        except BaseException:
            self._free(file)
            raise
        return file

    def _write(self, frames: list[Any], disk_bytes: int) -> str:
        """Write a file; return its path."""
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
        return path

    def remove(self, file: SpilledFile) -> None:
        """Remove a file. Where that fails, it stays until the worker's directory is removed."""
        with suppress(OSError):
            Path(file.path).unlink()
        self._free(file)

    def _reserve(self, file: SpilledFile) -> None:
        disk_bytes = file.size.disk
        with self._lock:
            if not self.has_room(disk_bytes):
                used = f"{self._used_bytes} + {disk_bytes} bytes"
                message = f"{used} exceed max-spill ({self.max_bytes})"
                raise FullError(message, disk_bytes)
            self._used_bytes += disk_bytes
            file.is_counted = True

    def _free(self, file: SpilledFile) -> None:
        disk_bytes = file.size.disk
        with self._lock:
            if file.is_counted:
                file.is_counted = False
                self._used_bytes -= disk_bytes

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
            reason = text_of(error)
            message = f"cannot read the value of {key!r} from disk ({file.path}): {reason}"
            raise RuntimeError(message) from error


def _content(file: SpilledFile) -> Any:
    """Return the bytes of a file; those of a device's value in pinned memory."""
    length = file.size.disk
    with Path(file.path).open("rb") as stream:
        if (found := os.fstat(stream.fileno()).st_size) == length:
            if file.is_pinned:  # with the value's memory where pinned memory begins
                unused_bytes = -file.lead_bytes % _PINNED_ALIGNMENT
                pinned = accelrt.empty_pinned(unused_bytes + length)
                content: Any = memoryview(pinned)[unused_bytes:]
            else:
                content = bytearray(length)
            found = stream.readinto(content)
    if found != length:
        message = f"{found} bytes were found of {length}"
        raise OSError(errno.EIO, message)
    return content
