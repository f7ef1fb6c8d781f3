"""`python -m accelrt verbose`: the table of a log that was written earlier."""

import argparse
import contextlib
import errno
import json
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from accelrt import _verbose_table
from accelrt._verbose_records import read_log
from accelrt.cli import streams
from accelrt.cli.outputs import file_argument, refusal

_STANDARD_INPUT = Path("-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "file",
        type=file_argument,
        metavar="FILE",
        help="the output of a program with verbose lines in it, also packed by gzip, or - for the "
        "standard input; other lines are skipped",
    )
    parser.add_argument(
        "--sort-by",
        choices=_verbose_table.ORDERS,
        default=_verbose_table.ORDERS[0],
        help=f"the table's order (default {_verbose_table.ORDERS[0]})",
    )
    parser.add_argument(
        "--json", type=file_argument, metavar="OUT", help="keep the calls as records"
    )


def run(given: argparse.Namespace) -> int:
    """Print the table and keep the records; return the exit status."""
    if (reason := refusal([given.json], [given.file])) is not None:
        return _refuse(reason, 2)
    name = "the standard input" if given.file == _STANDARD_INPUT else str(given.file)
    try:
        with _opened(given.file) as file:
            records = list(read_log(file))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"it is damaged: {error}"
        return _refuse(f"cannot read {name}: {reason}", 2)
    if not records:
        return _refuse(f"{name} has no verbose line that tells of a call", 1)
    sys.stdout.write(_verbose_table.text(records, given.sort_by))
    if given.json is not None:
        shown = json.dumps([record.as_dict() for record in records], indent=1)
        given.json.write_text(f"{shown}\n", encoding="utf-8")
    return 0


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path == _STANDARD_INPUT:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        yield sys.stdin.buffer
    else:
        with path.open("rb") as file:
            yield file


def _refuse(reason: str, status: int) -> int:
    return streams.refuse("verbose", reason, status)
