"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library.

Messages are JSON, each ended by a zero byte, on the descriptors 3 and 4 of the browser.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATH = shutil.which("chromium") or shutil.which("chromium-browser")
# A limit for hangs; a page of a million records opens in seconds.
_LIMIT_SECONDS = 120


# Gives the browser its pipe where it looks for it, and becomes the browser.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are none of those that the browser expects."""
    ends = os.pipe()
    reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return reading, writing


class Browser:
    """A browser with one page; a page that throws an error fails the next call."""

    def __init__(self, profile: Path, *, width: int = 1400, height: int = 1000) -> None:
        """Start it, with a window of this size and settings below `profile`."""
        assert PATH is not None, "make peers installs chromium"
        (commands, self._commands), (self._answers, answers) = _pipe(), _pipe()
        options = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-extensions", "--remote-debugging-pipe"),
            *(f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"),
        ]
        # A group of its own: its helpers end with it.
        self._process = subprocess.Popen(  # noqa: S603  Debian's browser
            [sys.executable, "-c", _START, str(commands), str(answers), PATH, *options],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._rest, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        """The addresses that pages asked for, beside the page itself."""
        self._errors: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(it["targetId"] for it in targets if it["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and its helpers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _LIMIT_SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(until - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self._errors.append(details.get("exception", {}).get("description", details["text"]))
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])

    def open(self, path: Path, scheme: str = "light") -> float:
        """Open a page; return after how many seconds it said that everything is drawn."""
        self.requests.clear()
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        started = time.monotonic()
        self.call("Page.navigate", url=path.absolute().as_uri())
        self.evaluate(
            """new Promise((resolve) => {
                const look = () => {
                    const state = document.documentElement?.dataset.state;
                    if (location.protocol === "file:" && state) resolve(state);
                    else setTimeout(look, 5);
                };
                look();
            })"""
        )
        return time.monotonic() - started

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; waits for a promise."""
        while True:
            answer = self.call(
                "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
            )
            details = answer.get("exceptionDetails")
            # The page before was still there.
            if details is None or "context was destroyed" not in str(details):
                break
        assert details is None, details
        assert not self._errors, self._errors
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame("
            "() => setTimeout(done, 200))))"
        )

    def figure(self, name: str) -> str:
        """Return the value that the page itself has for one of its figures."""
        code = f"document.querySelector('[data-figure=' + CSS.escape({json.dumps(name)}) + ']')"
        value = self.evaluate(f"{code}.dataset.value")
        assert isinstance(value, str), f"the page has no figure {name}"
        return value

    def text(self, selector: str) -> str:
        """Return what people read in the first element that a selector finds."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Move, press or release the mouse: `mouseMoved`, `mousePressed`, `mouseReleased`."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        self.drag(x, y, x, y)

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Press at one point and release at another one."""
        self.mouse("mouseMoved", x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1)
        for part in (0.5, 1.0):
            self.mouse("mouseMoved", x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)
        self.settle()

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Return left, top, width and height of an element in the window."""
        left, top, width, height = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        return left, top, width, height

    def picture(self, path: Path) -> bytes:
        """Write what is in the window as PNG, and return it."""
        self.settle()
        content = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(content)
        return content
