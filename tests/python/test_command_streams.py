"""Goal: commands write any text to any standard output, and leave a script's streams alone.

Method: names that ASCII and UTF-8 cannot encode, with outputs of these encodings; scripts that
remove what a command uses afterwards.
"""

import json
import sys
from pathlib import Path

import pytest

from processes import run

# The second character is that of a byte in a file's name which is not UTF-8.
NAME = "\u00e9\udcff"
ESCAPED = {"ascii": r"\xe9\udcff", "utf-8:strict": "\u00e9" + r"\udcff"}
ENCODINGS = pytest.mark.parametrize("encoding", ESCAPED)
PROFILE = {
    "traceEvents": [
        {"ph": "X", "pid": NAME, "tid": "\ud800", "ts": 1, "dur": 2, "name": "\ud800"},
        {"ph": "X", "pid": 1, "tid": 1, "ts": "\ud800"},
    ]
}
VERBOSE = "onednn_verbose,exec,cpu,matmul,\u00e9,64x64,2\nMKL_VERBOSE \u00e9(1,2) 1.98ms CNR:OFF\n"
TABLE = Path(__file__).parents[2] / "tests/data/own_gpt_fixed.ops.csv"
RACE = """
import accelrt
buffer = accelrt.zeros(8)  # filled on the default stream
with accelrt.Stream():
    buffer.fill_(1)  # which this one does not wait for
accelrt.accelerator.synchronize()
"""


def written(folder: Path, ending: str, content: str) -> Path:
    path = folder / f"{NAME}{ending}"
    path.write_text(content)
    return path


@ENCODINGS
def test_view_escapes_its_names(tmp_path: Path, encoding: str) -> None:
    file = written(tmp_path, ".json", json.dumps(PROFILE))
    page = tmp_path / "page.html"
    ended = run("-m", "accelrt", "view", str(file), "-o", str(page), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"1 slice of {ESCAPED[encoding]}.json" in ended.stdout
    assert r"traceEvents[1]['ts'] is \ud800" in ended.stdout
    assert "\u00e9" + r"\udcff.json" in page.read_text("utf-8")


@ENCODINGS
def test_replay_escapes_its_names(tmp_path: Path, encoding: str) -> None:
    file = written(tmp_path, ".ops.csv", TABLE.read_text())
    ended = run("-m", "accelrt", "replay", str(file), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{ESCAPED[encoding]}.ops.csv" in ended.stdout
    ended = run("-m", "accelrt", "replay", "--help", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")


@ENCODINGS
def test_verbose_escapes_its_names(tmp_path: Path, encoding: str) -> None:
    file = written(tmp_path, ".log", VERBOSE)
    ended = run("-m", "accelrt", "verbose", str(file), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (r"\xe9" if encoding == "ascii" else "\u00e9") in ended.stdout


@ENCODINGS
def test_explore_escapes_its_names(tmp_path: Path, encoding: str) -> None:
    script = written(tmp_path, ".py", "raise SystemExit('caf\u00e9')")
    ended = run("-m", "accelrt", "explore", str(script), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "  caf" in ended.stdout
    assert f"{ESCAPED[encoding]}.py" in ended.stdout


@ENCODINGS
def test_demo_escapes_its_names(tmp_path: Path, encoding: str) -> None:
    file = written(tmp_path, "", "content" * 1000)
    ended = run("-m", "accelrt", "demo", str(file), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{ESCAPED[encoding]}: 7000 bytes" in ended.stdout


def test_sanitize_keeps_the_streams_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; print(sys.stdout.errors, sys.stdout.encoding, sys.stderr.errors)"
    )
    for encoding in "ascii:strict", "utf-8:surrogateescape":
        plain = run(str(script), PYTHONIOENCODING=encoding)
        watched = run("-m", "accelrt", "sanitize", str(script), PYTHONIOENCODING=encoding)
        assert watched.stdout == plain.stdout
        assert watched.stderr == "accelrt sanitize: nothing found\n"


REMOVALS = (
    "sys.path.clear(); sys.argv.clear()",
    "sys.path = sys.argv = None",
    "sys.argv.pop(0); del sys.modules['__main__']",
    "sys.stdout.detach()",
    "sys.stderr.detach()",
    "sys.stdout.close(); sys.stderr = io.StringIO()",
    "sys.stdout = sys.stderr = None",
    "sys.stderr = io.TextIOWrapper(sys.stderr.detach(), encoding='ascii')",
)


@pytest.mark.parametrize("removal", REMOVALS)
def test_what_a_script_removes_is_not_missed(tmp_path: Path, removal: str) -> None:
    script = tmp_path / f"{NAME}.py"
    script.write_text(f"import io, sys\n{RACE}\n{removal}\n")
    ended = run("-m", "accelrt", "sanitize", str(script))
    assert ended.returncode == 1
    # Without a standard error there is no place for the report.
    if "sys.stderr.detach()" not in removal or "wrapper" in removal.lower():
        assert ended.stderr.startswith("accelrt sanitize: 1 finding\nrace: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_script_ends_with_its_own_status(tmp_path: Path, removal: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import io, sys\n{removal}\nsys.exit(3)\n")
    ended = run("-m", "accelrt", "sanitize", str(script))
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr


def test_a_traceback_has_the_frames_of_the_script_only(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def fails():\n    1 / 0\n\nfails()\n")
    ended = run("-m", "accelrt", "sanitize", str(script))
    plain = run(str(script))
    assert ended.stderr.startswith(plain.stderr)
    assert ended.stderr.count("File ") == 2


def test_an_unreadable_script_is_one_line(tmp_path: Path) -> None:
    for command in "sanitize", "explore":
        ended = run("-m", "accelrt", command, str(tmp_path))
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"accelrt {command}: ")
        assert str(tmp_path) in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_closed_standard_input_is_one_line() -> None:
    code = "import os, sys; os.close(0); os.execv(sys.executable, sys.argv[1:])"
    ended = run("-c", code, sys.executable, "-m", "accelrt", "verbose", "-")
    expected = "accelrt verbose: cannot read the standard input: Bad file descriptor\n"
    assert (ended.returncode, ended.stderr) == (2, expected)
