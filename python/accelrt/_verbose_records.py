"""The records of the verbose lines of oneMKL, oneDNN and this runtime.

A printed line may be cut off or mixed with other text. Malformed lines are skipped.
"""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from accelrt import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import WriteableBuffer

# A longer line comes in parts, so that one without an end is not held.
_PART_CHARACTERS = 1 << 16
_GZIP = b"\x1f\x8b"
_ENCODINGS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True, slots=True)
class Record:
    """One call: the library that printed it, its name, its duration, and its fields."""

    library: str
    name: str
    ms: float
    fields: dict[str, str]
    line: str

    def as_dict(self) -> dict[str, object]:
        """Return the record as a dictionary for JSON."""
        return {"library": self.library, "name": self.name, "ms": self.ms, "fields": self.fields}


def parse(lines: Iterable[str]) -> Iterator[Record]:
    """Yield a record per call in the lines; text before a library's prefix is skipped."""
    parser = _core.VerboseParser()
    for line in lines:
        for call in parser.read(line):
            yield Record(*call)


def read_log(file: BinaryIO) -> Iterator[Record]:
    """Yield a record per call in a log, by the rules of a capture. Raises as `parts_of`."""
    reader = _core.VerboseLogReader()
    for part in parts_of(file):
        for call in reader.feed(part):
            yield Record(*call)
    for call in reader.finish():
        yield Record(*call)


def parts_of(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a log in UTF-8 or UTF-16, which may be packed by gzip; long ones in parts.

    Damaged characters are replaced. Raises `OSError`, `EOFError` or `zlib.error` for a file that
    cannot be read or unpacked to its end.
    """
    content = _Begun(file)
    if content.beginning.startswith(_GZIP):
        content = _Begun(gzip.GzipFile(fileobj=io.BufferedReader(content)))
    encoding = _encoding(content.beginning)
    # Lines end where printers end them, not where the text has a form feed.
    text = io.TextIOWrapper(io.BufferedReader(content), encoding, errors="replace", newline="\n")
    while part := text.readline(_PART_CHARACTERS):
        yield part


class _Begun(io.RawIOBase):
    """A file whose first bytes are known, also where the first read of a pipe returns fewer."""

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file = cast("io.BufferedReader", file)  # the caller's to close
        self.beginning = self._left = self._file.read(4)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer)
        part = self._left[: len(into)] or self._file.read1(len(into))
        self._left = self._left[len(part) :]
        into[: len(part)] = part
        return len(part)


def _encoding(beginning: bytes) -> str:
    for mark, encoding in _ENCODINGS:
        if beginning.startswith(mark):
            return encoding
    if beginning[1:4:2] == b"\0\0":
        return "utf-16-le"
    return "utf-16-be" if beginning[0:4:2] == b"\0\0" else "utf-8"
