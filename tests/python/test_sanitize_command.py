"""`python -m accelrt sanitize` beside the interpreter: how scripts end, and who reports.

Method: scripts that end in each way, with or without a use that nothing orders.
"""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelrt import sanitizer

RACE = """
def race():
    import accelrt
    buffer = accelrt.zeros(8)  # filled on the default stream
    with accelrt.Stream():
        buffer.fill_(1)  # which this one does not wait for
    accelrt.accelerator.synchronize()
"""

OF_A_THREAD = """
import sys, threading
begun = threading.Event()

def late():
    begun.wait()
    race()

threading.Thread(target=late).start()
begun_in_turn = threading.Thread(target=begun.set)
threading.Timer(0, begun_in_turn.start).start()
"""

OF_AN_EXECUTOR = """
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(1).submit(race)  # which nobody shuts down
"""

OF_A_CHILD = """
import os, sys
race()
if os.fork() == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def sanitize(folder: Path, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    file = folder / "script.py"
    file.write_text(RACE + script)
    command = [sys.executable, "-m", "accelrt", "sanitize", *options, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def test_threads_that_a_script_leaves_are_watched_until_they_end(tmp_path: Path) -> None:
    for script in OF_A_THREAD, OF_AN_EXECUTOR:
        ended = sanitize(tmp_path, script)
        assert (ended.returncode, ended.stderr.count("race: ")) == (1, 1), ended.stderr


def test_a_forked_child_writes_no_report(tmp_path: Path) -> None:
    report = tmp_path / "out.json"
    ended = sanitize(tmp_path, OF_A_CHILD, "--report", str(report))
    assert (ended.returncode, ended.stdout) == (1, "3\n")
    assert ended.stderr.count("accelrt sanitize: ") == 1
    assert len(json.loads(report.read_text())["findings"]) == 1


def test_a_report_lies_where_it_was_named_and_has_lines_of_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file, report = tmp_path / "script.py", tmp_path / "out.html"
    script = f"# coding: latin-1\nimport os; os.chdir('folder'){RACE}race()"
    file.write_bytes(script.replace("not wait for", "not wait f\xfcr").encode("latin-1"))
    command = [sys.executable, "-m", "accelrt", "sanitize", "--report", "out.html", str(file)]
    ended = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)  # noqa: S603
    assert ended.returncode == 1
    assert "<pre>buffer.fill_(1)  # which this one does not wait f\xfcr</pre>" in report.read_text()


def test_a_file_whose_name_is_no_text_has_its_line(tmp_path: Path) -> None:
    code = "\nwith accelrt.Stream():\n    buffer.fill_(1)"
    script = f"""
import accelrt
exec(compile("buffer = accelrt.zeros(8)", "\\udcff.py", "exec"), globals())
exec(compile({code!r}, "\\udcff.py", "exec"), globals())
accelrt.accelerator.synchronize()
"""
    ended = sanitize(tmp_path, script)
    assert ended.returncode == 1
    assert re.search("made at [^a-z]*[.]py:1\n", ended.stderr)
    assert re.search(" at [^a-z]*[.]py:3, thread MainThread\n", ended.stderr)


def test_what_a_script_exits_with_is_shown_as_the_interpreter_shows_it(tmp_path: Path) -> None:
    ended = sanitize(tmp_path, "raise SystemExit({'a': 1})")
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (1, "{'a': 1}")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("1 / 0", 1),
        ("raise GeneratorExit", 1),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no data')", 1),
        ("race()\nraise SystemExit(3)", 1),
        ("race()", 1),
        ("raise SystemExit(0)", 0),
        ("", 0),
    ],
)
def test_sanitize_names_a_failed_script(tmp_path: Path, script: str, status: int) -> None:
    ended = sanitize(tmp_path, script)
    lines = [it for it in ended.stderr.splitlines() if it.startswith("accelrt sanitize: ")]
    own = next((number for number in (1, 3) if f"({number})" in script), 1)
    failed = f"accelrt sanitize: {tmp_path / 'script.py'} failed with exit status {own}"
    found = "1 finding" if "race" in script else "nothing found"
    has_failed = script not in {"race()", "raise SystemExit(0)", ""}
    assert lines == [*[failed] * has_failed, f"accelrt sanitize: {found}"]
    assert ended.returncode == status


def test_an_interrupted_script_has_its_report(tmp_path: Path) -> None:
    ended = sanitize(tmp_path, "race()\nraise KeyboardInterrupt")
    assert (ended.returncode, ended.stderr.count("race: ")) == (1, 1)
    ended = sanitize(tmp_path, "raise KeyboardInterrupt")
    assert (ended.returncode, "nothing found" in ended.stderr) == (130, True)


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("raise SystemExit('no data\\nat all')", 1, "at all"),
        ("race()\nraise ValueError('two\\nlines <b>')", 1, "lines <b>"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("1 +", 1, "SyntaxError: invalid syntax"),
    ],
)
def test_report_contains_the_failure(
    tmp_path: Path, script: str, status: int, error: str | None
) -> None:
    report, page = tmp_path / "out.json", tmp_path / "out.html"
    sanitize(tmp_path, script, "--report", str(report))
    kept = json.loads(report.read_text())
    assert kept["script"] == {"exit_status": status, "error": error}
    assert len(kept["findings"]) == script.count("race()")
    sanitize(tmp_path, script, "--report", str(page))
    failure = f"<p>The script failed with exit status {status}"
    failure += f": {html.escape(error)}</p>" if error else "</p>"
    assert (failure in page.read_text()) == (status != 0)


@pytest.mark.parametrize("pattern", ["race.py:x", "race.py:", ":12", "", "race.py:1:x"])
def test_malformed_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    ended = sanitize(tmp_path, "print('run')", "--suppress", "vendor/*", "--suppress", pattern)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        f"accelrt sanitize: --suppress {pattern!r} is not a place: expected FILE"
    )
    with pytest.raises(ValueError, match="is not a place"), sanitizer.watch(suppress=[pattern]):
        pass


@pytest.mark.parametrize("pattern", ["script.py:4", "*:[0-9]", "script.py", "*/script.py:?", "*"])
def test_wellformed_pattern_is_accepted(tmp_path: Path, pattern: str) -> None:
    ended = sanitize(tmp_path, "race()", "--suppress", pattern)
    assert (ended.returncode, ended.stderr) == (0, "accelrt sanitize: nothing found\n")


def test_options_after_the_script_are_its_own(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("import sys; print(sys.argv[1:])")
    command = [sys.executable, "-m", "accelrt", "sanitize", str(file), "a", "--report", "x", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "['a', '--report', 'x', '-v']\n"
    assert not (tmp_path / "x").exists()


def test_relative_script_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("print('found')\n")
    (tmp_path / "main.py").write_text(
        "import os\nos.chdir('/')\nimport neighbour\nprint(os.path.isabs(__file__))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "accelrt", "sanitize", "main.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "found\nTrue\n"), ended.stderr
