"""`python -m accelrt explore` as a command: what it repeats, and that nothing outlives it.

Method: programs that say how they were called, that end by the seed of their schedule, which they
read from their environment, or that do not end by themselves.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import traces
from accelrt.cli import explore as cli
from processes import run

ARGUED = "import sys; sys.exit(sys.argv[1:] != ['--with', 'a name', '-n', '3'])"
FAILS = "import sys; sys.exit(len(sys.argv) - 1)"
# A process that starts another one; the test waits for that one to open a pipe.
ENDLESS = """
import os, subprocess, sys
with open(sys.argv[1], "a") as said:
    print(os.getpid(), file=said)
if len(sys.argv) > 2:
    subprocess.run([sys.executable, sys.argv[0], sys.argv[1]])
with open(sys.argv[1] + ".gate", "wb"):
    pass
while True:
    pass
"""
SEEDED = """
import os, sys
from pathlib import Path

schedule = os.environ["ACCELRT_CPU_SCHEDULE"]
if "ACCELRT_PROFILE" in os.environ:
    Path(sys.argv[1]).write_text(schedule)
print(*range(20), sep="\\n", file=sys.stderr)
sys.exit(schedule.startswith("seed:2,"))
"""
# A program that writes down its schedules, and for the first one a profile that is given.
COUNTED = """
import os, shutil, sys
from pathlib import Path

_, told, profile = map(Path, sys.argv)
trace = os.environ.get("ACCELRT_PROFILE")
with told.open("a") as file:
    print(os.environ["ACCELRT_CPU_SCHEDULE"] + " profiled" * (trace is not None), file=file)
if trace is not None and profile.exists():
    shutil.move(profile, trace)
sys.exit(3)
"""


def explore(*arguments: str) -> "list[str]":
    return [sys.executable, "-m", "accelrt", "explore", *arguments]


# Where signals are ignored, as behind an `&`, Python leaves them so.
HEEDS_SIGINT = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("accelrt", run_name="__main__", alter_sys=True)
"""


def is_alive(pid: int) -> bool:
    """Return False also for one that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_repeats_a_seed_has_the_arguments_of_the_program_and_the_timeout(
    tmp_path: Path,
) -> None:
    script = tmp_path / "a program.py"
    script.write_text(FAILS)
    arguments = ["--with", "a name", "-n", "3"]
    command = explore("--timeout", "50.5", "-n", "1", str(script), *arguments)
    ended = subprocess.run(  # noqa: S603  our own programs
        command, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ended.stdout.startswith("seed 0 fails, exit status 4\n")
    (again,) = re.findall(r"again: python -m accelrt (.*)\n", ended.stdout)
    expected = ["explore", "--timeout", "50.5", "--seed", "0", str(script), *arguments]
    assert shlex.split(again) == expected
    script.write_text(ARGUED)
    repeated = [sys.executable, "-m", "accelrt", *shlex.split(again)]
    ended = subprocess.run(repeated, capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stdout) == (0, "1 seed, random: none fails\n")


def test_an_interrupted_explore_ends_its_programs_and_begins_no_others(tmp_path: Path) -> None:
    script, pids, gate = tmp_path / "endless.py", tmp_path / "pids", tmp_path / "pids.gate"
    script.write_text(ENDLESS)
    os.mkfifo(gate)
    command = [sys.executable, "-c", HEEDS_SIGINT, "explore", "-n", "50", "--timeout", "1000"]
    command += [str(script), str(pids), "starts another"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:  # noqa: S603
        gate.open("rb").close()  # a program runs, and the one that it has started
        running.send_signal(signal.SIGINT)
        try:
            assert running.wait(60) == 130
        finally:
            running.kill()
    begun = [int(pid) for pid in pids.read_text().split()]
    assert len(begun) in range(2, 2 * (os.cpu_count() or 1) + 1)
    assert [pid for pid in begun if is_alive(pid)] == []


def test_the_timeline_is_of_the_seed_that_failed(tmp_path: Path) -> None:
    script, told = tmp_path / "program.py", tmp_path / "told"
    script.write_text(SEEDED)
    ended = run("-m", "accelrt", "explore", str(script), str(told))
    assert ended.stdout.startswith("seed 2 fails, exit status 1\n")
    assert told.read_text().startswith("seed:2,")


@pytest.mark.parametrize(("tasks", "steps"), [(None, 1000), (0, 1), (1, 1), (3, 3)])
def test_pct_runs_have_the_tasks_of_a_first_one(
    tmp_path: Path, tasks: int | None, steps: int
) -> None:
    """Only the first run writes a profile, which must not become the timeline of the failure."""
    script, told, profile = (tmp_path / name for name in ("program.py", "told", "profile"))
    script.write_text(COUNTED)
    if tasks is not None:
        slices = [("X", "task")] * tasks + [("X", "range"), ("i", "task")]
        events = [{"ph": ph, "cat": cat, "name": "a", "ts": 0, "dur": 1} for ph, cat in slices]
        profile.write_text(json.dumps({"traceEvents": events}))
    options = ("--strategy", "pct", "--depth", "2", "--seed", "7")
    ended = run("-m", "accelrt", "explore", *options, str(script), str(told), str(profile))
    failing = f"seed:7,strategy:pct,depth:2,steps:{steps}"
    assert told.read_text().splitlines() == ["seed:0 profiled", failing, f"{failing} profiled"]
    missing = "no timeline: the program ended before its profile was written"
    assert ended.stdout.splitlines()[-1] == missing, ended.stderr


def test_the_last_lines_of_what_a_run_says_are_shown(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SEEDED)
    ended = run("-m", "accelrt", "explore", str(script), str(tmp_path / "told"))
    shown = [line.strip() for line in ended.stdout.splitlines() if line.startswith("  ")]
    assert shown == [str(number) for number in range(8, 20)]


@pytest.mark.parametrize(
    ("changes", "how", "options"),
    [
        ({}, "exit status -6", ""),
        ({"status": 0}, "exit status 0", ""),
        ({"status": None}, "no end after 60 s", ""),
        ({"strategy": "pct", "depth": 4}, "exit status -6", "--strategy pct --depth 4 "),
        ({"strategy": "invert"}, "exit status -6", "--strategy invert "),
        ({"timeout": 0.5, "status": None}, "no end after 0.5 s", "--timeout 0.5 "),
    ],
)
def test_failure_whole_text(
    capsys: pytest.CaptureFixture[str], changes: dict[str, object], how: str, options: str
) -> None:
    known: dict[str, object] = {"strategy": "random", "depth": 3, "timeout": 60, "status": -6}
    values = known | changes
    status = values.pop("status")
    assert status is None or isinstance(status, int)
    given = argparse.Namespace(script=Path("a b.py"), arguments=["-n", ""], **values)
    cli._say(given, 0, status, "first\n\nlast\n")
    assert capsys.readouterr().out == (
        f"seed 0 fails, {how}\n  first\n  \n  last\n"
        f"again: python -m accelrt explore {options}--seed 0 'a b.py' -n ''\n"
    )


def test_timeline_is_written_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = argparse.Namespace(script=Path("a/program.py"), output=None)
    trace = traces.write_profile(tmp_path / "trace.json", 1)
    cli._write_page(given, 7, trace)
    assert capsys.readouterr().out == "explore-7.html: 10 slices of trace.json\n"
    page = (tmp_path / "explore-7.html").read_text()
    assert "<title>program.py, seed 7 · accelrt view</title>" in page
    given.output = tmp_path / "other.html"
    cli._write_page(given, 7, trace)
    assert capsys.readouterr().out == f"{given.output}: 10 slices of trace.json\n"
    cli._write_page(given, 7, tmp_path / "none.json")
    missing = "no timeline: the program ended before its profile was written\n"
    assert capsys.readouterr().out == missing
