"""`python -m accelrt view`: a page of a memory snapshot, a table of events or a profile.

The page is one HTML file that needs nothing else, no network either: it can be kept and sent, and
opens in any browser of the last years.
"""

import argparse
import sys
import webbrowser
from pathlib import Path

from accelrt.cli import outputs, streams, terminal
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.policies import POLICIES, Replays, policies_argument
from accelrt.cli.view import page, sources

_MOST_PAGES = 64
_COMPARED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=outputs.file_argument,
        metavar="FILE",
        help="a memory snapshot (.pickle), a table of events (.ops.csv) or a profile (.json)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=outputs.file_argument,
        metavar="OUT",
        help="the page (default: the name of the file, or of both that are compared, and .html, "
        "in the current folder)",
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
    output = given.output or Path(_default_name(given))
    refusal = _refusal_of_options(given, output)
    if refusal is not None:
        return _refuse(refusal)
    try:
        views_of = _read(given)
    except TraceError as error:
        return _refuse(str(error))
    views = [view for of_file in views_of for view in of_file]
    refusal = _refusal(given, views_of, len(views))
    if refusal is not None:
        return _refuse(refusal)
    title = ", ".join(file.name for file in given.files)
    size_bytes = page.write(output, title, views, compares=given.compare)
    shown = "; ".join(sources.summary(view) for view in views)
    sys.stdout.write(f"{output}: {shown} ({size_bytes / 2**20:.1f} MiB)\n")
    if given.open and not webbrowser.open(output.absolute().as_uri()):
        return _refuse(f"no browser could be started; open {output} yourself")
    return 0


def _default_name(given: argparse.Namespace) -> str:
    """Return a name that says what is on the page, so that one page does not replace another."""
    first, *others = (file.name for file in given.files)
    if given.compare:
        return f"{'-'.join((first, *others[:1]))}.html"
    return f"{first}{f'+{len(others)}' if others else ''}.html"


def _refusal_of_options(given: argparse.Namespace, output: Path) -> str | None:
    """Return what is wrong before a file is read."""
    if given.compare and len(given.files) != _COMPARED:
        return f"--compare takes two files, not {len(given.files)}"
    return outputs.refusal([output], given.files)


def _refusal(given: argparse.Namespace, views_of: list[list[page.View]], count: int) -> str | None:
    """Return why there is no such page of what the files have."""
    if count > _MOST_PAGES:
        return f"{count} devices and files are more than a page shows"
    kinds = [of_file[0].kind for of_file in views_of]
    if given.policy and set(kinds) == {"profile"}:
        return f"--policy replays requests, and {given.files[0]} is a profile"
    return _refusal_of_comparison(given, views_of, kinds) if given.compare else None


def _refusal_of_comparison(
    given: argparse.Namespace, views_of: list[list[page.View]], kinds: list[str]
) -> str | None:
    for file, kind, of_file in zip(given.files, kinds, views_of, strict=True):
        if kind == "profile":
            return f"--compare takes snapshots or tables, and {file} is a profile"
        if len(of_file) > 1:
            return f"--compare takes snapshots of one device, and {file} has {len(of_file)}"
    if kinds[0] != kinds[1]:
        named = (f"{file} is a {kind}" for file, kind in zip(given.files, kinds, strict=True))
        return f"--compare takes two snapshots or two tables: {', '.join(named)}"
    return None


def _read(given: argparse.Namespace) -> list[list[page.View]]:
    """Return the views of each file, which take seconds when they are large."""
    views: list[list[page.View]] = []
    try:
        for done, file in enumerate(given.files):
            terminal.wipe()  # the name before may be longer
            terminal.bar(f"view {done}/{len(given.files)}", done / len(given.files), f" {file}")
            views.append(sources.read(file, given.policy and Replays(given.policy)))
    finally:
        terminal.wipe()
    return views


def _refuse(reason: str) -> int:
    return streams.refuse("view", reason)
