"""Joins what the Rust benches and Python measured: one table, printed and written down.

Usage: python benches/report.py RUST.jsonl PYTHON.json README.md JOINED.json
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from accelrt.cli.bench import machine, table
from accelrt.cli.bench.goals import GOALS, Measurement

_BEGIN, _END = "<!-- the table -->\n", "<!-- the end of the table -->\n"


def main(rust: Path, python: Path, readme: Path, joined: Path) -> None:
    """Print the table, put it between its marks in the README, and keep its records."""
    of_rust = table.records(_measurements(rust))
    of_python: list[table.Record] = json.loads(python.read_text())
    records = [
        rust_record if goal.is_for_rust else python_record
        for goal, rust_record, python_record in zip(GOALS, of_rust, of_python, strict=True)
    ]
    shown = f"{machine.facts(compiler=_compiler())}\n\n{table.text(records)}"
    sys.stdout.write(shown)
    before, _, rest = readme.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    readme.write_text(f"{before}{_BEGIN}\n{shown}\n{_END}{after}")
    joined.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")


def _compiler() -> str:
    command = ("rustc", "--version")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _measurements(rust: Path) -> Iterator[Measurement]:
    for line in rust.read_text().splitlines():
        fields = json.loads(line)
        names = ("name", "ours", "ours_min", "peer", "peer_ns", "reason")
        yield Measurement(**{name: fields.get(name) for name in names})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
