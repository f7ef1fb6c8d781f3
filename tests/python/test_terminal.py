"""Goal: commands have colours and bars at a terminal, and are plain text everywhere else.

Method: each runs with its output on a pseudo-terminal and in a pipe; without its colours the one is
the other.
"""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelrt import cli
from accelrt.cli import bench, terminal
from accelrt.cli.bench import idle
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.terminal import Style
from processes import LIMIT_SECONDS, run

OWN = Path(__file__).parents[2] / "tests/data/own_gpt_fixed.ops.csv"
ESCAPES = re.compile("\x1b\\[[0-9;]*m")


def on_terminal(*arguments: str, **settings: str) -> str:
    """Return what a command writes to a terminal as its standard output."""
    master, slave = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ACCELRT_")}
    environment = plain | {"TERM": "xterm-256color"} | settings
    with subprocess.Popen(  # noqa: S603  the interpreter of this test
        [sys.executable, "-m", "accelrt", *arguments],
        env=environment,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(master)
        assert process.wait(LIMIT_SECONDS) in {0, 1}
    return shown.decode().replace("\r\n", "\n")


def without_numbers(text: str) -> str:
    """Return a text in which times and free memory are left out, and what they align."""
    return re.sub(r"[\d.]+|\s+", " ", text)


@pytest.mark.parametrize("command", [["info"], ["replay", str(OWN), "--capacity", "90M"]])
def test_colours_are_all_that_a_terminal_gets_more(command: list[str]) -> None:
    shown, piped = on_terminal(*command), run("-m", "accelrt", *command).stdout
    assert ESCAPES.search(shown)
    assert "\x1b" not in piped
    assert without_numbers(ESCAPES.sub("", shown)) == without_numbers(piped)


def test_a_demo_at_a_terminal_tells_its_stages_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 18))
    shown = on_terminal("demo", str(path), "--chunk", "16K")
    rows = [line for line in shown.splitlines() if line.endswith("|")]
    codes = {(re.findall("\x1b\\[(\\d+)m", row) or [""])[0] for row in rows}
    assert codes == {"", "34", "35", "36"}
    assert "\x1b" not in run("-m", "accelrt", "demo", str(path)).stdout


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(setting: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal("info", **setting)
    assert ESCAPES.search(on_terminal("info", NO_COLOR=""))  # empty is not set


def test_bench_has_a_bar_at_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(idle, "measure", lambda: iter([Measurement("Q7", ours=3.0, ours_min=2.0)]))
    monkeypatch.setattr(bench.launches, "measure", lambda: iter([]))
    assert bench.run(None, tmp_path, "Q7", patience_s=0) == 0
    assert capsys.readouterr().err.startswith("accelrt bench: Q7 (1 of ")
    monkeypatch.setattr(terminal, "shows_progress", lambda: True)
    assert bench.run(None, tmp_path, "Q7", patience_s=0) == 0
    shown = capsys.readouterr()
    assert "accelrt bench" not in shown.err
    assert re.fullmatch(r"\r\x1b\[K\rbench 1/\d+ \[[#.]{40}\] Q7\r\x1b\[K", shown.err)
    assert "\x1b" not in shown.out


def test_no_stream_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    terminal.bar("nothing", 0.5)
    terminal.wipe()
    assert Style.of(None).bad("text") == "text"
    assert cli.main(["info"]) == 0
