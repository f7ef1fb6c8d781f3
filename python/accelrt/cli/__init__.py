"""The command line: `python -m accelrt info | demo [FILE] | bench`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from accelrt import _core
from accelrt.cli import bench, demo, info

_CHUNK_BYTES = 4 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        _core.settings()  # of the environment, read at the first question
        if given.command != "info":
            _core.current_accelerator()
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"accelrt {given.command}: {error}\n")
        return 2
    if given.command == "info":
        return info.run()
    if given.command == "bench":
        return bench.run(given.json)
    return demo.run(given.file, lane_count=given.streams, chunk_bytes=given.chunk)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m accelrt", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="devices found, why others were not, build, settings")
    job = commands.add_parser("demo", help="stream a file through the accelerator and check it")
    job.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="the file; by default the interpreter's shared library or executable",
    )
    job.add_argument(
        "--streams",
        type=_count,
        default=2,
        metavar="N",
        help="lanes of three streams each, between which chunks alternate (default 2)",
    )
    job.add_argument(
        "--chunk",
        type=_count,
        default=_CHUNK_BYTES,
        metavar="BYTES",
        help=f"size of a chunk (default {_CHUNK_BYTES})",
    )
    figures = commands.add_parser("bench", help="measure what the hot paths cost, beside peers")
    figures.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the table as records, one for each goal"
    )
    return parser


def _count(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() else 0
    if count < 1:
        message = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(message)
    return count
