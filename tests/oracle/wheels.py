"""The parts of a torch wheel that tests need: libraries, headers, a viewer of snapshots; 5 MB."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Where differences were looked at first; the newest release is compared with as well.
PINNED = "2.13.0"
LIBRARIES = ("torch/lib/libc10.so", "torch/lib/libc10_cuda.so")
# Tests of Python run it alone; a later wheel may not have it.
VIEWER = "torch/cuda/_memory_viz.py"
HEADERS = ("torch/include/c10/", "torch/include/torch/headeronly/")
# A download of half a gigabyte.
MOST_DOWNLOAD_S = 900
MOST_LOOK_UP_S = 60


class MissingError(Exception):
    """A wheel is not to be had: the reason in a line."""


def _pip(*arguments: str, most_s: int) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most_s)
    except subprocess.TimeoutExpired:
        message = f"pip {arguments[0]} took more than {most_s} s"
        raise MissingError(message) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise MissingError(lines[-1])
    return done.stdout


def newest() -> str:
    """Ask pip for the newest release."""
    said = _pip("index", "versions", "torch", most_s=MOST_LOOK_UP_S)
    found = re.search(r"Available versions: ([0-9.]+)", said)
    if not found:
        message = "pip names no version of torch"
        raise MissingError(message)
    return found[1]


def is_whole(folder: Path) -> bool:
    """Tell whether a folder has the parts of a wheel."""
    return (folder / "whole").exists()


def fetch(version: str, folder: Path) -> None:
    """Bring the parts of a release into a folder, unless they are there."""
    if is_whole(folder) and (folder / VIEWER).exists():
        return
    try:
        _download(version, folder)
    except MissingError:
        if not is_whole(folder):  # a folder of before may lack the viewer alone
            raise


def _download(version: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as download:
        options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--progress-bar=off"]
        _pip(
            "download", *options, f"--dest={download}", f"torch=={version}", most_s=MOST_DOWNLOAD_S
        )
        (packed,) = Path(download).glob("*.whl")
        with zipfile.ZipFile(packed) as wheel:
            names = wheel.namelist()
            if not set(LIBRARIES) <= set(names):
                message = f"the wheel of torch {version} has no libc10_cuda.so"
                raise MissingError(message)
            wanted = [n for n in names if n in (*LIBRARIES, VIEWER) or n.startswith(HEADERS)]
            shutil.rmtree(folder / "torch", ignore_errors=True)
            wheel.extractall(folder, wanted)
    (folder / "whole").touch()


def known(root: Path) -> list[str]:
    """List the versions that were brought before, oldest first."""
    found = [path.parent.name for path in root.glob("*/whole")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])
