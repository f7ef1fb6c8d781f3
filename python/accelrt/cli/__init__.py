"""The command line: `python -m accelrt COMMAND`, of which `--help` lists the commands."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from accelrt import _core
from accelrt.cli import bench, demo, explore, info, replay, sanitize, streams, verbose, view
from accelrt.cli.bench.quiet import Patience
from accelrt.cli.bench.rows import ROWS
from accelrt.cli.outputs import file_argument, refusal
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.sizes import count_argument, seconds_argument, size_argument

# Commands that read files or start programs, and need no device.
_OF_FILES: dict[str, Callable[[argparse.Namespace], int]] = {
    "explore": explore.run,
    "replay": replay.run,
    "verbose": verbose.run,
    "view": view.run,
}
_XPU_HINT = (
    "; accelrt's extra `xpu`, by pip install '.[xpu]' in a checkout, brings a device on every"
    " x86-64 processor"
)
# Smaller chunks keep more of the data in flight in a core's cache.
_CHUNK_BYTES = 256 << 10
# One chunk is read or checked here, one computed, one ready for the next free core.
_CHUNKS_IN_FLIGHT = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    restore = streams.escape()
    given = _parser().parse_args(arguments)
    try:
        if sys.stdout is None:
            return _refuse(given, "the standard output is closed")
        if given.command == "sanitize":
            restore()  # the script gets the streams as the interpreter has made them
            # A script's settings are read at its first call.
            status = sanitize.run(given)
            streams.settle()
        else:
            status = _run(given)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader has closed the pipe
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk, or a missing folder
        _drop_output()
        where = "" if error.filename is None else f" {error.filename}"
        return _refuse(given, f"cannot write{where}: {error.strerror}")
    except (MemoryError, RuntimeError, TraceError) as error:
        return _refuse(given, str(error) or "out of memory")
    return status


def _run(given: argparse.Namespace) -> int:
    if given.command in _OF_FILES:
        # They are about programs, whose files these commands read.
        for variable in ("ACCELRT_PROFILE", "ACCELRT_MEMORY_HISTORY", "ACCELRT_CPU_SCHEDULE"):
            os.environ.pop(variable, None)
    try:
        _core.settings()  # of the environment, read at the first query
        if given.command not in {"info", *_OF_FILES}:
            _core.current_accelerator()
    except (RuntimeError, ValueError) as error:
        is_missing = str(error).startswith("No xpu device is available")
        return _refuse(given, f"{error}{_XPU_HINT if is_missing else ''}")
    if given.command == "info":
        return info.run()
    if given.command in _OF_FILES:
        return _OF_FILES[given.command](given)
    if given.command == "bench":
        if (reason := refusal([given.json], [])) is not None:
            return _refuse(given, reason)
        return bench.run(given.json, given.traces, given.rows, given.patience)
    return demo.run(given.file, lane_count=given.in_flight, chunk_bytes=given.chunk)


def _refuse(given: argparse.Namespace, reason: str) -> int:
    return streams.refuse(given.command, reason)


def _drop_output() -> None:
    """Discard the buffered output, which the interpreter would write again at its end."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # a script has replaced or ended it
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m accelrt", description=__doc__)
    parser.add_argument("--version", action="version", version=f"accelrt {_core.__VERSION__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="devices found, why others were not, build, settings")
    job = commands.add_parser("demo", help="stream a file through the accelerator and check it")
    job.add_argument(
        "file",
        nargs="?",
        type=file_argument,
        help="the file; by default the interpreter's shared library or executable",
    )
    job.add_argument(
        "--in-flight",
        type=count_argument,
        default=_CHUNKS_IN_FLIGHT,
        metavar="N",
        help="chunks that are on their way at a time, by three streams each (default %(default)s)",
    )
    job.add_argument(
        "--chunk",
        type=size_argument,
        default=_CHUNK_BYTES,
        metavar="SIZE",
        help="size of a chunk, from 4K to 1G (default 256K)",
    )
    replay.add_arguments(
        commands.add_parser(
            "replay", help="replay recorded requests against the allocator, without a device"
        )
    )
    view.add_arguments(
        commands.add_parser(
            "view", help="a page of a memory snapshot, a table of events or a profile"
        )
    )
    sanitize.add_arguments(
        commands.add_parser("sanitize", help="run a script and report what nothing orders")
    )
    explore.add_arguments(
        commands.add_parser("explore", help="look for a schedule under which a program fails")
    )
    verbose.add_arguments(
        commands.add_parser(
            "verbose", help="the calls in what oneMKL or oneDNN printed, as a table"
        )
    )
    figures = commands.add_parser("bench", help="measure what the hot paths cost, beside peers")
    figures.add_argument(
        "--json",
        type=file_argument,
        metavar="FILE",
        help="keep the table as records, one for each row",
    )
    figures.add_argument(
        "--rows",
        type=_rows,
        default="",
        metavar="NAME",
        help="only those whose names begin so, as R or A4",
    )
    figures.add_argument(
        "--patience",
        type=seconds_argument,
        default=Patience.SECONDS,
        metavar="SECONDS",
        help="how long each thing waits for a quiet machine, at most (default %(default)g)",
    )
    figures.add_argument(
        "--traces",
        type=file_argument,
        metavar="FOLDER",
        help="recorded requests, as ops/*.ops.csv and pytorch/*.pickle; without them, rows that"
        " replay are not measured",
    )
    return parser


def _rows(text: str) -> str:
    if not any(row.name.startswith(text) for row in ROWS):
        message = f"no row's name begins with {text!r}"
        raise argparse.ArgumentTypeError(message)
    return text
