"""The records of the verbose lines of oneMKL, oneDNN and this runtime.

A printed line may be cut off or mixed with other text. Malformed lines are skipped.
"""

import gzip
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from accelrt import _core

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
    content = _peekable(file)
    if content.peek(2).startswith(_GZIP):
        content = _peekable(gzip.GzipFile(fileobj=content))
    # Lines end where printers end them, not where the text has a form feed.
    text = io.TextIOWrapper(content, _encoding(content), errors="replace", newline="\n")
    try:
        while part := text.readline(_PART_CHARACTERS):
            yield part
    finally:
        text.detach()  # the file is the caller's to close


def _peekable(file: BinaryIO | gzip.GzipFile) -> io.BufferedReader:
    if isinstance(file, io.BufferedReader):
        return file
    return io.BufferedReader(cast("io.RawIOBase", file))


def _encoding(file: io.BufferedReader) -> str:
    beginning = file.peek(4)[:4]
    for mark, encoding in _ENCODINGS:
        if beginning.startswith(mark):
            return encoding
    if beginning[1:4:2] == b"\0\0":
        return "utf-16-le"
    return "utf-16-be" if beginning[0:4:2] == b"\0\0" else "utf-8"
