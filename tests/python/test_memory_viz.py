"""Goal: torch's viewer of snapshots shows a dump of ours as it shows an equal one made by hand.

Method: `_memory_viz.py` of a wheel of torch is one file, which runs alone; `make oracle` brings it.
It makes its tables of a dump, and of a snapshot with torch's keys alone that is written here.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import output_of

CACHE = Path(
    os.environ.get("ORACLE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "accelrt/oracle")
)
VIEWERS = sorted(CACHE.glob("*/torch/cuda/_memory_viz.py"))
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not VIEWERS, reason="make oracle brings torch's viewer")

PROGRAM = """
    import json, sys
    import accelrt

    def weights():
        return accelrt.empty(3 << 20)

    accelrt.cpu.record_memory_history(skip_actions=["snapshot"])
    with accelrt.memory_tag("weights"):
        kept = weights()
    gone = accelrt.empty(4 << 20)
    address = gone.data_ptr()
    del gone
    accelrt.cpu.dump_snapshot(PATH)
    stream = accelrt.cpu.memory_snapshot()[0]["stream"]
    print(json.dumps([kept.data_ptr(), address, stream]))
"""


def run_viewer(viewer: Path, *arguments: str) -> str:
    ended = subprocess.run(  # noqa: S603  torch's program
        [sys.executable, str(viewer), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def flames(viewer: Path, path: Path) -> list[str]:
    """Return the lines of which the viewer makes pictures: what is in use, by stack."""
    code = f"""
        import importlib.util, pickle
        spec = importlib.util.spec_from_file_location("viewer", {str(viewer)!r})
        viewer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viewer)
        with open({str(path)!r}, "rb") as file:
            snapshot = pickle.load(file)
        for table in viewer.segments, viewer.memory:
            print(table(snapshot, format_flamegraph=str))
    """
    return [line for line in output_of(code).splitlines() if "inactive" not in line]


def by_hand(kept: int, gone: int, stream: int) -> dict[str, Any]:
    """Return the snapshot of the program, with the keys that torch writes and no others."""
    frames = [
        {"filename": "<string>", "line": 6, "name": "weights"},
        {"filename": "<string>", "line": 10, "name": "<module>"},
    ]
    block = {"address": kept, "size": 3 * MIB, "requested_size": 3 * MIB}
    free = {"address": gone, "size": 17 * MIB, "requested_size": 0, "state": "inactive"}
    segment = {
        "device": 0,
        "address": kept,
        "total_size": 20 * MIB,
        "allocated_size": 3 * MIB,
        "active_size": 3 * MIB,
        "requested_size": 3 * MIB,
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {**block, "state": "active_allocated", "frames": frames},
            {**free, "frames": []},
        ],
    }
    trace = [
        {"action": action, "addr": address, "size": size, "stream": stream, "frames": []}
        for action, address, size in (
            ("segment_alloc", kept, 20 * MIB),
            ("alloc", kept, 3 * MIB),
            ("alloc", gone, 4 * MIB),
            ("free_requested", gone, 4 * MIB),
            ("free_completed", gone, 4 * MIB),
        )
    ]
    return {"segments": [segment], "device_traces": [trace]}


@pytest.mark.parametrize("viewer", VIEWERS, ids=lambda path: path.parents[2].name)
def test_torchs_viewer_makes_the_same_tables_of_a_dump_as_of_one_made_by_hand(
    viewer: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours.pickle", tmp_path / "theirs.pickle"
    program = PROGRAM.replace("PATH", repr(str(ours)))
    settings = {"ACCELRT_CPU_MEMORY": "64M", "ACCELRT_ALLOC_CONF": "policy:torch"}
    said = output_of(program, **settings)
    kept, gone, stream = (int(number) for number in said.strip("[]\n").split(","))
    theirs.write_bytes(pickle.dumps(by_hand(kept, gone, stream)))
    for table in ("stats", "trace"):
        shown = run_viewer(viewer, table, str(ours))
        assert shown == run_viewer(viewer, table, str(theirs))
        assert "20.0MiB" in shown
    lines = flames(viewer, ours)
    assert lines == flames(viewer, theirs)
    assert any("<string>:10:<module>;<string>:6:weights" in line for line in lines)


@pytest.mark.parametrize("viewer", VIEWERS, ids=lambda path: path.parents[2].name)
@pytest.mark.parametrize("plot", ["trace_plot", "segment_plot"])
def test_torchs_viewer_makes_pages_of_a_dump(viewer: Path, plot: str, tmp_path: Path) -> None:
    ours, page = tmp_path / "ours.pickle", tmp_path / "page.html"
    output_of(PROGRAM.replace("PATH", repr(str(ours))), ACCELRT_CPU_MEMORY="64M")
    run_viewer(viewer, plot, str(ours), "-o", str(page))
    assert "MemoryViz" in page.read_text()
