"""Profiles: the trace of many tasks exported, made into a page, and the page opened (V3).

The page is opened by a headless Chromium, which ends when it has shown it; an empty document is
opened as well, and the figure is the difference.
"""

import ctypes
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import accelrt
from accelrt import profiler
from accelrt.cli.bench.measurement import Measurement
from accelrt.cli.view import page, sources

#: Each has a record and a slice of its enqueue, and one of its run: a million.
_TASKS: Final = 500_000
_REPETITIONS: Final = 3
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_LIMIT_S: Final = 120
_BUDGET_MS: Final = 10_000
_EMPTY: Final = "<!doctype html><title>empty</title>"


def measure() -> Iterator[Measurement]:
    """Yield the rows."""
    recorded = _profile()
    with tempfile.TemporaryDirectory() as folder:
        trace, opened = Path(folder, "trace.json"), Path(folder, "page.html")
        yield _row("V3", lambda: recorded.export_chrome_trace(trace))

        def make_page() -> None:
            page.write(opened, trace.name, sources.read(trace, None))

        yield _row("V3.page", make_page, repetitions=1)
        browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
        if browser is None:
            yield Measurement("V3.open", reason="needs Chromium, which `make peers` installs")
            return
        empty = Path(folder, "empty.html")
        empty.write_text(_EMPTY, encoding="ascii")
        seconds = [
            _open(browser, opened, "<canvas") - _open(browser, empty, "<title>")
            for _ in range(_REPETITIONS)
        ]
        yield Measurement("V3.open", statistics.median(seconds), min(seconds))


def _profile() -> profiler.profile:
    stream, function = accelrt.Stream("cpu"), ctypes.CDLL(None).abs
    with profiler.profile() as recorded:
        for _ in range(_TASKS):
            stream.launch(function, 1)
        stream.synchronize()
    return recorded


def _row(name: str, act: Callable[[], None], repetitions: int = _REPETITIONS) -> Measurement:
    seconds = [_seconds(act) for _ in range(repetitions)]
    return Measurement(name, statistics.median(seconds), min(seconds))


def _seconds(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _open(browser: str, document: Path, mark: str) -> float:
    """Return the seconds from a browser's start to its end, when a document shows a mark."""
    with tempfile.TemporaryDirectory() as settings:
        command = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            # The document is shown when its scripts have nothing left to do, which takes no time of
            # this clock: without it, as soon as it is loaded.
            f"--virtual-time-budget={_BUDGET_MS}",
            *(f"--user-data-dir={settings}", "--dump-dom", document.as_uri()),
        ]

        started = time.perf_counter()
        shown = subprocess.run(  # noqa: S603  the browser of this machine
            command, check=True, capture_output=True, timeout=_LIMIT_S
        )
        seconds = time.perf_counter() - started
    if mark.encode() not in shown.stdout:
        message = f"{browser} shows no {mark} in {document.name}"
        raise RuntimeError(message)
    return seconds
