"""Goal: the conformance kit, `pytest --accelrt-kind`, fails for each defect that a kind can have.

Method: each case breaks one call of a device and runs the tests of the kit that are about it. A
last test compares the lines that failed with all assertions of the kit: a new one needs a case.
"""

import ast
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accelrt
from accelrt import _promises, _pytest, profiler
from kinds import KIND, module

pytestmark = [pytest.mark.host_cores, pytest.mark.several_devices]

LAST = 2
Break = Callable[[pytest.MonkeyPatch], None]


class Failures:
    """A plug-in of the inner pytest: the number of tests, and the lines of the kit that failed."""

    def __init__(self) -> None:
        self.num_tests = 0
        self.lines = set[int]()

    def pytest_runtest_makereport(self, item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
        self.num_tests += call.when == "call"
        if call.excinfo is not None:
            frames = [it for it in call.excinfo.traceback if it.path == _pytest.PROMISES]
            assert frames, item
            self.lines |= {it.lineno + 1 for it in frames}


def run_kit(name: str, breaks: Break | None) -> Failures:
    """Run the kit's tests whose names contain `name`, in this process."""
    found = Failures()
    options = ["-q", "-c", "/dev/null", "-p", "no:faulthandler", "-p", "no:cacheprovider"]
    # Else all folders beside its parents are looked through.
    options += ["--confcutdir", str(_pytest.PROMISES.parent)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELRT_ACCELERATOR", KIND)
        if breaks is not None:
            breaks(patch)
        pytest.main([*options, "--accelrt-kind", KIND, "-k", name], plugins=[found])
    return found


def call(owner: object, name: str, new: Callable[..., object]) -> Break:
    """Return a break of one call: `new` receives the real function first, then the arguments."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        real = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kwargs: new(real, *args, **kwargs))

    return breaks


def value(owner: object, name: str, result: object) -> Break:
    """Return a break of a call that returns the same whatever it is asked."""
    return call(owner, name, lambda *_, **__: result)


def values(owner: object, name: str, *results: object) -> Break:
    """Return a break of a call that returns these in turn, again and again."""
    remaining = itertools.cycle(results)
    return call(owner, name, lambda *_, **__: next(remaining))


def error(owner: object, name: str, raised: Exception) -> Break:
    """Return a break of a call that always fails."""

    def fail(*_: object, **__: object) -> None:
        raise raised

    return call(owner, name, fail)


def flip(buffer: accelrt.Buffer, index: int = -1) -> None:
    """Change one byte of a buffer, in stream order."""
    place, host = index % buffer.nbytes, bytearray(1)
    buffer[place : place + 1].copy_to(host)
    buffer[place : place + 1].copy_(bytes([host[0] ^ 1]))


def wrong_copy(is_wrong: Callable[[accelrt.Buffer, Any], bool]) -> Break:
    """Return a break of copies: the last byte of those that `is_wrong` selects differs."""

    def copy(real: Any, to: accelrt.Buffer, source: Any, **options: Any) -> accelrt.Buffer:
        real(to, source, **options)
        if is_wrong(to, source):
            host = bytearray(1)
            to[to.nbytes - 1 : to.nbytes].copy_to(host)
            real(to[to.nbytes - 1 : to.nbytes], bytes([host[0] ^ 1]))
        return to

    return call(accelrt.Buffer, "copy_", copy)


def wrong_fill(byte: int) -> Break:
    """Return a break of fills with one byte: the last byte is not written."""

    def fill(real: Any, to: accelrt.Buffer, value: int) -> accelrt.Buffer:
        if value != byte:
            real(to, value)
        elif to.nbytes > 1:
            real(to[: to.nbytes - 1], value)
        return to

    return call(accelrt.Buffer, "fill_", fill)


def spoils_source(real: Any, to: accelrt.Buffer, source: Any, **options: Any) -> accelrt.Buffer:
    real(to, source, **options)
    if isinstance(source, accelrt.Buffer):
        host = bytearray(1)
        source[:1].copy_to(host)
        real(source[:1], bytes([host[0] ^ 1]))
    return to


def wrong_slice(offset: int) -> Break:
    """Return a break of slices: the byte before (-1) or after (0) each slice is changed."""

    def item(real: Any, buffer: accelrt.Buffer, part: slice) -> accelrt.Buffer:
        place = part.start - 1 if offset else part.stop
        if 0 <= place < buffer.nbytes:
            host = bytearray(1)
            beside: accelrt.Buffer = real(buffer, slice(place, place + 1))
            beside.copy_to(host)
            beside.copy_(bytes([host[0] ^ 1]))
        found: accelrt.Buffer = real(buffer, part)
        return found

    return call(accelrt.Buffer, "__getitem__", item)


def last_properties(**changes: object) -> Break:
    def properties(real: Any, index: int) -> object:
        known = real(index)
        fields = {"name": known.name, "total_memory": known.total_memory}
        return SimpleNamespace(**(fields | changes if index == LAST else fields))

    return call(module, "get_device_properties", properties)


def last_memory(change: Callable[[int, int], tuple[int, int]]) -> Break:
    def info(real: Any, device: Any = 0) -> tuple[int, int]:
        index = device if isinstance(device, int) else device.index
        free, total = real(device)
        return change(free, total) if index == LAST else (free, total)

    return call(module, "mem_get_info", info)


def late(patch: pytest.MonkeyPatch) -> None:
    """Ignore waits for events, and start each fill late: a copy on the other stream is first."""

    def fill(real: Any, buffer: accelrt.Buffer, byte: int) -> accelrt.Buffer:
        stream = module.current_stream(buffer.device)
        if byte == 19 and stream != module.default_stream(buffer.device):
            stream.launch_host(time.sleep, 0.2)
        filled: accelrt.Buffer = real(buffer, byte)
        return filled

    value(accelrt.Stream, "wait_event", None)(patch)
    call(accelrt.Buffer, "fill_", fill)(patch)


def never_done(number: int) -> Break:
    """Return a break of events: the one that is recorded as this is never done, 0 for a new one."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        recorded = list[accelrt.Event]()

        def record(real: Any, event: accelrt.Event, stream: accelrt.Stream) -> None:
            recorded.append(event)
            real(event, stream)

        def query(_: Any, event: accelrt.Event) -> bool:
            places = [place for place, it in enumerate(recorded) if it is event]
            return (places[-1] % 2 + 1 if places else 0) != number

        call(accelrt.Event, "record", record)(patch)
        call(accelrt.Event, "query", query)(patch)

    return breaks


class Refusing:
    """Stands in for `accelrt.Stream`, and refuses one priority."""

    def __init__(self, refused: int) -> None:
        self.refused = refused
        self.real = accelrt.Stream

    def priority_range(self) -> tuple[int, int]:
        return self.real.priority_range()

    def __call__(self, device: accelrt.device, priority: int) -> accelrt.Stream:
        if priority == self.refused:
            message = f"no priority {priority}"
            raise ValueError(message)
        return self.real(device, priority=priority)


def refuses_priority(index: int) -> Break:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(accelrt, "Stream", Refusing(accelrt.Stream.priority_range()[index]))

    return breaks


def priorities(least: int, greatest: int) -> Break:
    return value(accelrt.Stream, "priority_range", (least, greatest))


def inline(argument: int) -> Break:
    """Return a break of host calls: that with this argument runs at once, whatever came before."""

    def launch(real: Any, stream: accelrt.Stream, function: Any, *args: Any) -> object:
        if args == (argument,):
            return function(*args)
        return real(stream, function, *args)

    return call(accelrt.Stream, "launch_host", launch)


def lost(argument: int) -> Break:
    """Return a break of host calls: that with this argument does not run."""

    def launch(real: Any, stream: accelrt.Stream, function: Any, *args: Any) -> object:
        return None if args == (argument,) else real(stream, function, *args)

    return call(accelrt.Stream, "launch_host", launch)


def silent(real: Any, *args: Any) -> None:
    with suppress(accelrt.StreamError):
        real(*args)


def without_cause(real: Any, *args: Any) -> None:
    try:
        real(*args)
    except accelrt.StreamError as error:
        error.__cause__ = None
        raise


def of_another_type(real: Any, *args: Any) -> None:
    try:
        real(*args)
    except accelrt.StreamError as error:
        raise ValueError from error.__cause__


def raises_again(patch: pytest.MonkeyPatch) -> None:
    raised = list[accelrt.StreamError]()

    def synchronize(real: Any, *args: Any) -> None:
        try:
            real(*args)
        except accelrt.StreamError as error:
            raised.append(error)
        if raised:
            raise raised[-1]

    call(accelrt.Stream, "synchronize", synchronize)(patch)


def statistic(change: Callable[[int], object]) -> Break:
    key = "allocated_bytes.all.current"
    return call(module, "memory_stats", lambda real, device: {key: change(real(device)[key])})


def moved_snapshot(real: Any) -> list[dict[str, Any]]:
    return [it | {"device": (it["device"] + 1) % (LAST + 1)} for it in real()]


def shortage(of_type: type[Exception] = accelrt.OutOfMemoryError, **fields: object) -> Exception:
    refused = of_type("no memory")
    vars(refused).update(fields)
    return refused


def other_numbers(index: int, turn: int | None = None) -> Break:
    """Return a break of a device's generators: all numbers differ, or those of this turn."""
    turns = itertools.count()

    def fill(real: Any, generator: Any, buffer: accelrt.Buffer, dtype: str) -> None:
        real(generator, buffer, dtype)
        if buffer.device.index == index and turn in {None, next(turns)}:
            flip(buffer)

    return call(accelrt.Generator, "fill_uniform_", fill)


def inherited(patch: pytest.MonkeyPatch) -> None:
    """Let new threads start with the stream that is current in the main thread."""
    found = list[accelrt.Stream]()

    def current(real: Any, device: accelrt.device) -> accelrt.Stream:
        if threading.current_thread() is threading.main_thread():
            found.append(real(device))
        return found[-1]

    call(module, "current_stream", current)(patch)


def never_left(patch: pytest.MonkeyPatch) -> None:
    """Let a stream stay current in the main thread after its scope."""
    found = dict[int | None, accelrt.Stream]()

    def current(real: Any, device: accelrt.device | None = None) -> accelrt.Stream:
        stream: accelrt.Stream = real(device)
        if device is None or threading.current_thread() is not threading.main_thread():
            return stream
        return found.setdefault(device.index, stream)

    call(module, "current_stream", current)(patch)


def no_limit(raised: Exception | None) -> Break:
    def synchronize(real: Any, stream: accelrt.Stream, timeout: float | None = None) -> None:
        if timeout is None:
            real(stream)
        elif raised is not None:
            raise raised

    return call(accelrt.Stream, "synchronize", synchronize)


def false_result(real: Any, stream: accelrt.Stream, function: Any) -> object:
    return real(stream, lambda: bool(function()) and None)


def array(kind: str, nbytes: int) -> Break:
    found = SimpleNamespace(device=SimpleNamespace(type=kind), nbytes=nbytes)
    return value(accelrt, "from_dlpack", found)


def other_index(real: Any, view: accelrt.View) -> tuple[int, int]:
    return 12, real(view)[1] + 1


def wrong_size(size: int) -> Break:
    return wrong_copy(lambda to, source: to.nbytes == size and isinstance(source, bytes))


def of_buffers(_: accelrt.Buffer, source: object) -> bool:
    return isinstance(source, accelrt.Buffer)


def between_devices(to: accelrt.Buffer, source: object) -> bool:
    return isinstance(source, accelrt.Buffer) and to.device.index == LAST


def to_the_last_device(to: accelrt.Buffer, source: object) -> bool:
    return isinstance(source, bytes) and to.device.index == LAST


def both(*breaks: Break) -> Break:
    def all_of_them(patch: pytest.MonkeyPatch) -> None:
        for it in breaks:
            it(patch)

    return all_of_them


NAMES = "names_and_memory"
MISSING = "not_there"
ROUND_TRIP = "bytes_survive"
PARTS = "parts_are_copied"
ORDER = "tasks_of_one_stream"
EVENT = "event_hands_memory"
DONE = "events_are_done"
FAILURE = "a_failure_is_raised_once"
STATISTICS = "statistics_follow"
SHORTAGE = "too_much_memory"
NUMBERS = "random_numbers"
CURRENT = "what_is_current"
LIMIT = "wait_with_a_limit"

# For each case: the tests of the kit, and a defect that they must notice.
CASES: dict[str, tuple[str, Break]] = {
    "not available": (NAMES, value(module, "is_available", False)),
    "not the accelerator": (
        NAMES, value(accelrt.accelerator, "current_accelerator", accelrt.device(KIND, 1))
    ),
    "two modules": (
        NAMES,
        call(accelrt, "get_device_module", lambda *_: SimpleNamespace(**vars(module))),
    ),
    "blank name": (NAMES, last_properties(name=" ")),
    "no free memory": (NAMES, last_memory(lambda _, total: (0, total))),
    "more free than total": (NAMES, last_memory(lambda _, total: (total + 1, total))),
    "two totals": (NAMES, last_memory(lambda free, total: (free, total + 1))),
    "text of a device": (NAMES, value(accelrt.device, "__str__", f"{KIND}:0")),
    "missing device works": (
        MISSING, call(accelrt, "empty", lambda real, size, device: (device, real(size)))
    ),
    "missing device unnamed": (MISSING, error(accelrt, "empty", RuntimeError("no device"))),
    "missing device of another error": (
        MISSING, error(accelrt, "empty", LookupError(f"{KIND}:{LAST + 1}"))
    ),
    **{f"copy of {size} bytes": (ROUND_TRIP, wrong_size(size)) for size in _promises.SIZES},
    "copy within a device": (ROUND_TRIP, wrong_copy(of_buffers)),
    "copy to the last device": (ROUND_TRIP, wrong_copy(to_the_last_device)),
    "copy between devices": ("bytes_go", wrong_copy(between_devices)),
    "no devices": ("bytes_go", value(module, "device_count", 0)),
    "short fill of a part": (PARTS, wrong_fill(3)),
    "short copy of a part": (PARTS, wrong_copy(lambda to, _: to.nbytes == 3900)),
    "byte before a part": (PARTS, wrong_slice(-1)),
    "byte after a part": (PARTS, wrong_slice(0)),
    "stream never idle": (ORDER, value(accelrt.Stream, "query", False)),
    "last fill short": (ORDER, wrong_fill(99)),
    "fills out of order": (
        ORDER, call(accelrt.Buffer, "fill_", lambda real, to, byte: real(to, byte // 99 * 98))
    ),
    "waits for events ignored": (EVENT, late),
    "copy behind an event": (EVENT, wrong_copy(of_buffers)),
    "source of a copy": (EVENT, call(accelrt.Buffer, "copy_", spoils_source)),
    "new event not done": (DONE, never_done(0)),
    "start not done": (DONE, never_done(1)),
    "end not done": (DONE, never_done(2)),
    "negative time": (DONE, value(accelrt.Event, "elapsed_time", -0.5)),
    "range below zero": ("priorities", priorities(-1, -1)),
    "range above zero": ("priorities", priorities(1, 1)),
    "least priority refused": ("priorities", refuses_priority(0)),
    "greatest priority refused": ("priorities", refuses_priority(1)),
    "callable runs early": ("a_callable", inline(49)),
    "callable does not run": ("a_callable", lost(49)),
    "failure not raised": (FAILURE, call(accelrt.Stream, "synchronize", silent)),
    "failure of another type": (FAILURE, call(accelrt.Stream, "synchronize", of_another_type)),
    "failure of an event of another type": (
        FAILURE, call(accelrt.Event, "synchronize", of_another_type)
    ),
    "failure without a cause": (FAILURE, call(accelrt.Stream, "synchronize", without_cause)),
    "failure raised twice": (FAILURE, raises_again),
    "event of a failure not done": (FAILURE, value(accelrt.Event, "query", False)),
    "event without a failure": (FAILURE, call(accelrt.Event, "synchronize", silent)),
    "skipped callable runs": (FAILURE, inline(1)),
    "later callable does not run": (FAILURE, lost(2)),
    "statistic of another type": (STATISTICS, statistic(float)),
    "statistic too low": (STATISTICS, statistic(lambda count: count // 2)),
    "nothing reserved": (STATISTICS, value(module, "memory_reserved", 0)),
    "empty snapshot": (STATISTICS, value(module, "memory_snapshot", [])),
    "snapshot of other devices": (STATISTICS, call(module, "memory_snapshot", moved_snapshot)),
    "not released": (STATISTICS, value(accelrt.Buffer, "release", None)),
    "too much free": (STATISTICS, last_memory(lambda _, total: (total + 1, total))),
    "shortage not raised": (
        SHORTAGE, call(accelrt, "empty", lambda real, _, device: real(1, device=device))
    ),
    "shortage of another error": (
        SHORTAGE, error(accelrt, "empty", shortage(MemoryError, requested_bytes=1 << 62))
    ),
    "shortage without numbers": (SHORTAGE, error(accelrt, "empty", shortage())),
    "shortage of too little": (SHORTAGE, error(accelrt, "empty", shortage(requested_bytes=1))),
    "shortage counted": (SHORTAGE, values(module, "memory_allocated", 0, 512)),
    "zeros of ones": (
        SHORTAGE, call(accelrt, "zeros", lambda real, *args, **kw: real(*args, **kw).fill_(1))
    ),
    "memory given away": ("still_uses", wrong_copy(of_buffers)),
    "first numbers differ": (NUMBERS, other_numbers(LAST, 0)),
    "second numbers differ": (NUMBERS, other_numbers(LAST, 1)),
    "numbers of the cpu differ": (NUMBERS, other_numbers(0)),
    "raw numbers differ": (NUMBERS, values(accelrt.Generator, "random_raw", [1], [2])),
    "scope ignored": (
        CURRENT,
        call(module, "current_stream", lambda _, device=0: module.default_stream(device)),
    ),
    "threads inherit": (CURRENT, inherited),
    "scope not left": (CURRENT, never_left),
    "limit ignored": (LIMIT, no_limit(None)),
    "limit of another error": (LIMIT, no_limit(LookupError())),
    "result lost": (LIMIT, call(accelrt.Stream, "launch_host", false_result)),
    "array of another kind": ("dlpack", array("other", 64)),
    "array of another size": ("dlpack", array(KIND, 32)),
    "array of another device": (
        "dlpack", both(array(KIND, 64), call(accelrt.View, "__dlpack_device__", other_index))
    ),
    "profile without a name": (
        "a_profile",
        value(profiler.profile, "key_averages", SimpleNamespace(table=lambda: "copy")),
    ),
}  # fmt: skip


@functools.cache
def failed_lines(case: str) -> frozenset[int]:
    return frozenset(run_kit(*CASES[case]).lines)


def assertions() -> Iterator[tuple[str, range]]:
    """Yield the assertions of the kit's tests, with their lines."""
    source = _pytest.PROMISES.read_text()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test_"):
            continue
        for node in ast.walk(function):
            text = ast.unparse(node) if isinstance(node, (ast.stmt, ast.Call)) else ""
            if text.startswith(("assert ", "with pytest.raises", "assert_holds(")):
                assert isinstance(node, ast.stmt | ast.Call)
                yield text.splitlines()[0], range(node.lineno, (node.end_lineno or 0) + 1)


@pytest.mark.parametrize("case", CASES)
def test_kit_broken_device_fails(case: str) -> None:
    assert failed_lines(case)


def test_kit_whole_device_passes() -> None:
    found = run_kit("test_", None)
    assert found.lines == set()
    assert found.num_tests > len(_promises.SIZES) * 2 + 20


def test_header_names_devices_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*"hgfedcbah"]
    kind = SimpleNamespace(device_count=lambda: len(names), get_device_name=names.__getitem__)
    monkeypatch.setattr(_pytest, "module_of", lambda *_: kind)
    config: Any = SimpleNamespace(getoption=lambda _: "npu")
    header = _pytest.pytest_report_header(config)
    assert header == ["accelrt kind: npu, 9 devices: a, b, c, d, e, f, g, h"]
    config.getoption = lambda _: None
    assert _pytest.pytest_report_header(config) == []


def test_kit_every_assertion_has_a_case() -> None:
    failed = frozenset[int]().union(*map(failed_lines, CASES))
    missing = [text for text, lines in assertions() if failed.isdisjoint(lines)]
    assert missing == []
    assert Path(_promises.__file__) == _pytest.PROMISES
