"""`python -m accelrt replay`: replays recorded requests against an allocator.

Each trace is replayed under each policy against the real allocator on an accounting backend, which
has numbers instead of memory: no device is needed, and none is touched, unless `--real` asks for
it. A use of a block on another stream counts as done at the event that frees the block.

`--minimum` searches the smallest capacity that completes a trace; `--recommend` tries settings.
"""

import argparse
import sys
from collections.abc import Iterator

from accelrt import _core
from accelrt.cli import outputs, streams
from accelrt.cli.replay import minimum, plot, progress, recommend, table, traces
from accelrt.cli.replay.checks import Tally
from accelrt.cli.replay.errors import TraceError
from accelrt.cli.replay.policies import (
    CAPACITY_BYTES,
    GRANULARITY_BYTES,
    POLICIES,
    Replays,
    chosen,
    policies_argument,
    policy_of,
    settings_of,
)
from accelrt.cli.replay.table import Record
from accelrt.cli.sizes import counted, size_argument
from accelrt.cli.terminal import Style


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "traces",
        nargs="+",
        type=outputs.file_argument,
        metavar="TRACE",
        help=".ops.csv, or a pickle of torch.cuda.memory._dump_snapshot",
    )
    parser.add_argument(
        "--policy",
        type=policies_argument,
        metavar="NAME,…",
        help=f"whose decisions: {', '.join(POLICIES)} (default: all)",
    )
    parser.add_argument(
        "--config",
        metavar="SETTINGS",
        help="settings as PyTorch's allocator takes them, as max_split_size_mb:128; "
        "of the policies those that agree with them",
    )
    parser.add_argument(
        "--capacity",
        type=size_argument,
        metavar="SIZE",
        help=f"memory of the device (default {CAPACITY_BYTES})",
    )
    parser.add_argument(
        "--granularity",
        type=size_argument,
        metavar="SIZE",
        help=f"size of a page, a power of two (default {GRANULARITY_BYTES})",
    )
    parser.add_argument(
        "--real",
        action="store_true",
        help="on the current device and with its memory, in place of numbers",
    )
    parser.add_argument(
        "--json", type=outputs.file_argument, metavar="OUT", help="keep the table as records"
    )
    parser.add_argument(
        "--plot",
        type=outputs.file_argument,
        metavar="OUT",
        help="write a page of live and reserved bytes, as view",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare each address and the final layout with what a snapshot recorded, "
        "under the policy torch and the snapshot's settings",
    )
    parser.add_argument(
        "--minimum",
        action="store_true",
        help="search the smallest capacity that completes each trace, up to --capacity",
    )
    parser.add_argument(
        "--recommend",
        action="store_true",
        help="try settings, and say which need the least memory and which fit into --capacity",
    )


def run(given: argparse.Namespace) -> int:
    """Replay, print the table and keep its records; return the exit status."""
    refusal = outputs.refusal([given.json, given.plot], given.traces)
    if refusal is not None:
        return _refuse(refusal)
    return _run_lab(given) if given.minimum or given.recommend else _run_replays(given)


def _run_replays(given: argparse.Namespace) -> int:
    """Replay with the settings that are given, or compare; return the exit status."""
    try:
        policies = ["torch"] if given.check else chosen(given.config or "", given.policy)
        if given.check and given.policy not in (None, ["torch"]):
            return _refuse("--check compares with what PyTorch did: --policy can only be torch")
        if given.real and (given.check or given.capacity or given.granularity):
            return _refuse(
                "--real has the device's own memory: no --capacity, --granularity, --check"
            )
        if given.plot is not None and (given.real or given.check):
            return _refuse("--plot cannot be used with --real or --check")
        read = [trace for path in given.traces for trace in traces.read(path)]
        if given.check:
            _expect_torch(given, read)
        records = list(_replays(given, read, policies))
        tally = _check(given, read) if given.check else None
        page_bytes = None if given.plot is None else _plot(given, policies)
    except (TraceError, ValueError) as error:
        return _refuse(str(error))
    sys.stdout.write(table.text(records, Style.of(sys.stdout)))
    sys.stdout.write(_notes(read))
    if given.json is not None:
        given.json.write_text(table.to_json(records))
        sys.stdout.write(f"{given.json}: the table as {counted(len(records), 'record')}\n")
    if page_bytes is not None:
        sys.stdout.write(f"{given.plot}: the page ({page_bytes / 2**20:.1f} MiB)\n")
    if tally is not None:
        sys.stdout.write(f"\n{tally.text()}")
    is_right = all(map(_served_something, records)) and (tally is None or tally.agrees)
    return 0 if is_right else 1


def _notes(read: list[traces.Trace]) -> str:
    """Return which parts of the recordings were left out."""
    return "".join(f"{trace.name}: {note}\n" for trace in read for note in trace.notes)


def _plot(given: argparse.Namespace, policies: list[str]) -> int:
    capacity_bytes = given.capacity or CAPACITY_BYTES
    granularity_bytes = given.granularity or GRANULARITY_BYTES
    replays = Replays(policies, given.config or "", capacity_bytes, granularity_bytes)
    return plot.write(given.plot, given.traces, replays)


def _run_lab(given: argparse.Namespace) -> int:
    """Search minima, or try settings; return the exit status."""
    option = "--minimum" if given.minimum else "--recommend"
    others = {
        "--recommend": given.minimum and given.recommend,
        "--config": given.recommend and given.config is not None,
        "--check": given.check,
        "--real": given.real,
        "--plot": given.plot is not None,
    }
    for other, is_given in others.items():
        if is_given:
            return _refuse(f"{option} cannot be used with {other}")
    try:
        policies = chosen(given.config or "", given.policy)
        read = [trace for path in given.traces for trace in traces.read(path)]
        if given.minimum:
            shown, kept, is_right = _minima(given, read, policies)
        else:
            shown, kept, is_right = _recommendations(given, read, policies)
    except (TraceError, ValueError) as error:
        return _refuse(str(error))
    sys.stdout.write(shown)
    sys.stdout.write(_notes(read))
    if given.json is not None:
        given.json.write_text(kept)
        sys.stdout.write(f"{given.json}: the same as records\n")
    return 0 if is_right else 1


def _minima(
    given: argparse.Namespace, read: list[traces.Trace], policies: list[str]
) -> tuple[str, str, bool]:
    config = given.config or ""
    capacity = given.capacity or CAPACITY_BYTES
    page_bytes = given.granularity or GRANULARITY_BYTES
    found = [
        minimum.search(trace, policy, config, capacity_bytes=capacity, page_bytes=page_bytes)
        for trace, policy in progress.shown([(t, p) for t in read for p in policies])
    ]
    return minimum.text(found), minimum.to_json(found), minimum.is_complete(found)


def _recommendations(
    given: argparse.Namespace, read: list[traces.Trace], policies: list[str]
) -> tuple[str, str, bool]:
    page_bytes = given.granularity or GRANULARITY_BYTES
    found = [
        recommend.recommend(trace, policies, given.capacity, CAPACITY_BYTES, page_bytes)
        for trace in read
    ]
    is_right = all(it.fits for it in found)
    return "\n".join(it.text for it in found), recommend.to_json(found), is_right


def _replays(
    given: argparse.Namespace, read: list[traces.Trace], policies: list[str]
) -> Iterator[Record]:
    for trace, policy in progress.shown([(t, p) for t in read for p in policies]):
        config = _config(given, trace)
        settings = settings_of(policy, config)
        named = trace.name, policy, config
        capacity, granularity = given.capacity or CAPACITY_BYTES, given.granularity
        try:
            if given.real:
                figures = trace.recording.replay_on_device(settings)
            else:
                figures = trace.recording.replay(
                    settings, capacity, granularity or GRANULARITY_BYTES
                )
        except RuntimeError as error:  # of this trace: the others continue
            yield table.failure(*named, granularity or GRANULARITY_BYTES, str(error))
        else:
            yield table.record(*named, figures)


def _served_something(record: Record) -> bool:
    """Return True when a replay reached its end or at least passed its first requests."""
    if record["error"] is not None:
        return False
    return record["failed_at"] is None or bool(record["peak_live_bytes"])


def _config(given: argparse.Namespace, trace: traces.Trace) -> str:
    """Return the settings of a replay: what a check compares with had the recorded ones."""
    if given.config is not None:
        return str(given.config)
    return _core.Recording.settings(trace.settings or "")[0] if given.check else ""


def _expect_torch(given: argparse.Namespace, read: list[traces.Trace]) -> None:
    """Raise unless each trace is a snapshot that PyTorch's rules can have made."""
    for trace in read:
        if trace.settings is None:
            message = f"--check needs snapshots: {trace.name} records no addresses"
            raise TraceError(message)
        if policy_of(_config(given, trace)) == "native":
            where = f"{trace.name} was recorded under" if given.config is None else "--config has"
            message = f"--check replays under policy:torch, and {where} policy:native"
            raise TraceError(message)


def _check(given: argparse.Namespace, read: list[traces.Trace]) -> Tally:
    tally = Tally()
    for trace in read:
        settings = settings_of("torch", _config(given, trace))
        try:
            tally.add(trace.name, trace.recording.check(settings))
        except RuntimeError as error:  # of this trace: the others continue
            tally.add_failure(trace.name, str(error))
    return tally


def _refuse(reason: str) -> int:
    return streams.refuse("replay", reason)
