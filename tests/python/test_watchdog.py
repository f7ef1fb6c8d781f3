"""The watchdog of Rust tests (`tests/watchdog`), on binaries that it is made for.

The binaries are compiled here: one has a test that hangs in a thread of its own.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from watch import Limits, Running

ROOT = Path(__file__).resolve().parents[2]
WATCHDOG = ROOT / "tests" / "watchdog"
SOURCE = """
use std::{thread, time::Duration};

#[inline(never)]
fn never_ends() { loop { thread::sleep(Duration::from_secs(1)) } }

#[test]
fn passes() { thread::sleep(Duration::from_millis(300)) }

#[test]
fn fails() { panic!("on purpose") }

#[test]
#[ignore]
fn hangs() { thread::spawn(never_ends).join().unwrap() }

#[test]
#[ignore]
fn hangs_in_a_child() {
    std::process::Command::new("/bin/sleep").arg("1000").status().unwrap();
}

#[test]
#[ignore]
fn hangs_at_exit() {
    unsafe extern "C" { fn atexit(f: extern "C" fn()) -> i32; }
    extern "C" fn hang() { never_ends() }
    unsafe { atexit(hang) };
}

#[test]
#[ignore]
fn aborts() { std::process::abort() }
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the tests, under the name that cargo gives to a binary."""
    folder = tmp_path_factory.mktemp("watched")
    source, binary = folder / "watched.rs", folder / "watched-0123456789abcdef"
    source.write_text(SOURCE)
    command = ["rustc", "--edition=2024", "--test", "-g", str(source), "-o", str(binary)]
    subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603  the compiler of the module
    return binary


# Without gdb, which takes seconds.
NO_GDB = f"{Path(sys.executable).parent}:/nowhere"


def watch(
    binary: Path, *arguments: str, path: str = NO_GDB, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run tests of the binary under the watchdog, one thread at a time."""
    settings["PATH"] = path
    return subprocess.run(  # noqa: S603  the watchdog
        [sys.executable, WATCHDOG / "watch.py", binary, "--test-threads=1", *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_watchdog_passes_output_and_status_on(binary: Path) -> None:
    """A test that ends in time changes nothing."""
    ended = watch(binary, "passes")
    assert ended.returncode == 0, ended.stderr
    assert "test passes ... ok" in ended.stdout
    assert "1 passed; 0 failed" in ended.stdout
    ended = watch(binary, "fails")
    assert ended.returncode == 101
    assert "on purpose" in ended.stdout


def test_watchdog_reports_an_abort(binary: Path) -> None:
    """A signal becomes a status, as of a shell."""
    ended = watch(binary, "--ignored", "aborts")
    assert ended.returncode == 128 + 6
    assert "ended by SIGABRT" in ended.stderr


def test_watchdog_shows_stacks_of_a_hang(binary: Path) -> None:
    """The name of the test and the stacks of all threads are printed, and the run fails."""
    path = os.environ["PATH"]
    ended = watch(binary, "--ignored", "--exact", "hangs", HANG_TEST_S="1", path=path)
    assert ended.returncode == 124
    assert "watched::hangs hangs: it runs for 1 s, the limit is 1 s" in ended.stderr
    if shutil.which("gdb"):
        assert ended.stderr.count("\nThread ") == 3
        assert "watched::never_ends" in ended.stderr


def test_watchdog_without_gdb_asks_the_kernel(binary: Path) -> None:
    """Names, states and system calls of the threads are there without a debugger."""
    ended = watch(binary, "--ignored", "--exact", "hangs", HANG_TEST_S="2")
    assert ended.returncode == 124
    assert "install gdb" in ended.stderr
    threads = re.findall(r"^\d+ '.+': [A-Z] \(\w+", ended.stderr, re.MULTILINE)
    assert len(threads) == 3, ended.stderr


def test_watchdog_ends_the_children_of_a_hang(binary: Path) -> None:
    """What the test has started ends with it."""
    ended = watch(binary, "--ignored", "hangs_in_a_child", HANG_TEST_S="1")
    assert ended.returncode == 124
    processes = re.findall(r"the threads of process (\d+)", ended.stderr)
    assert len(processes) == 2
    assert not any(is_alive(it) for it in processes)


def is_alive(process: str) -> bool:
    """Whether a process runs: one that ended may still wait for its parent to notice."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_watchdog_sees_a_hang_after_the_last_test(binary: Path) -> None:
    """The end of the process is watched too."""
    ended = watch(binary, "--ignored", "hangs_at_exit", HANG_TEST_S="1")
    assert ended.returncode == 124
    assert "watched does not end after its last test" in ended.stderr


def test_watchdog_limits_the_whole_binary(binary: Path) -> None:
    """Without names of tests the limit of the binary is left."""
    ended = watch(binary, "--quiet", "--ignored", "--exact", "hangs", HANG_TEST_S="1", HANG_S="2")
    assert ended.returncode == 124
    assert "watched does not end within 2 s" in ended.stderr


def test_watchdog_follows_parallel_tests(tmp_path: Path) -> None:
    """With several threads libtest names a test after a minute, and again when it has ended."""
    running = Running()
    longer = tmp_path / "longer.toml"
    longer.write_text('[[test]]\nname = "suite::b"\nminutes = 10')
    limits = Limits("suite", longer)
    running.read("\nrunning 3 tests\ntest fast ... ok\ntest a has been running for over 60 sec")
    running.read("onds\ntest b has been running for over 60 seconds\n")
    running.read("test odd has been running for over 60 seconds\n")
    assert sorted(running.seconds) == ["a", "b", "odd"]
    running.read("test odd - should panic ... ok\n")
    running.add(59)
    assert limits.hanging(running) == []
    running.add(1)
    assert limits.hanging(running) == ["suite::a hangs: it runs for 120 s, the limit is 120 s"]
    running.read("test a ... FAILED\n")
    running.add(479)
    assert limits.hanging(running) == []
    running.add(1)
    assert limits.hanging(running) == ["suite::b hangs: it runs for 600 s, the limit is 600 s"]
    running.read("test b ... ok\n\nfailures:\n\ntest result: FAILED. 2 passed; 1 failed\n")
    assert running.is_over
    assert not running.seconds


def test_watchdog_follows_one_test_at_a_time() -> None:
    """With one thread a name is printed first; the output of a test may follow on its line."""
    running = Running()
    running.read("test a ... ")
    running.add(5)
    running.read("ok\ntest b ... repeat with SEED=1\n")
    running.add(7)
    assert running.seconds == {"b": 7}
    running.read("more\nok\ntest c - should panic ... ")
    running.add(1)
    assert running.seconds == {"c": 1}
    running.read("ok\ntest src/lib.rs - f (line 3) ... ")
    assert running.seconds == {"src/lib.rs - f (line 3)": 0}


def test_longer_tests_exist() -> None:
    """Each name of the table is a test's."""
    table = tomllib.loads((WATCHDOG / "longer.toml").read_text())["test"]
    for name in (it["name"].rpartition("::")[2] for it in table):
        sources = [*(ROOT / "tests").rglob("*.rs"), *(ROOT / "src").rglob("*.rs")]
        assert any(f"fn {name}(" in it.read_text() for it in sources), name
