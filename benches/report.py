"""Joins what the Rust benches and Python measured: one table, printed and written down.

Usage: python benches/report.py FOLDER README.md, with rust.jsonl, python.json, before.json and
after.json in the folder, where figures.json is written; and torch.json where torch is installed.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import judged
from accelrt.cli.bench import machine
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.bench.table import Record

_PAIRS = """A goal of "peer + ns" is judged by the median of differences, which stands beside it:
blocks of ours and of the peer's are taken in pairs, nine in each of the eleven repetitions, and
who is first alternates. A repetition is the medians of its blocks and of their differences."""

_FLATTERS = "The model flatters PyTorch"
MODELLED = ("A1.512B", "A1.64KiB", "A1.2MiB", "A1.64MiB", "A2", "A3")

_BEGIN, _END = "<!-- the table -->\n", "<!-- the end of the table -->\n"


def main(folder: Path, readme: Path) -> None:
    """Print the table, put it between its marks in the README, and keep its records."""
    of_rust = map(json.loads, (folder / "rust.jsonl").read_text().splitlines())
    of_python, torch = _read(folder / "python.json"), folder / "torch.json"
    of_torch = _read(torch) if torch.exists() else []
    records = judged.records(_measurements(itertools.chain(of_rust, of_python, of_torch)))
    anchors = _anchors(_read(folder / "before.json"), _read(folder / "after.json"))
    parts = (machine.facts(compiler=_compiler()), anchors, _PAIRS, flattery(records))
    shown = "\n\n".join((*(part.rstrip("\n") for part in parts), judged.text(records)))
    sys.stdout.write(shown)
    before, _, rest = readme.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    readme.write_text(f"{before}{_BEGIN}\n{shown}\n{_END}{after}")
    joined = json.dumps(records, indent=1, ensure_ascii=False)
    (folder / "figures.json").write_text(f"{joined}\n")


def _read(file: Path) -> Any:  # noqa: ANN401  # what JSON holds
    return json.loads(file.read_text())


def _anchors(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return how fast the machine was before and after the figures, as a table."""
    heads = "| anchor, ns | when the goals were set | before the figures | after them |"
    rows = [
        f"| {name} | {'not taken' if then is None else then} | {ns_before} | {ns_after} |"
        for (name, then, ns_before), (_, _, ns_after) in zip(
            before["anchors"], after["anchors"], strict=True
        )
    ]
    waited = f"Before the figures the machine was {before['waited']}; after them {after['waited']}."
    return "\n".join((waited, "", heads, "|---|---:|---:|---:|", *rows, ""))


def flattery(records: Iterable[Record]) -> str:
    """Say by how much the model of PyTorch's allocator is faster than what it is a model of.

    >>> print(flattery([]))
    The model flatters PyTorch; by how much is not measured without its own allocator.
    """
    took = {str(it["name"]): float(it["peer_ns"]) for it in records if it["peer_ns"] is not None}
    factors = {
        row: took[f"{row}.c10"] / took[f"{row}.model"]
        for row in MODELLED
        if took.keys() >= {f"{row}.c10", f"{row}.model"}
    }
    if not factors:
        return f"{_FLATTERS}; by how much is not measured without its own allocator."
    said = ", ".join(f"{factor:.1f} times as long at {row}" for row, factor in factors.items())
    return f"{_FLATTERS}: its own allocator takes {said}."


def _compiler() -> str:
    command = ("rustc", "--version")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _measurements(lines: Iterable[Any]) -> Iterator[Measurement]:
    for line in lines:
        names = (field.name for field in dataclasses.fields(Measurement))
        yield Measurement(**{name: line.get(name) for name in names})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
