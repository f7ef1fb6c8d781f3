"""Parses the verbose lines of oneMKL, oneDNN and this runtime.

A printed line may be cut off or mixed with other text. Malformed lines are skipped.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# The header that oneDNN prints before its first call lists a line's parts; the default is that of
# versions 2 and 3.
_TEMPLATE = (
    "operation", "engine", "primitive", "implementation", "prop_kind", "memory_descriptors",
    "attributes", "auxiliary", "problem_desc", "exec_time",
)  # fmt: skip
_GRAPH_TEMPLATE = (
    "operation", "engine", "partition_id", "partition_kind", "op_names", "data_formats",
    "logical_tensors", "fpmath_mode", "implementation", "backend", "exec_time",
)  # fmt: skip
_OWN_PARTS = ("kind", "device", "stream", "what", "bytes", "ms")
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_WORD = re.compile(r"(?:onednn|dnnl|mkldnn)(_graph)?_verbose,|MKL_VERBOSE |accelrt_verbose,")
_MKL = re.compile(
    r"(?P<call>(?P<name>[^\s(]+)\(.*\)) "
    r"(?P<time>\d+(?:\.\d+)?)(?P<unit>ns|us|ms|s)(?: (?P<rest>.*))?"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


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
    templates = {"primitive": _TEMPLATE, "graph": _GRAPH_TEMPLATE}
    for line in lines:
        word = _WORD.search(line)
        if word is None:
            continue
        printed, told = line[word.start() :].rstrip("\r\n"), line[word.end() :].rstrip("\r\n")
        if word.group().startswith("MKL"):
            record = _mkl(printed, told)
        elif word.group().startswith("accelrt"):
            record = _own(printed, told)
        else:
            parts = _Parts(told, is_graph=word.group(1) is not None)
            if parts.template:
                templates[parts.component] = parts.template
            record = parts.record(printed, templates[parts.component])
        if record is not None:
            yield record


def _mkl(line: str, told: str) -> Record | None:
    found = _MKL.fullmatch(told)
    if found is None:
        return None
    pairs = (part.partition(":") for part in (found["rest"] or "").split())
    fields = {"call": found["call"]} | {key: value for key, _, value in pairs if value}
    ms = _milliseconds(found["time"], _UNITS_MS[found["unit"]])
    return None if ms is None else Record("oneMKL", found["name"], ms, fields, line)


def _own(line: str, told: str) -> Record | None:
    parts = told.split(",")
    ms = _milliseconds(parts[-1])
    if len(parts) != len(_OWN_PARTS) or ms is None or not parts[_OWN_PARTS.index("what")]:
        return None
    fields = dict(zip(_OWN_PARTS, parts, strict=True))
    return Record("accelrt", fields["what"], ms, fields, line)


def _milliseconds(text: str, unit_ms: float = 1.0) -> float | None:
    """Return the milliseconds of a text, or None."""
    if _NUMBER.fullmatch(text) is None:
        return None
    ms = float(text) * unit_ms
    return ms if math.isfinite(ms) else None


class _Parts:
    """A oneDNN line's parts after the prefix. From 3.3 on, `v1` and a component come first."""

    def __init__(self, told: str, *, is_graph: bool) -> None:
        parts = told.split(",")
        if re.fullmatch(r"v\d+", parts[0]):
            del parts[0]
        self.timestamp = parts.pop(0) if parts and _NUMBER.fullmatch(parts[0]) else None
        self.component = "graph" if is_graph else "primitive"
        if parts and parts[0] in ("primitive", "graph"):
            self.component = parts.pop(0)
        self.parts = parts

    @property
    def template(self) -> tuple[str, ...]:
        """The names of the parts if this line is a header, else empty."""
        head = ",".join(self.parts[:2])
        found = re.match(r"info,(?:prim_|graph_)?template:(\w+)", head)
        if found is None:
            return ()
        names = (found[1], *self.parts[2:])
        return tuple(name for name in names if name != "timestamp")

    def record(self, line: str, template: tuple[str, ...]) -> Record | None:
        """Return the record of this line's call, or None if the line is no call."""
        operation, *_ = self.parts or [""]
        is_call = operation == "exec" or operation.startswith("create:") or operation == "create"
        spare = len(self.parts) - len(template)
        ms = _milliseconds(self.parts[-1]) if self.parts else None
        if not is_call or spare < 0 or ms is None or len(template) < len(("operation", "time")):
            return None
        # The last part before the time is free text, which may contain commas.
        last = len(template) - 2
        values = (*self.parts[:last], ",".join(self.parts[last:-1]), self.parts[-1])
        fields = dict(zip(template, values, strict=True))
        if self.timestamp is not None:
            fields["timestamp"] = self.timestamp
        name = fields.get("primitive") or fields.get("partition_kind") or "unknown"
        name = name if operation == "exec" else f"{name} {operation}"
        return Record("oneDNN", name, ms, fields, line)
