"""`python -m accelrt view`: a page of a memory snapshot, a table of events or a profile.

The page is one HTML file that needs nothing else, no network either: it can be kept and sent, and
opens in any browser of the last years.
"""

import argparse
import sys
import webbrowser
from pathlib import Path

from accelrt.cli import outputs, terminal
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.policies import POLICIES, Replays, policies_argument
from accelrt.cli.view import page, sources

_MOST_PAGES = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a memory snapshot (.pickle), a table of events (.ops.csv) or a profile (.json)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="the page (default: the first file's name and .html, in the current folder)",
    )
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument(
        "--compare", action="store_true", help="two snapshots or tables: what grew, by call site"
    )
    parser.add_argument(
        "--policy",
        type=policies_argument,
        metavar="NAME,…",
        help="replay under these policies and show what they reserve: "
        f"{', '.join(POLICIES)} (default: for tables all, for snapshots none)",
    )


def run(given: argparse.Namespace) -> int:
    """Write the page and say where it is; return the exit status."""
    try:
        views = _read(given)
        if len(views) > _MOST_PAGES:
            return _refuse(f"{len(views)} devices and files are more than a page shows")
        if given.compare and [view.kind == "profile" for view in views] != [False, False]:
            return _refuse("--compare takes two snapshots or tables, of one device each")
    except TraceError as error:
        return _refuse(str(error))
    output = given.output or Path(f"{given.files[0].name}.html")
    refusal = outputs.misplaced([output], given.files)
    if refusal is not None:
        return _refuse(refusal)
    title = ", ".join(file.name for file in given.files)
    size_bytes = page.write(output, title, views, compares=given.compare)
    shown = "; ".join(sources.summary(view) for view in views)
    sys.stdout.write(f"{output}: {shown} ({size_bytes / 2**20:.1f} MiB)\n")
    if given.open and not webbrowser.open(output.absolute().as_uri()):
        return _refuse(f"no browser could be started; open {output} yourself")
    return 0


def _read(given: argparse.Namespace) -> list[page.View]:
    """Return the views of the files, which take seconds when they are large."""
    views: list[page.View] = []
    try:
        for done, file in enumerate(given.files):
            terminal.wipe()  # the name before may be longer
            terminal.bar(f"view {done}/{len(given.files)}", done / len(given.files), f" {file}")
            views += sources.read(file, given.policy and Replays(given.policy))
    finally:
        terminal.wipe()
    return views


def _refuse(reason: str) -> int:
    sys.stderr.write(f"accelrt view: {reason}\n")
    return 2
