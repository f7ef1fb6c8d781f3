"""The sanitizer on programs: what is wrong is found with both places, and what is right is not.

Goal: a user learns which two lines lack an order, and what would order them. Method: each program
is a small function; the lines of its two uses are found by the marks `# first` and `# second` in
its source. No program has to go wrong: one thread enqueues, and the finding does not depend on
when the tasks run.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import accelrt
from accelrt import sanitizer
from kinds import host_cores

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 4096
EXAMPLES = Path(__file__).parents[2] / "examples"

memset = ctypes.CDLL(None).memset
memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def lines(program: Callable[[], object]) -> dict[str, int]:
    """Return the lines of a program that have marks, by mark."""
    source, first = inspect.getsourcelines(program)
    found = {}
    for number, line in enumerate(source, first):
        _, hash_, mark = line.partition("# ")
        if hash_ and mark.strip() in {"first", "second", "made"}:
            found[mark.strip()] = number
    return found


def watched(program: Callable[[], object]) -> sanitizer.Report:
    """Return the report of a program, whose tasks have ended."""
    with sanitizer.watch() as report:
        program()
        accelrt.accelerator.synchronize()
    return report


def check(program: Callable[[], object], kind: str, fix: str) -> sanitizer.Finding:
    """See that a program has one finding, with both places and this fix."""
    report = watched(program)
    assert [finding.kind for finding in report.findings] == [kind], str(report)
    (finding,) = report.findings
    marks = lines(program)
    assert finding.second.file == __file__
    assert finding.second.line == marks["second"], str(finding)
    if "first" in marks:
        assert finding.first is not None
        assert (finding.first.file, finding.first.line) == (__file__, marks["first"]), str(finding)
    if "made" in marks:
        assert finding.buffer is not None
        assert finding.buffer.line == marks["made"]
    assert fix in finding.fix
    return finding


def zeros_on_the_default_stream() -> None:
    """README's trap: a new stream knows nothing of the default one, where zeros() fills."""
    stream = accelrt.Stream()
    buffer = accelrt.zeros(SIZE)  # first
    stream.launch(memset, buffer, 1, SIZE)  # second


@host_cores
def test_zeros_and_a_launch_on_another_stream_race() -> None:
    finding = check(zeros_on_the_default_stream, "race", "wait_stream")
    assert finding.first is not None
    assert (finding.first.name, finding.first.access) == ("fill", "write")
    assert (finding.second.name, finding.second.access) == ("memset", "read or write")
    assert finding.first.range == finding.second.range == (0, SIZE)
    assert finding.first.stream == "cpu:0 stream 0"
    assert finding.first.thread == finding.second.thread == threading.current_thread().name
    assert finding.buffer is not None
    assert finding.buffer.nbytes == SIZE


@host_cores
def test_each_side_has_the_thread_and_the_bytes_of_its_own_use() -> None:
    buffer = accelrt.empty(SIZE)

    def load() -> None:
        with accelrt.Stream():
            buffer[: SIZE // 2].fill_(1)

    with sanitizer.watch() as report:
        loader = threading.Thread(target=load, name="loader")
        loader.start()
        loader.join()
        accelrt.Stream().launch(memset, buffer, 2, SIZE)
        accelrt.accelerator.synchronize()
    (finding,) = report.findings
    assert finding.first is not None
    assert (finding.first.thread, finding.first.range) == ("loader", (0, SIZE // 2))
    own = threading.current_thread().name
    assert (finding.second.thread, finding.second.range) == (own, (0, SIZE))


@host_cores
@pytest.mark.parametrize("shown", ["a stream", "an event"])
def test_what_is_shown_is_no_query_and_orders_nothing(shown: str) -> None:
    def program() -> None:
        stream = accelrt.Stream()
        buffer = accelrt.zeros(SIZE)  # first
        thing = buffer.stream if shown == "a stream" else buffer.stream.record_event()
        while "pending" in repr(thing):
            pass
        stream.launch(memset, buffer, 1, SIZE)  # second

    check(program, "race", "wait_stream")


def poll(thing: accelrt.Event | accelrt.Stream) -> None:
    """Ask until it is done."""
    while not thing.query():
        pass


def wait(number: int, buffer: accelrt.Buffer, stream: accelrt.Stream) -> None:
    """Let a stream's next task run behind the buffer's first one, in one of the ways."""
    default, event = buffer.stream, buffer.stream.record_event()
    ways: list[Callable[[], object]] = [
        lambda: stream.wait_stream(default),
        lambda: stream.wait_event(event),
        event.synchronize,
        default.synchronize,
        accelrt.accelerator.synchronize,
        lambda: poll(event),
        lambda: poll(default),
        lambda: bytes(buffer),
        lambda: buffer.copy_to(bytearray(SIZE)),
        lambda: default.launch_host(int).result(),
        lambda: accelrt.ordered(default, stream),
    ]
    ways[number]()


WAYS = 11


@host_cores
@pytest.mark.parametrize("number", range(WAYS))
def test_each_order_is_known(number: int) -> None:
    def program() -> None:
        stream, buffer = accelrt.Stream(), accelrt.zeros(SIZE)
        wait(number, buffer, stream)
        stream.launch(memset, buffer, 1, SIZE)

    assert watched(program).findings == []


def an_address_after_the_free() -> None:
    """Launch with an address whose buffer is gone."""
    buffer = accelrt.zeros(SIZE)
    address, stream = buffer.data_ptr(), buffer.stream
    del buffer  # first
    stream.launch(memset, address, 1, SIZE)  # second


@host_cores
def test_a_use_after_the_free_is_found() -> None:
    # The size is so small that the memory stays the allocator's.
    finding = check(an_address_after_the_free, "use-after-free", "before the buffer is freed")
    assert finding.first is not None
    assert finding.first.name == "free"


def an_address_without_record_stream() -> None:
    """Free a buffer that another stream uses by its address."""
    stream, buffer = accelrt.Stream(), accelrt.zeros(SIZE)
    stream.wait_stream(buffer.stream)
    stream.launch(memset, buffer.data_ptr(), 1, SIZE)  # first
    del buffer  # second


def an_address_with_record_stream() -> None:
    """Do the same, and say so."""
    stream, buffer = accelrt.Stream(), accelrt.zeros(SIZE)
    stream.wait_stream(buffer.stream)
    stream.launch(memset, buffer.data_ptr(), 1, SIZE)
    buffer.record_stream(stream)


@host_cores
def test_a_missing_record_stream_is_found() -> None:
    check(an_address_without_record_stream, "missing-record-stream", "record_stream()")
    assert watched(an_address_with_record_stream).findings == []


def a_wait_before_the_record() -> None:
    """Wait for an event that is recorded too late."""
    other, event, buffer = accelrt.Stream(), accelrt.Event(), accelrt.empty(SIZE)
    other.wait_event(event)  # too early
    buffer.stream.launch(memset, buffer, 0, SIZE)
    buffer.stream.record_event(event)
    other.launch(memset, buffer, 1, SIZE)


def a_wait_for_nothing() -> None:
    """Wait for an event that is never recorded."""
    accelrt.Stream().wait_event(accelrt.Event())  # second


def a_first_round() -> None:
    """Wait for events of the round before, of which the first one has none."""
    one, other = accelrt.Stream(), accelrt.Stream()
    buffer, free = accelrt.empty(SIZE), accelrt.Event()
    for _ in range(3):
        one.wait_event(free)
        one.launch(memset, buffer, 0, SIZE)
        other.wait_stream(one)
        other.launch(memset, buffer, 1, SIZE)
        other.record_event(free)


@host_cores
def test_waits_for_events_without_a_record_are_found_when_they_do_harm() -> None:
    check(a_wait_for_nothing, "unrecorded-event", "record the event before")
    kinds = {finding.kind for finding in watched(a_wait_before_the_record).findings}
    assert kinds == {"race", "unrecorded-event"}
    assert watched(a_first_round).findings == []


def a_read_of_nothing() -> None:
    """Copy what was never written."""
    buffer, target = accelrt.empty(SIZE), accelrt.empty(SIZE)
    target[: SIZE // 2].fill_(0)
    target[SIZE // 4 :].copy_(buffer[SIZE // 4 :], non_blocking=True)  # second


def test_an_uninitialized_read_is_found() -> None:
    finding = check(a_read_of_nothing, "uninitialized-read", "zeros()")
    assert (finding.second.access, finding.second.range) == ("read", (SIZE // 4, SIZE))


def the_host_beside_a_task() -> None:
    """Access bytes through a view while a task may use them."""
    buffer = accelrt.zeros(SIZE)
    view = memoryview(buffer)
    buffer.fill_(1)  # first
    with accelrt.host_access(buffer):  # second
        view[0] = 2


def a_task_beside_the_host() -> None:
    """Enqueue a task while the host uses the bytes."""
    buffer = accelrt.zeros(SIZE)
    buffer.stream.synchronize()
    with accelrt.host_access(buffer):  # first
        buffer.fill_(1)  # second


def the_host_alone() -> None:
    """Wait before, and enqueue after."""
    buffer = accelrt.zeros(SIZE)
    buffer.stream.synchronize()
    with accelrt.host_access(buffer):
        pass
    accelrt.Stream().launch(memset, buffer, 1, SIZE)


def the_host_inside_of_its_own_access() -> None:
    """Say of a part of an access that it is one, too, and let another thread help."""
    buffer = accelrt.zeros(SIZE)
    buffer.stream.synchronize()

    def part() -> None:
        with accelrt.host_access(buffer):
            pass

    with accelrt.host_access(buffer):
        part()
        helper = threading.Thread(target=part)
        helper.start()
        helper.join()


def the_host_reads_beside_a_task() -> None:
    """Read on both sides."""
    buffer = accelrt.zeros(SIZE)
    buffer.stream.synchronize()
    accelrt.Stream().launch(ctypes.CDLL(None).labs, accelrt.reads(buffer))
    with accelrt.host_access(buffer, writes=False):
        accelrt.Stream().launch(ctypes.CDLL(None).labs, accelrt.reads(buffer))


@host_cores
def test_accesses_of_the_host_are_found() -> None:
    check(the_host_beside_a_task, "host-access", "synchronize()")
    check(a_task_beside_the_host, "host-access", "end the host's access")
    assert watched(the_host_alone).findings == []
    assert watched(the_host_inside_of_its_own_access).findings == []
    assert watched(the_host_reads_beside_a_task).findings == []


def a_callable_uses_the_memory_itself() -> None:
    """Access bytes inside of a callable, which is behind the fill."""
    stream, other = accelrt.Stream(), accelrt.Stream()
    with stream:
        buffer = accelrt.zeros(SIZE)

    def task() -> None:
        with accelrt.host_access(buffer):
            pass

    stream.launch_host(task)
    other.wait_stream(stream)
    other.launch(memset, buffer, 1, SIZE)


def a_callable_beside_a_task() -> None:
    """Access bytes inside of a callable that nothing orders behind the fill."""
    buffer = accelrt.zeros(SIZE)
    stream = accelrt.Stream()
    with stream:
        buffer.fill_(1)  # first

    def task() -> None:
        with accelrt.host_access(buffer):
            pass

    accelrt.Stream().launch_host(task).result()


@host_cores
def test_an_access_of_the_host_inside_of_a_callable_is_the_callables() -> None:
    assert watched(a_callable_uses_the_memory_itself).findings == []
    kinds = [finding.kind for finding in watched(a_callable_beside_a_task).findings]
    assert kinds == ["race"] * 3  # each with each


@host_cores
@pytest.mark.parametrize("poll", ["an event", "a stream", "a call"])
def test_a_poll_that_says_done_orders(poll: str) -> None:
    stream, other = accelrt.Stream(), accelrt.Stream()
    with sanitizer.watch() as report:
        with stream:
            buffer = accelrt.zeros(SIZE)
        event, call = stream.record_event(), stream.launch_host(int)
        is_done = {"an event": event.query, "a stream": stream.query, "a call": call.done}[poll]
        while not is_done():
            pass
        other.launch(memset, buffer, 1, SIZE)
        accelrt.accelerator.synchronize()
    assert report.findings == []


def halves() -> None:
    """Use the two halves of a buffer on two streams; read all of it on both."""
    buffer, streams = accelrt.zeros(SIZE), [accelrt.Stream() for _ in range(2)]
    for place, stream in enumerate(streams):
        stream.wait_stream(buffer.stream)
        half = buffer[place * SIZE // 2 : (place + 1) * SIZE // 2]
        stream.launch(memset, half, place, SIZE // 2)
    for stream, other in zip(streams, reversed(streams), strict=True):
        stream.wait_stream(other)
    for stream in streams:
        stream.launch(ctypes.CDLL(None).labs, accelrt.reads(buffer))


@host_cores
def test_other_bytes_and_reads_do_not_race() -> None:
    assert watched(halves).findings == []


def memory_again() -> None:
    """Let the allocator hand out the same memory again and again."""
    for turn in range(50):
        stream = accelrt.Stream()
        with stream:
            buffer = accelrt.zeros(SIZE)
        stream.launch(memset, buffer, turn, SIZE)


@host_cores
def test_memory_that_is_handed_out_again_is_a_new_life() -> None:
    assert watched(memory_again).findings == []


@host_cores
def test_a_callable_is_behind_what_is_before_it() -> None:
    stream, other = accelrt.Stream(), accelrt.Stream()
    buffer = accelrt.empty(SIZE)

    def inner() -> None:
        other.launch(memset, buffer, 2, SIZE)

    with sanitizer.watch() as report:
        stream.launch(memset, buffer, 1, SIZE)
        stream.launch_host(inner)
        stream.synchronize()
        other.synchronize()
    assert report.findings == []


@host_cores
def test_a_buffer_older_than_the_watch_is_known() -> None:
    buffer = accelrt.zeros(SIZE)
    accelrt.accelerator.synchronize()
    with sanitizer.watch() as report:
        for stream in accelrt.Stream(), accelrt.Stream():
            stream.launch(memset, buffer, 1, SIZE)
        accelrt.accelerator.synchronize()
    (finding,) = report.findings
    assert finding.buffer is not None
    assert (finding.buffer.nbytes, finding.buffer.file) == (SIZE, None)


@host_cores
def test_equal_places_are_one_finding_that_is_counted() -> None:
    def loop() -> None:
        buffer = accelrt.empty(SIZE)
        for _ in range(5):
            for stream in accelrt.Stream(), accelrt.Stream():
                stream.launch(memset, buffer, 1, SIZE)

    (finding,) = watched(loop).findings
    assert finding.count > 5


@host_cores
def test_a_report_says_what_was_forgotten_also_when_its_watch_has_ended() -> None:
    buffer = accelrt.empty(1025)  # one use more than a buffer has room for
    with sanitizer.watch() as report:
        for place in range(1025):
            buffer[place : place + 1].fill_(0)
        assert report.num_forgotten == 512
    assert report.as_dict() == {"findings": [], "num_forgotten": 512}
    assert str(report) == "512 uses were forgotten: more may be wrong"


def test_the_place_is_the_programs_own_line_however_deep_a_library_calls() -> None:
    source = "def call(depth, act):\n    return call(depth - 1, act) if depth else act(1)\n"
    library: dict[str, Callable[..., object]] = {}
    # As code of an installed package.
    exec(compile(source, "/opt/site-packages/deep.py", "exec"), library)  # noqa: S102

    def program() -> None:
        buffer = accelrt.zeros(SIZE)  # first
        with accelrt.Stream():
            library["call"](20, buffer.fill_)  # second

    check(program, "race", "wait_stream()")


@host_cores
def test_a_watch_warns_or_raises_at_the_second_use_and_can_be_told_to_be_silent() -> None:
    marks = lines(zeros_on_the_default_stream)
    with (
        pytest.raises(sanitizer.SanitizerError, match="race: a buffer of 4096 bytes") as raised,
        sanitizer.watch(action="raise"),
    ):
        zeros_on_the_default_stream()
    assert raised.value.finding.second.line == marks["second"]
    with warnings.catch_warnings(record=True) as caught, sanitizer.watch(action="warn"):
        warnings.simplefilter("always")
        zeros_on_the_default_stream()
    assert [(it.filename, it.lineno) for it in caught] == [(__file__, marks["second"])]
    line, folder = f"test_sanitizer.py:{marks['first']}", f"{Path(__file__).parent}/*"
    for pattern in line, folder, "test_sanitizer.py":
        with sanitizer.watch(suppress=[pattern]) as report:
            zeros_on_the_default_stream()
        assert report.findings == []
    with (
        pytest.raises(TypeError, match=r"a list of patterns, as \['vendor/\*'\]"),
        sanitizer.watch(suppress="vendor/*"),
    ):
        pass
    with pytest.raises(ValueError, match="action must be"):
        sanitizer.watch(action="explode")  # type: ignore[arg-type]
    with (
        pytest.raises(sanitizer.SanitizerError, match="missing-record-stream"),
        sanitizer.watch(action="raise"),
    ):
        an_address_without_record_stream()  # no call comes after the free


def run(*arguments: str, mode: str = "", suppress: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    watched = {"ACCELRT_SANITIZER": mode, "ACCELRT_SANITIZER_SUPPRESS": suppress}
    environment = {**watched, "PATH": ""}
    return subprocess.run(  # noqa: S603  it starts Python
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


TRAP = """\
import ctypes, sys
import accelrt
stream = accelrt.Stream()
buffer = accelrt.zeros(4096)
stream.launch(ctypes.CDLL(None).memset, buffer, 1, ctypes.c_size_t(4096))
stream.synchronize()
print("done", *sys.argv[1:])
sys.exit(int(*sys.argv[2:]))
"""

FORKED = """\
stream.synchronize()
import os
child = os.fork()
if child:
    os.waitpid(child, 0)
"""


def test_the_command_reports_what_a_script_has_and_ends_with_1(tmp_path: Path) -> None:
    script = tmp_path / "trap.py"
    script.write_text(TRAP)
    report, page = tmp_path / "out.json", tmp_path / "out.html"
    for file in report, page:
        ran = run("-m", "accelrt", "sanitize", "--report", str(file), str(script), "a", "0")
        assert ran.returncode == 1, ran.stderr
        assert ran.stdout == "done a 0\n"
        assert "1 finding\nrace: " in ran.stderr
    (finding,) = json.loads(report.read_text())["findings"]
    assert (finding["kind"], finding["second"]["line"]) == ("race", 5)
    assert "stream.launch(ctypes.CDLL(None).memset, buffer, 1" in page.read_text()
    assert run("-m", "accelrt", "sanitize", str(script), "a", "3").returncode == 1
    suppressed = ("--suppress", "trap.py:4", str(script), "a")
    assert run("-m", "accelrt", "sanitize", *suppressed, "0").returncode == 0
    assert run("-m", "accelrt", "sanitize", *suppressed, "3").returncode == 3
    assert run("-m", "accelrt", "sanitize", "nothing.py").returncode == 2


def test_the_environment_watches_a_program(tmp_path: Path) -> None:
    script = tmp_path / "trap.py"
    script.write_text(TRAP)
    reported = run(str(script), "a", "0", mode="report")
    assert reported.returncode == 0
    assert "accelrt sanitizer: 1 finding\nrace: " in reported.stderr
    warned = run(str(script), "a", "0", mode="warn")
    assert f"{script}:5: SanitizerWarning: race: " in warned.stderr
    raised = run(str(script), "a", "0", mode="raise")
    assert raised.returncode == 1
    assert raised.stdout == ""
    assert "accelrt.sanitizer.SanitizerError: race: " in raised.stderr
    assert "done a 0" in run(str(script), "a", "0").stdout
    wrong = run(str(script), "a", "0", mode="yes")
    assert "ACCELRT_SANITIZER" in wrong.stderr
    assert "warn, raise or report" in wrong.stderr


def test_a_copy_holds_the_pinned_memory_whose_view_it_reads() -> None:
    buffer, other = accelrt.zeros(64), accelrt.Stream()
    accelrt.accelerator.synchronize()
    with sanitizer.watch() as report:
        pinned = accelrt.empty_pinned(64)
        view = memoryview(pinned)
        view[:] = bytes(64)
        with other:
            buffer[:32].copy_(view[:32], non_blocking=True)
        del view, pinned
        is_over = threading.Event()
        other.launch_host(is_over.set)
        is_over.wait()  # an order that the sanitizer does not see
        accelrt.empty(8)  # frees what the copy held
    assert report.findings == []


def test_the_environment_leaves_places_out(tmp_path: Path) -> None:
    script = tmp_path / "trap.py"
    script.write_text(TRAP)
    for patterns in "vendor/*:trap.py:4", "trap.py:4:vendor/*", "trap.py":
        ran = run(str(script), "a", "0", mode="report", suppress=patterns)
        assert (ran.returncode, ran.stderr) == (0, ""), patterns
    for patterns in "vendor/*:trap.py:9", "other.py:*", "rap.py:rap.py:4", "trap.py:41":
        ran = run(str(script), "a", "0", mode="report", suppress=patterns)
        assert "1 finding\nrace: " in ran.stderr, patterns


def test_a_forked_child_does_not_repeat_the_report(tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(TRAP.replace("stream.synchronize()", FORKED))
    ran = run(str(script), "a", "0", mode="report")
    assert ran.returncode == 0
    assert ran.stderr.count("race: ") == 1
