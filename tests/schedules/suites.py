"""Run the suites of engine, buffers, order and allocator under schedules, one after the other.

Each runtime on cpu that a test makes follows the schedule (`tests/common/scheduled.rs`), so the
threads that wait run its tasks in the order of the seed. Left out is what `unscheduled.toml` names,
with the reason. A test in which no two streams are ever runnable at once has the one order that it
has without a schedule: how many made a choice is printed, and a suite must have some.

    suites.py [SCHEDULE...]

SCHEDULEs are texts as ACCELRT_CPU_SCHEDULE has them; without one there is a random and a pct one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITES = ("engine", "buffer", "order", "allocator")
SCHEDULES = ("seed:1", "seed:2,strategy:pct")
FEATURES = os.environ.get("TEST_FEATURES", "async")
# Of each random test; `make test` runs more of them without a schedule.
PROGRAMS = "100"
# Names a test that hangs, and prints all stacks.
WATCHDOG = HERE.parent / "watchdog" / "watch.py"
# Far above what a suite takes; hangs end earlier, by the watchdog.
LIMIT_SECONDS = 600


def binaries() -> dict[str, str]:
    """Build the suites; return their files."""
    targets = [word for suite in SUITES for word in ("--test", suite)]
    command = [os.environ.get("CARGO", "cargo"), "test", "--no-run", "--features", FEATURES]
    built = subprocess.run(  # noqa: S603  a command of this file
        [*command, *targets, "--message-format=json"], check=True, stdout=subprocess.PIPE, text=True
    )
    messages = map(json.loads, built.stdout.splitlines())
    return {it["target"]["name"]: it["executable"] for it in messages if it.get("executable")}


def tests(binary: str, *options: str) -> list[str]:
    """Return the names of the tests of a suite."""
    listed = subprocess.run(  # noqa: S603  what was built
        [binary, "--list", *options], check=True, capture_output=True, text=True
    )
    lines = listed.stdout.splitlines()
    return [line.removesuffix(": test") for line in lines if line.endswith(": test")]


def choose(files: dict[str, str]) -> dict[str, list[str]]:
    """Return which tests of each suite run; end when the table has a name that no test has."""
    table = tomllib.loads((HERE / "unscheduled.toml").read_text())
    left_out = {name for group in table["group"] for name in group["tests"]}
    used, chosen = set(), {}
    for suite, binary in files.items():
        ignored = set(tests(binary, "--ignored"))
        chosen[suite] = []
        for test in sorted(set(tests(binary)) - ignored):
            whole = f"{suite}::{test}"
            names = {whole, whole[: whole.rindex("::") + 2]} & left_out
            used |= names
            if not names:
                chosen[suite].append(test)
    if unknown := sorted(left_out - used):
        sys.exit(f"unscheduled.toml names what is no test: {', '.join(unknown)}")
    return chosen


def choosing(names: list[str], choices: Path) -> set[str]:
    """Return the tests that had a choice, by the lines of `tests/common/scheduled.rs`."""
    lines = choices.read_text().splitlines() if choices.exists() else []
    return {name for name, _, count in (it.partition(" ") for it in lines) if int(count)} & {*names}


def run(suite: str, binary: str, names: list[str], schedule: str) -> str | None:
    """Run the tests under a schedule; return what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        return run_with(suite, binary, names, schedule, Path(folder) / "choices")


def run_with(suite: str, binary: str, names: list[str], schedule: str, choices: Path) -> str | None:
    """Run the tests, which write their numbers of choices; return what is wrong."""
    settings = {"ACCELRT_TEST_SCHEDULE": schedule, "ACCELRT_TEST_PROGRAMS": PROGRAMS}
    settings["ACCELRT_TEST_CHOICES"] = str(choices)
    started = time.monotonic()
    command = [sys.executable, str(WATCHDOG), binary, "--exact", "--test-threads=1", *names]
    try:
        ended = subprocess.run(  # noqa: S603  what was built
            command,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as hang:
        return f"{suite} hangs under {schedule}:\n{(hang.stdout or b'').decode()[-1000:]}"
    if ended.returncode != 0 or f"{len(names)} passed" not in ended.stdout:
        output = (ended.stdout + ended.stderr)[-6000:]
        return f"{suite} fails under ACCELRT_TEST_SCHEDULE={schedule}:\n{output}"
    seconds, num_choosing = time.monotonic() - started, len(choosing(names, choices))
    what = f"{len(names)} tests, {num_choosing} of them made a choice"
    print(f"{schedule}: {suite}: {what}, {seconds:.0f} s", flush=True)
    if not num_choosing:
        return f"{suite} makes no choice under {schedule}, so it shows nothing"
    return None


def main(schedules: list[str]) -> int:
    """Do what the head of this file says; the process's status."""
    files = binaries()
    chosen = choose(files)
    jobs = [(suite, files[suite], chosen[suite], it) for it in schedules for suite in SUITES]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        wrong = [text for text in pool.map(lambda job: run(*job), jobs) if text]
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(SCHEDULES)))
