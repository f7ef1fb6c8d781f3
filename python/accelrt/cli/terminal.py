"""Colours and bars for people at a terminal; what is piped stays plain text.

`NO_COLOR` with any value (https://no-color.org) and `TERM=dumb` leave the colours out, the second
bars too.
"""

import os
import sys
from typing import TextIO

_BAR_WIDTH = 40


class Style:
    """Marks parts of texts as terminals understand it, or leaves them as they are."""

    def __init__(self, *, is_colored: bool) -> None:
        """Mark texts or leave them."""
        self._is_colored = is_colored

    @classmethod
    def of(cls, stream: TextIO | None) -> "Style":
        """Return the style for a stream: with colours for a terminal that wants them."""
        return cls(is_colored=_is_terminal(stream) and not os.environ.get("NO_COLOR"))

    def bold(self, text: str) -> str:
        """Return a heading, or what matters most."""
        return self._marked("1", text)

    def faint(self, text: str) -> str:
        """Return what is there for completeness."""
        return self._marked("2", text)

    def good(self, text: str) -> str:
        """Return what went well."""
        return self._marked("32", text)

    def doubtful(self, text: str) -> str:
        """Return what a reader may want to change."""
        return self._marked("33", text)

    def bad(self, text: str) -> str:
        r"""Return what failed.

        >>> Style(is_colored=True).bad("no"), Style(is_colored=False).bad("no")
        ('\x1b[31mno\x1b[0m', 'no')
        """
        return self._marked("31", text)

    def part(self, number: int, text: str) -> str:
        """Return one of several parts that colours tell apart."""
        return self._marked(("36", "35", "34")[number % 3], text)

    def _marked(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_colored and text else text


PLAIN = Style(is_colored=False)


def shows_progress() -> bool:
    """Return True when standard error is a terminal that a bar can be wiped from."""
    return _is_terminal(sys.stderr)


def bar(name: str, share: float, note: str = "") -> None:
    """Show how much is done, in place of the bar before, where progress is shown."""
    if shows_progress():
        filled = int(_BAR_WIDTH * share)
        drawn = "#" * filled + "." * (_BAR_WIDTH - filled)
        sys.stderr.write(f"\r{name} [{drawn}]{note}")
        sys.stderr.flush()


def wipe() -> None:
    """Take the bar away."""
    if shows_progress():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
