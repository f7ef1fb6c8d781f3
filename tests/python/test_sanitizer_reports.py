"""What the sanitizer's watches and its command report of programs with several findings.

Goal: no finding hides another one, a page shows both places, and the command ends as the script
does. Method: programs of a few lines, whose findings are known; scripts in processes of their own.
"""

from __future__ import annotations

import ctypes
import json
import warnings
from functools import partial
from typing import TYPE_CHECKING

import pytest

import accelrt
from accelrt import sanitizer
from accelrt.cli import sanitize as sanitize_command
from accelrt.sanitizer import Report
from kinds import host_cores
from processes import run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

SIZE = 4096

pytestmark = pytest.mark.accelrt_unordered


def sanitize(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return run("-m", "accelrt", "sanitize", *arguments, **settings)


def test_findings_of_different_kinds_at_one_place_are_several() -> None:
    target = accelrt.zeros(SIZE)
    with sanitizer.watch() as report:
        buffer = accelrt.empty(SIZE)
        copy = partial(target.copy_, buffer, non_blocking=True)
        for act in partial(accelrt.Stream().wait_event, accelrt.Event()), copy:
            act()
        accelrt.accelerator.synchronize()
    kinds = {finding.kind for finding in report.findings}
    assert kinds == {"unrecorded-event", "uninitialized-read"}


def test_a_wait_that_does_no_harm_hides_none_at_its_place_that_does() -> None:
    first, second = accelrt.Event(), accelrt.Event()
    with sanitizer.watch() as report:
        for event in first, second:
            accelrt.Stream().wait_event(event)
        accelrt.Stream().record_event(first)  # so that the wait for it was the first round's
    assert [finding.kind for finding in report.findings] == ["unrecorded-event"]


def race() -> None:
    first, second = (accelrt.Stream(dedicated=True) for _ in range(2))
    with first:
        buffer = accelrt.zeros(SIZE)
    with second:
        buffer.fill_(1)


def missing_record_stream() -> None:
    memset = ctypes.CDLL(None).memset
    made_on, other = accelrt.Stream(), accelrt.Stream()
    with made_on:
        buffer = accelrt.zeros(SIZE)
    other.wait_stream(made_on)
    other.launch(memset, buffer.data_ptr(), 1, ctypes.c_size_t(SIZE))


def test_nested_watches_all_receive_a_finding() -> None:
    """Also a watch inside of one that raises, at once, and not a second time at its end."""
    with warnings.catch_warnings(record=True) as warned, sanitizer.watch(action="raise"):
        warnings.simplefilter("always")
        with sanitizer.watch(action="warn") as inner:
            with pytest.raises(sanitizer.SanitizerError, match=r"^race"):
                race()
            assert len(warned) == 1
            accelrt.accelerator.synchronize()
        assert len(warned) == len(inner.findings) == 1


def test_nested_watch_passes_an_interrupt_on() -> None:
    """An error of one watch does not replace the interrupt in the action of another one."""

    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with warnings.catch_warnings(), sanitizer.watch(action="raise"):
        warnings.simplefilter("always")
        warnings.showwarning = interrupt
        with pytest.raises(KeyboardInterrupt), sanitizer.watch(action="warn"):
            race()
    accelrt.accelerator.synchronize()


def test_warnings_as_errors_hide_no_finding() -> None:
    """The first warning is raised, and the others are not left out."""
    seen = []

    def note(message: object, *_args: object, **_options: object) -> None:
        seen.append(str(message))
        raise sanitizer.SanitizerWarning(message)

    memcpy, stream = ctypes.CDLL(None).memcpy, accelrt.Stream(dedicated=True)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        with sanitizer.watch(action="warn") as report:
            unordered, unwritten = accelrt.zeros(SIZE), accelrt.reads(accelrt.empty(SIZE))
            with pytest.raises(sanitizer.SanitizerWarning):
                stream.launch(memcpy, unordered, unwritten, ctypes.c_size_t(SIZE))
            accelrt.accelerator.synchronize()
    kinds = sorted(finding.kind for finding in report.findings)
    assert kinds == sorted(text.partition(":")[0] for text in seen)
    assert kinds == ["race", "uninitialized-read"]


@pytest.mark.parametrize("again", [race, missing_record_stream])
def test_watch_is_complete_when_entered_again(again: Callable[[], None]) -> None:
    """What is found at the end is raised, although the first time found something before."""
    watch = sanitizer.watch(action="raise")
    for work in (race, again):
        with pytest.raises(sanitizer.SanitizerError) as raised, watch:
            work()
        assert raised.value.finding.kind == work.__name__.replace("_", "-")
    accelrt.accelerator.synchronize()


def test_a_watch_that_raises_tells_at_its_end_of_events_that_were_never_recorded() -> None:
    with (
        pytest.raises(sanitizer.SanitizerError, match="unrecorded-event"),
        sanitizer.watch(action="raise"),
    ):
        accelrt.Stream().wait_event(accelrt.Event())


def test_what_a_program_raises_is_not_replaced_by_a_finding() -> None:
    def fail() -> None:
        accelrt.Stream().wait_event(accelrt.Event())
        message = "its own"
        raise OSError(message)

    with pytest.raises(OSError, match="its own"), sanitizer.watch(action="raise"):
        fail()


@host_cores
def test_copies_that_use_two_halves_of_pinned_memory_do_not_race() -> None:
    buffer, pinned, half = accelrt.zeros(SIZE), accelrt.empty_pinned(SIZE), SIZE // 2
    accelrt.accelerator.synchronize()
    with sanitizer.watch() as report:
        view = memoryview(pinned)
        with accelrt.Stream():
            buffer[:half].copy_(view[:half], non_blocking=True)
        with accelrt.Stream():
            buffer[half:].copy_to(view[half:], non_blocking=True)
        assert report.findings == []
        with accelrt.Stream():
            buffer[half:].copy_(view[half - 1 : -1], non_blocking=True)
        (finding,) = report.findings  # of both memories, at the same places
        assert (finding.kind, finding.count) == ("race", 2)
        accelrt.accelerator.synchronize()


@host_cores
def test_findings_that_find_no_room_are_counted() -> None:
    # Method: a line each for more findings than a watch keeps, every fill beside the one before.
    source = "\n".join(["next(streams); buffer.fill_(1)"] * 4100)
    streams = [accelrt.Stream(), accelrt.Stream()]

    def in_turns() -> object:
        while True:
            for stream in streams:
                with stream:
                    yield

    names = {"buffer": accelrt.empty(8), "streams": in_turns()}
    with sanitizer.watch() as report:
        exec(compile(source, "lines.py", "exec"), names)  # noqa: S102  the lines above
        accelrt.accelerator.synchronize()
        assert report.num_forgotten == 4099 - 4096
    assert len(report.findings) == 4096


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit('it ends')", 1, "it ends\n"),
        ("raise OSError('it fails')", 1, "OSError: it fails\n"),
        ("import beside\nbeside.end()", 7, ""),
    ],
    ids=["exit", "text", "exception", "module"],
)
def test_the_command_ends_as_a_script_without_findings_does(
    tmp_path: Path, end: str, status: int, said: str
) -> None:
    (tmp_path / "beside.py").write_text("import sys\n\ndef end():\n    sys.exit(7)\n")
    script = tmp_path / "script.py"
    script.write_text(f"import sys\n{end}\n")
    ran = sanitize(str(script))
    assert (ran.returncode, said in ran.stderr) == (status, True), ran.stderr


LEFT = """
import accelrt

other, buffer = accelrt.Stream(device="cpu:1"), accelrt.empty(8, device="cpu:1")
with accelrt.Stream(device="cpu:1"):
    buffer.fill_(1)

def leave():
    with other:
        buffer.fill_(2)

{failure}
accelrt.Stream(device="cpu:1", priority=-1).launch_host(leave)
"""

FAILURE = """
def fail():
    raise OSError("its own")

accelrt.Stream(device="cpu:0", priority=1).launch_host(fail)
"""


@pytest.mark.parametrize("failure", ["", FAILURE], ids=["well", "failed"])
def test_the_command_waits_for_what_a_script_leaves_in_streams_of_every_device(
    tmp_path: Path, failure: str
) -> None:
    # Method: under a schedule nothing runs before a wait, and what is least urgent runs first.
    script = tmp_path / "script.py"
    script.write_text(LEFT.format(failure=failure))
    schedule = {"ACCELRT_CPU_SCHEDULE": "seed:1,strategy:invert", "ACCELRT_CPU_DEVICES": "2"}
    ran = sanitize(str(script), ACCELRT_ACCELERATOR="cpu", **schedule)
    assert (ran.returncode, "1 finding\nrace: " in ran.stderr) == (1, True), ran.stderr
    assert ("its own" in ran.stderr) == bool(failure)


SAID = """\
race (5 times): a buffer of 64 bytes at 0x1000, older than the watch
  first:  fill writes bytes 0 to 8 on cpu:0 stream 3 at {script}:1, thread main
  second: copy reads bytes 4 to 12 on the host at {script}:2, thread ?
  fix:    wait <here>
use-after-free: no memory
  second: free on cpu:1 stream 0 at an unknown place, thread w
  fix:    keep it
9 uses were forgotten: more may be wrong"""
PAGE = """
<h1>2 findings</h1>
<p>The script failed with exit status 3: &lt;why&gt;</p>
<section><h2>race, 5 times</h2><dl>\
<dt>buffer<dd>a buffer of 64 bytes at 0x1000, older than the watch\
<dt>first<dd>fill writes bytes 0 to 8 on cpu:0 stream 3 at {script}:1, thread main\
<pre>a &lt; b</pre>\
<dt>second<dd>copy reads bytes 4 to 12 on the host at {script}:2, thread ?\
<pre>c &amp; d</pre>\
<dt>fix<dd>wait &lt;here&gt;</dl></section>
<section><h2>use-after-free, 1 time</h2><dl>\
<dt>second<dd>free on cpu:1 stream 0 at an unknown place, thread w\
<dt>fix<dd>keep it</dl></section>

"""


def test_report_whole_text(tmp_path: Path) -> None:
    script, page, out = (tmp_path / name for name in ("program.py", "page.html", "out.json"))
    script.write_text("a < b\n  c & d\n")
    first = (("cpu:0", 3), "fill", "write", 0, 8, str(script), 1, "main")
    second = (None, "copy", "read", 4, 12, str(script), 2, "")
    freed = (("cpu:1", 0), "free", "", 0, 0, None, 0, "w")
    race = ("race", first, second, (0x1000, 64, None, 0), "wait <here>")
    report = Report()
    report._findings = report._wanted(
        [(*race, 2), ("use-after-free", None, freed, None, "keep it", 1), (*race, 3)]
    )
    report._forgotten = 9
    assert str(report) == SAID.format(script=script)
    ended = {"exit_status": 3, "error": "<why>"}
    sanitize_command._write(page, report, ended)
    title, shown = page.read_text().split("</style>")
    assert "<title>accelrt sanitizer: 2 findings</title>" in title
    assert shown == PAGE.format(script=script)
    sanitize_command._write(out, report, ended)
    found = json.loads(out.read_text())
    assert (found["script"], found["num_forgotten"]) == (ended, 9)
    assert found["findings"][0]["second"] == {
        "stream": None, "name": "copy", "access": "read", "range": [4, 12],
        "file": str(script), "line": 2, "thread": "",
    }  # fmt: skip
    assert found["findings"][0]["buffer"] == {
        "address": 0x1000, "nbytes": 64, "file": None, "line": 0,
    }  # fmt: skip


def test_a_page_has_the_lines_of_both_uses_and_no_text_as_markup(tmp_path: Path) -> None:
    script, page = tmp_path / "a<b.py", tmp_path / "page.html"
    script.write_text(
        "import accelrt\n"
        "buffer = accelrt.zeros(8)\n"
        "with accelrt.Stream():\n"
        "    buffer.fill_(1)\n"
        "accelrt.accelerator.synchronize()\n"
    )
    assert sanitize("--report", str(page), str(script)).returncode == 1
    text = page.read_text()
    assert "<pre>buffer = accelrt.zeros(8)</pre>" in text
    assert "<pre>buffer.fill_(1)</pre>" in text
    assert "a&lt;b.py:2" in text
    assert "a<b" not in text
