"""Chrome traces of several processes as one: each keeps its tracks, on a common clock."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

from accelrt._whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    _Trace = tuple[str, float, bytes]

# What binds an arrow's ends, which belong together within a process alone.
_BONDS = ("id", "bind_id")


def write(traces: Iterable[_Trace], path: str | bytes | os.PathLike[str]) -> None:
    """Write one trace of several: of each a name, its begin in seconds and what was exported.

    A name that ends in `.gz` has it packed by gzip.
    """
    traces = list(traces)
    first_s = min((begin_s for _, begin_s, _ in traces), default=0.0)
    records, dropped = [], 0
    pids: dict[tuple[int, Any], int] = {}
    for number, (name, begin_s, exported) in enumerate(traces):
        content = json.loads(exported)
        dropped += content["otherData"]["dropped_records"]
        for record in content["traceEvents"]:
            record["pid"] = pids.setdefault((number, record["pid"]), len(pids) + 1)
            if "ts" in record:
                record["ts"] = round(record["ts"] + (begin_s - first_s) * 1e6, 3)
            for bond in _BONDS:
                if bond in record:
                    record[bond] = f"{number}.{record[bond]}"
            if record["name"] == "process_name":
                record["args"]["name"] = f"{name}: {record['args']['name']}"
        records += content["traceEvents"]
    whole = {"otherData": {"dropped_records": dropped}, "traceEvents": records}
    packed = json.dumps(whole).encode()
    with whole_file(path) as file:
        is_packed = os.fsdecode(path).endswith(".gz")
        file.write(gzip.compress(packed) if is_packed else packed)
