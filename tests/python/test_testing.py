"""`accelrt.testing`: schedules that repeat, what looks for a seed, and both in pytest.

Method: processes of their own, because a process has one clock. What one seed prints is compared
with what it prints again.
"""

import json
import re
from pathlib import Path

import pytest

from processes import output_of, run

RACY = """
import accelrt
a, b = accelrt.Stream(device="cpu"), accelrt.Stream(device="cpu")
box = []
a.launch_host(box.append, 1)
{order}
call = b.launch_host(lambda: box[0])
a.synchronize()
b.synchronize()
assert call.result() == 1
"""
WRONG, RIGHT = RACY.format(order=""), RACY.format(order="b.wait_stream(a)")

SEEN = """
import accelrt

def seen():
    streams = [accelrt.Stream(device="cpu", priority=p) for p in (-1, 0, 1)]
    order, events, places = [], [], []
    for number in range(8):
        for stream, name in zip(streams, "abc"):
            stream.launch_host(order.append, name)
            with stream:
                memory = accelrt.empty(1000 * (number + 1), device="cpu")
                places.append(memory.data_ptr())
                memory.fill_(number)
            events.append(stream.record_event(accelrt.Event(enable_timing=True)))
        streams[number % 3].wait_event(events[-1 - number % 3])
    polls = 0
    while not events[10].query():
        polls += 1
    accelrt.cpu.synchronize()
    times = [events[0].elapsed_time(event) for event in events]
    print("".join(order), polls, times, [place - places[0] for place in places])
"""


def test_the_examples_of_the_docstrings_run() -> None:
    code = "import doctest, accelrt.testing as t; print(doctest.testmod(t))"
    assert "failed=0, attempted=1" in output_of(code)


@pytest.mark.parametrize("strategy", ["random", "invert", "starve", "pct"])
def test_a_seed_gives_the_same_order_times_and_offsets_in_every_process(strategy: str) -> None:
    def of(seed: int) -> str:
        setting = f"seed:{seed},strategy:{strategy},steps:48"
        return output_of(f"{SEEN}\nseen()", ACCELRT_CPU_SCHEDULE=setting)

    assert of(1) == of(1) != of(2)


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ("5, 700", "seed:5,durations:700"),
        ("5, 700, strategy='invert'", "seed:5,durations:700,strategy:invert"),
        (
            "5, 700, strategy='pct', depth=4, steps=30",
            "seed:5,durations:700,strategy:pct,depth:4,steps:30",
        ),
    ],
    ids=["random", "invert", "pct"],
)
def test_a_schedule_in_a_with_is_that_of_the_variable(given: str, setting: str) -> None:
    inside = f"{SEEN}\nfrom accelrt import testing\nwith testing.schedule({given}): seen()"
    by_variable = output_of(f"{SEEN}\nseen()", ACCELRT_CPU_SCHEDULE=setting)
    assert output_of(inside) == by_variable


def test_a_missing_wait_is_found_by_some_seeds_and_waits_hold_under_all() -> None:
    code = """
from accelrt import testing
results = []
for seed in range(40):
    try:
        with testing.schedule(seed, strategy=("random", "pct", "starve", "invert")[seed % 4]):
            exec({program!r})
        results.append(True)
    except Exception as error:
        results.append(False)
print(all(results), any(results))
"""
    assert output_of(code.format(program=WRONG)) == "False True\n"
    assert output_of(code.format(program=RIGHT)) == "True True\n"


def test_awaits_follow_a_schedule_and_other_tasks_of_the_loop_go_on() -> None:
    code = """
    import asyncio, accelrt
    from accelrt import testing

    async def work(name, order):
        stream = accelrt.Stream(device="cpu")
        for number in range(3):
            await stream.launch_host(order.append, f"{name}{number}")
        await stream.record_event()
        await stream

    async def main(order):
        await asyncio.gather(*(work(name, order) for name in "abc"))

    def of(seed):
        order = []
        with testing.schedule(seed):
            asyncio.run(main(order))
        return tuple(order)

    orders = {of(seed) for seed in range(20)}
    assert {of(seed) for seed in range(20)} == orders
    print(len(orders) > 5, all(sorted(order) == sorted(orders.pop()) for order in [*orders]))
    """
    assert output_of(code) == "True True\n"


def test_a_callable_that_waits_for_another_one_does_not_hang() -> None:
    code = """
    import threading, accelrt
    from accelrt import testing
    accelrt.cpu.synchronize()
    with testing.schedule(1):
        opened, done = threading.Event(), []
        streams = [accelrt.Stream(device="cpu") for _ in range(2)]
        streams[0].launch_host(opened.set)
        streams[1].launch_host(opened.wait, 60)
        accelrt.cpu.synchronize()
        print(opened.is_set())
    """
    assert output_of(code) == "True\n"


def test_a_poll_of_a_callable_runs_a_task() -> None:
    code = """
    import accelrt
    from accelrt import testing
    with testing.schedule(1):
        call = accelrt.Stream(device="cpu").launch_host(sum, [1, 2])
        polls = 0
        while not call.done() and polls < 1000:
            polls += 1
        print(call.done())
    """
    assert output_of(code) == "True\n"


def test_a_schedule_counts_what_it_runs_when_it_ends() -> None:
    code = """
    import accelrt
    from accelrt import testing
    with testing.schedule(1) as schedule:
        calls = [accelrt.Stream(device="cpu").launch_host(int) for _ in range(5)]
    print(schedule.num_steps, [call.done() for call in calls])
    """
    assert output_of(code) == f"5 {[True] * 5}\n"


def test_what_was_not_entered_ends_no_other() -> None:
    code = """
    import accelrt
    from accelrt import testing
    with testing.schedule(1) as schedule, testing.faults("fill:1") as planned:
        for other in testing.schedule(1), testing.faults("fill:1"):
            try:
                other.__exit__(None, None, None)
            except RuntimeError as error:
                print(error)
        accelrt.empty(100, device="cpu").fill_(1)
        try:
            accelrt.cpu.synchronize()
        except accelrt.StreamError:
            pass
    print(schedule.num_steps > 0, planned.num_failed)
    """
    said = "a schedule or plan was left that had not been entered\n"
    assert output_of(code) == f"{said}{said}True 1\n"


@pytest.mark.parametrize("value", ["17", "seed:x", "seed:1,strategy:best"])
def test_a_malformed_schedule_is_raised_by_the_first_call_that_needs_it(value: str) -> None:
    code = """
    import accelrt
    try:
        accelrt.Stream()
    except ValueError as error:
        print(error)
    """
    said = output_of(code, ACCELRT_CPU_SCHEDULE=value)
    assert said.startswith(f'ACCELRT_CPU_SCHEDULE="{value}" is not valid')
    assert "invert, starve or pct" in said


def explore(tmp_path: Path, program: str, *options: str) -> "tuple[int, list[str]]":
    script = tmp_path / "program.py"
    script.write_text(program)
    page = tmp_path / "page.html"
    ended = run("-m", "accelrt", "explore", "-o", str(page), *options, str(script))
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.parametrize("strategy", ["random", "pct"])
def test_explore_finds_the_first_seed_that_fails_and_repeats_it(
    tmp_path: Path, strategy: str
) -> None:
    status, lines = explore(tmp_path, WRONG, "--strategy", strategy)
    assert (status, lines[0].endswith("fails, exit status 1")) == (1, True)
    assert any("IndexError: list index out of range" in line for line in lines)
    page = (tmp_path / "page.html").read_text()
    assert "<html" in page
    seed = lines[0].split()[1]
    assert f"--seed {seed}" in next(line for line in lines if line.startswith("again: "))
    again = explore(tmp_path, WRONG, "--strategy", strategy, "--seed", seed)
    assert again == (status, lines)
    for earlier in range(int(seed)):
        options = ("--strategy", strategy, "--seed", str(earlier))
        assert explore(tmp_path, WRONG, *options)[0] == 0


def test_explore_runs_the_program_with_the_schedule_that_was_asked_for(tmp_path: Path) -> None:
    # Goal: pct gets its depth, and the number of the program's tasks as its steps. Method: a
    # program of five tasks that fails and says which schedule it has.
    code = """
import os, sys, accelrt
for _ in range(5):
    accelrt.Stream(device="cpu").launch_host(int).result()
sys.exit(os.environ["ACCELRT_CPU_SCHEDULE"])
"""
    options = ("--strategy", "pct", "--depth", "2", "--seed", "7")
    status, lines = explore(tmp_path, code, *options)
    assert (status, lines[0]) == (1, "seed 7 fails, exit status 1")
    assert lines[1] == "  seed:7,strategy:pct,depth:2,steps:5"
    assert lines[2].startswith(
        "again: python -m accelrt explore --strategy pct --depth 2 --seed 7 "
    )


def test_explore_says_when_no_seed_fails(tmp_path: Path) -> None:
    assert explore(tmp_path, RIGHT, "-n", "10") == (0, ["10 seeds, random: none fails"])
    assert not (tmp_path / "page.html").exists()


def test_a_run_without_an_end_fails(tmp_path: Path) -> None:
    status, lines = explore(tmp_path, "while True: pass", "-n", "1", "--timeout", "0.5")
    assert (status, lines[0]) == (1, "seed 0 fails, no end after 0.5 s")
    assert lines[-1].startswith("no timeline")


def test_a_run_that_a_signal_ends_has_its_number(tmp_path: Path) -> None:
    code = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
os.kill(os.getpid(), signal.SIGHUP)
"""
    status, lines = explore(tmp_path, code, "-n", "1")
    assert (status, lines[0]) == (1, "seed 0 fails, exit status -1")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("-n", "0"),
        ("-n", "-5"),
        ("--depth", "0"),
        ("--depth", "1001"),
        ("--seed", "-1"),
        ("--seed", str(1 << 64)),
        ("--timeout", "nan"),
        ("--timeout", "-1"),
        ("--timeout", "0"),
    ],
)
def test_explore_refuses_numbers_that_no_schedule_has(
    tmp_path: Path, option: str, value: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(RIGHT)
    ended = run("-m", "accelrt", "explore", f"{option}={value}", str(script))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"'{value}' is not a" in ended.stderr


def test_explore_refuses_what_is_no_file() -> None:
    ended = run("-m", "accelrt", "explore", "nosuch.py")
    assert (ended.returncode, ended.stderr) == (
        2,
        "accelrt explore: cannot read nosuch.py: no such file\n",
    )


def test_the_timeline_of_a_schedule_is_of_its_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    code = f"{SEEN}\nseen()"
    output_of(code, ACCELRT_CPU_SCHEDULE="seed:1,durations:7000", ACCELRT_PROFILE=str(file))
    events = json.loads(file.read_bytes())["traceEvents"]
    durations = [event["dur"] for event in events if event.get("cat") == "task"]
    assert len(durations) >= 24
    records = 0.001  # the shortest that a trace shows
    assert set(durations) <= {records, 7.0, 7.1, 7.2, 7.3, 7.4, 7.5, 7.6, 7.7, 7.8}


def test_durations_that_are_none_are_refused_with_what_is_allowed() -> None:
    code = """
from accelrt import testing
for given in (2.5, -1, (9, 5), (1, 2, 3), "5", True, {"copies": 5}, {"copy": 2.5}):
    try:
        testing.schedule(1, given)
    except ValueError as error:
        print(error)
testing.schedule(1, 5), testing.schedule(1, (5, 9)), testing.schedule(1, {"copy": 5, "any": 1})
"""
    wrong = ("2.5", "-1", "(9, 5)", "(1, 2, 3)", "'5'", "True")
    allowed = (
        "a whole number of nanoseconds from 0 on, a pair of them, the least and the most, and a "
        "dict of these by operation"
    )
    names = "any, call, launch, kernel, copy, fill, random, deferred"
    assert output_of(code).splitlines() == [
        *(f"durations is {given}; allowed are {allowed}" for given in wrong),
        f"durations has 'copies'; allowed are {names}",
        f"durations is 2.5; allowed are {allowed}",
    ]


def test_durations_by_operation_are_exact_and_the_same_as_in_the_variable() -> None:
    code = """
import ctypes, accelrt
stream, abs_ = accelrt.Stream(device="cpu"), ctypes.CDLL(None).abs
source, target = (accelrt.empty(1_000, device="cpu") for _ in range(2))
abs_.argtypes = (ctypes.c_int,)

def took(enqueue):
    start = stream.record_event(accelrt.Event(enable_timing=True))
    enqueue()
    end = stream.record_event(accelrt.Event(enable_timing=True))
    stream.synchronize()
    return round(start.elapsed_time(end) * 1e6)

def seen():
    with stream:
        print(took(lambda: source.fill_(1)), took(lambda: target.copy_(source, non_blocking=True)))
        print(took(lambda: stream.launch(abs_, 1)), took(lambda: stream.launch_host(sum, [1])))
"""
    durations = '{"any": 400, "copy": 7_000, "fill": (5_000, 5_000), "launch": 90}'
    inside = f"{code}\nfrom accelrt import testing\nwith testing.schedule(5, {durations}): seen()"
    assert output_of(inside) == "5100 7100\n90 400\n"
    setting = "seed:5,durations:400,durations.copy:7000,durations.fill:5000,durations.launch:90"
    assert output_of(f"{code}\nseen()", ACCELRT_CPU_SCHEDULE=setting) == "5100 7100\n90 400\n"


OF_UNITTEST = """
import accelrt, unittest

class Case(unittest.TestCase):
    def test_order(self):
        assert accelrt.Stream(device="cpu").launch_host(sum, [1, 2]).result() == 3
"""


def test_tests_of_unittest_run_once_beside_schedules(tmp_path: Path) -> None:
    file = tmp_path / "test_case.py"
    file.write_text(OF_UNITTEST)
    plain = "-m", "pytest", "-q", "-c", "/dev/null", str(file)
    ended = run(*plain, "--accelrt-schedules", "4")
    assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout
    refused = run(*plain, "--accelrt-schedules", "-1")
    assert refused.returncode != 0
    assert "must be at least 0, not -1" in refused.stderr


PLUGGED = """
import accelrt, pytest

def test_order():
{wrong}

def test_of_faults(accelrt_faults):
    planned = accelrt_faults("fill:1")
    accelrt.empty(1000, device="cpu").fill_(1)
    with pytest.raises(accelrt.StreamError):
        accelrt.cpu.synchronize()
"""


def test_the_plug_in_runs_each_test_under_schedules_and_has_faults(tmp_path: Path) -> None:
    def plugged(program: str, *options: str) -> "tuple[int, str]":
        file = tmp_path / "test_plugged.py"
        body = "\n".join(f"    {line}" for line in program.strip().splitlines())
        file.write_text(PLUGGED.format(wrong=body))
        ended = run("-m", "pytest", "-q", "-c", "/dev/null", *options, str(file))
        return ended.returncode, ended.stdout

    status, said = plugged(RIGHT)
    assert (status, "2 passed" in said) == (0, True), said
    status, said = plugged(RIGHT, "--accelrt-schedules", "20")
    assert (status, "40 passed" in said) == (0, True), said
    status, said = plugged(WRONG, "--accelrt-schedules", "20")
    assert status == 1, said
    failed = [line.split()[1] for line in said.splitlines() if line.startswith("FAILED")]
    assert 2 < len(failed) < 18
    assert all("::test_order[" in name for name in failed)
    name = failed[0].partition("::")[2]
    file = tmp_path / "test_plugged.py"
    options = ("-q", "-c", "/dev/null", "--accelrt-schedules", "20", f"{file}::{name}")
    ended = run("-m", "pytest", *options)
    assert ended.returncode == 1, ended.stdout
    assert "1 failed in" in ended.stdout


URGENT = """
import accelrt

def test_order(request):
    order = []
    for priority in -1, 0:
        stream = accelrt.Stream(device="cpu", priority=priority)
        for _ in range(9):
            stream.launch_host(order.append, priority)
    accelrt.cpu.synchronize()
    assert "[invert-" not in request.node.name or order == [0] * 9 + [-1] * 9
"""


def test_the_plug_in_has_the_strategies_that_its_names_say(tmp_path: Path) -> None:
    file = tmp_path / "test_urgent.py"
    file.write_text(URGENT)
    ended = run("-m", "pytest", "-v", "-c", "/dev/null", "--accelrt-schedules", "8", str(file))
    assert ended.returncode == 0, ended.stdout
    for name in "random-0", "pct-1", "starve-2", "invert-3", "invert-7":
        assert f"test_order[{name}] PASSED" in ended.stdout


UNORDERED = """
import accelrt, pytest

def fills():
    buffer = accelrt.zeros(8)  # filled on the default stream
    other = accelrt.Stream()
    with other:
        buffer.fill_(1)  # which this one does not wait for
    accelrt.accelerator.synchronize()

def test_order():
    fills()

@pytest.mark.accelrt_unordered
def test_on_purpose():
    fills()

def test_failure():
    assert not accelrt.zeros(8)

def test_right():
    accelrt.zeros(8).fill_(1)
"""


def test_the_plug_in_fails_tests_whose_uses_nothing_orders(tmp_path: Path) -> None:
    file = tmp_path / "test_plugged.py"
    file.write_text(UNORDERED)
    plugged = ("-m", "pytest", "-q", "-c", "/dev/null", "--strict-markers", str(file))
    unwatched = run(*plugged)
    assert "1 failed, 3 passed" in unwatched.stdout
    watched = run(*plugged, "--accelrt-sanitize")
    assert "2 failed, 2 passed" in watched.stdout
    assert "race: a buffer of 8 bytes" in watched.stdout
    assert "::test_order" in watched.stdout
    assert "assert not" in watched.stdout


OF_FIXTURES = """
import accelrt, pytest

def fills(buffer):
    with accelrt.Stream():
        buffer.fill_(1)
    accelrt.accelerator.synchronize()

@pytest.fixture
def buffer():
    return accelrt.zeros(8)  # filled on the default stream

@pytest.fixture
def used_again():
    yield
    fills(accelrt.zeros(8))

def test_of_a_fixture(buffer):
    fills(buffer)

def test_then(used_again):
    pass

def test_failure(buffer):
    fills(buffer)
    assert not buffer

@pytest.mark.accelrt_unordered
def test_on_purpose(buffer, used_again):
    fills(buffer)
"""


def test_the_plug_in_watches_fixtures_and_shows_what_is_found_beside_a_failure(
    tmp_path: Path,
) -> None:
    file = tmp_path / "test_plugged.py"
    file.write_text(OF_FIXTURES)
    plugged = ("-m", "pytest", "-q", "-rN", "-c", "/dev/null", "--strict-markers", str(file))
    watched = run(*plugged, "--accelrt-sanitize")
    assert "2 failed, 2 passed, 1 error" in watched.stdout
    assert watched.stdout.count("race: a buffer of 8 bytes") == 3
    assert "ERROR at teardown of test_then" in watched.stdout
    assert "accelrt sanitizer" in watched.stdout
    assert "assert not" in watched.stdout


def test_the_programs_of_the_documentation_fail_as_it_says(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "testing_your_code.md"
    program, *_, careless = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    status, lines = explore(tmp_path, program)
    assert (status, lines[0]) == (1, "seed 0 fails, exit status 1")
    line = "    if number > 0:  # mistake: the first copy waits for nothing\n"
    right = program.replace(line, "").replace("        compute.wait", "    compute.wait")
    for text, findings in ((program, 1), (right, 0)):
        file = tmp_path / "batches.py"
        file.write_text(text)
        ended = run("-m", "accelrt", "sanitize", str(file))
        assert ("fix:" in ended.stderr, ended.stderr.count("race: ")) == (findings > 0, findings)
    assert explore(tmp_path, right, "-n", "30") == (0, ["30 seeds, random: none fails"])
    code = f"import accelrt\nfrom accelrt import testing\n{careless}\ntesting.each_fault(program)"
    ended = run("-c", code)
    assert ended.returncode == 1
    assert "AssertionError" in ended.stderr
    assert "with the fault any:" in ended.stderr
