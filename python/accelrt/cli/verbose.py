"""`python -m accelrt verbose`: the table of a log that was written earlier."""

import argparse
import json
import sys

from accelrt import _verbose_table
from accelrt._verbose_records import parse
from accelrt.cli.outputs import file_argument, refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "file",
        type=file_argument,
        metavar="FILE",
        help="what a program printed, with verbose lines in it; other lines are skipped",
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
    try:
        # Lines end where printers end them, not where the text has a form feed.
        with given.file.open(encoding="utf-8", errors="replace", newline="\n") as file:
            records = list(parse(file))
    except OSError as error:
        return _refuse(f"cannot read {given.file}: {error.strerror}", 2)
    if not records:
        return _refuse(f"{given.file} has no verbose line that tells of a call", 1)
    sys.stdout.write(_verbose_table.text(records, given.sort_by))
    if given.json is not None:
        shown = json.dumps([record.as_dict() for record in records], indent=1)
        given.json.write_text(f"{shown}\n", encoding="utf-8")
    return 0


def _refuse(reason: str, status: int) -> int:
    sys.stderr.write(f"accelrt verbose: {reason}\n")
    return status
