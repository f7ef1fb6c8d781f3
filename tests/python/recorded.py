"""Recordings that are not part of the repository. Tests that need them are skipped if none is set.

`ACCELRT_TEST_TRACES` names a folder with `ops/*.ops.csv` and `pytorch/*.pickle`.
`ACCELRT_TEST_SNAPSHOTS` names a folder of pickles; the default is `pytorch` in the other folder.
tests/data/README.md lists the recordings and their sources.
"""

import os
from pathlib import Path

import pytest

_TRACES, _SNAPSHOTS = "ACCELRT_TEST_TRACES", "ACCELRT_TEST_SNAPSHOTS"


def traces() -> list[Path]:
    """Return all recordings of the folder; skip the test if no folder is named."""
    folder = _folder(_TRACES)
    if folder is None:
        pytest.skip(f"{_TRACES} is not set: see tests/data/README.md")
    found = [*sorted(folder.glob("ops/*.ops.csv")), *sorted(folder.glob("pytorch/*.pickle"))]
    assert found, f"{_TRACES}={folder}: no ops/*.ops.csv and no pytorch/*.pickle"
    return found


def snapshot(name: str) -> Path:
    """Return a snapshot of PyTorch; skip the test if no folder is named or the file is missing."""
    folder, traces = _folder(_SNAPSHOTS), _folder(_TRACES)
    if folder is None and traces is not None:
        folder = traces / "pytorch"
    if folder is None:
        pytest.skip(f"neither {_SNAPSHOTS} nor {_TRACES} is set: see tests/data/README.md")
    if not (folder / name).is_file():
        pytest.skip(f"{folder} does not contain {name}")
    return folder / name


def _folder(variable: str) -> Path | None:
    text = os.environ.get(variable)
    if not text:
        return None
    assert Path(text).is_dir(), f"{variable}={text} is not a folder"
    return Path(text)
