"""The records of the verbose lines of oneMKL, oneDNN and this runtime.

A printed line may be cut off or mixed with other text. Malformed lines are skipped.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accelrt import _core


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
        call = parser.read(line)
        if call is not None:
            yield Record(*call)
