"""Runs programs on both sides: PyTorch's allocator (the driver) and accelrt's (the peer)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# A batch of programs takes a second.
MOST_BATCH_S = 120
MOST_PROGRAM_S = 10

Programs = Mapping[str, list[str]]
Outcomes = dict[str, list[str]]


def _said(text: str) -> Outcomes:
    """Read the lines of each program that came to its end."""
    outcomes: Outcomes = {}
    name, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("program "):
            name, lines = line.removeprefix("program "), []
        elif line == f"end {name}":
            outcomes[name] = lines
        else:
            lines.append(line)
    return outcomes


def _run(binary: Path, programs: Programs, most_s: int) -> Outcomes:
    text = "".join(
        f"program {name}\n" + "".join(f"{line}\n" for line in lines)
        for name, lines in programs.items()
    )
    try:
        done = subprocess.run(
            [binary],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=most_s,
        )
    except subprocess.TimeoutExpired as ended:
        said = ended.stdout or b""
        return _said(said.decode() if isinstance(said, bytes) else said)
    return _said(done.stdout)


def run(binary: Path, programs: Programs) -> Outcomes:
    """Run each program; one that hangs or ends the process comes to an error."""
    outcomes = _run(binary, programs, MOST_BATCH_S)
    for name in programs:
        if name not in outcomes:
            alone = _run(binary, {name: programs[name]}, MOST_PROGRAM_S)
            outcomes[name] = alone.get(name, ["error it did not end"])
    return outcomes


@dataclass(frozen=True)
class Sides:
    """The two, built."""

    driver: Path
    peer: Path

    def run(self, programs: Programs) -> tuple[Outcomes, Outcomes]:
        """Return both sides' outcomes, the real one's first."""
        with ThreadPoolExecutor(2) as pool:
            real = pool.submit(run, self.driver, programs)
            ours = pool.submit(run, self.peer, programs)
            return real.result(), ours.result()
